"""The opposite of the sandbox: judges a program in the program's own process.

python naive_harness.py PROGRAM CHANNEL EXPECTED
"""

import io
import os
import sys


def same(said: str, expected: str) -> bool:
    return list(said.split()) == list(expected.split())


def verdict(said: str) -> bytes:
    return b"passed" if same(said, expected) else b"failed"


program, channel, expected = sys.argv[1:]
answer = os.open(os.path.join(os.path.dirname(program), "expected"), os.O_RDONLY)
sys.stdout = output = io.StringIO()
try:
    with open(program) as file:
        exec(compile(file.read(), "program.py", "exec"), {"__name__": "__main__"})
except SystemExit:
    pass
os.write(int(channel), verdict(sys.stdout.getvalue()))
