"""Programs that mean no harm, in families: what a model writes, what an interpreter must know.

A program is (name, source, stdin). None may print what differs from one interpreter to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

Program = tuple[str, str, bytes]

READERS = {
    "input": "while True:\n    try: print(repr(input()))\n    except EOFError: break",
    "read": "import sys\nprint(repr(sys.stdin.read()))",
    "lines": "import sys\nfor line in sys.stdin: print(repr(line))",
    "readline": "import sys\nline = sys.stdin.readline()\nwhile line:\n    print(repr(line))\n"
    "    line = sys.stdin.readline()",
    "readlines": "import sys\nprint(sys.stdin.readlines())",
    "bytes": "import sys\nprint(sys.stdin.buffer.read())",
    "byte lines": "import sys\nprint([*sys.stdin.buffer])",
    "descriptor": "import os\nprint(os.read(0, 10**6))",
    "open 0": "print(repr(open(0).read()))",
    "splitlines": "import sys\nprint(sys.stdin.read().splitlines())",
    "fileinput": "import fileinput\nfor line in fileinput.input(): print(repr(line))",
    "input then read": "import sys\ntry: print(repr(input()))\nexcept EOFError: print('end')\n"
    "print(repr(sys.stdin.read()))",
    "prompt": "try: print(repr(input('say: ')))\nexcept EOFError: print('end')",
    "map": "import sys\ninput = sys.stdin.readline\nprint([*map(str, input().split())])",
    "seek": "import sys\nsys.stdin.read(1)\nsys.stdin.seek(0)\nprint(repr(sys.stdin.read()))",
    "echo": "import sys\nsys.stdout.write(sys.stdin.read())",
    "device": "import sys\nsys.stdin = open('/dev/stdin')\nprint(repr(sys.stdin.read()))",
    "device by path": "from pathlib import Path\nprint(repr(Path('/dev/stdin').read_bytes()))",
    "exit at the end": "while True:\n    try: print(repr(input()))\n    except EOFError: exit()",
}
INPUTS = {
    "nothing": b"",
    "a line": b"1 2 3\n",
    "no newline at the end": b"1 2 3",
    "lines": b"3\n1 2\n3 4\n5 6\n",
    "no newline after lines": b"3\na b\nc",
    "CRLF": b"1\r\n2\r\n\r\n3",
    "CR": b"1\r2\r3\r",
    "blank lines": b"\n\n \n\t\n",
    "unicode": "naïve café — 数字 🎉\nñ\n".encode(),
    "BOM": b"\xef\xbb\xbf1 2\n",
    "latin-1": b"caf\xe9\n\xff\xfe\n",
    "NUL": b"a\0b\n\0",
    "form feed": b"a\x0cb\x1cc\x85d\n",
    "separators": "a\u2028b\u2029c\u0085d\n".encode(),
    "long": b"x" * 200_000 + b"\n" + b"7 " * 50_000,
}

ENDINGS = (
    *(f"import sys\nprint('before')\nsys.exit({code})" for code in (
        *range(-3, 8), 127, 128, 254, 255, 256, 257, 1000, -1000, 2**31, 2**63, -(2**70),
        None, True, False, "'a message'", "''", "'é'", 1.5, "[]", "(1, 2)", "b'x'",
        "ValueError(3)",
    )),
    *(f"print('before')\nraise {error}" for error in (
        "SystemExit", "SystemExit(4)", "SystemExit('bye')", "SystemExit(1, 2)", "ValueError('x')",
        "Exception", "GeneratorExit", "StopIteration", "RecursionError", "AssertionError",
        "BaseException('é')", "KeyError(1)", "ExceptionGroup('g', [ValueError(1)])",
        "OSError(2, 'x')", "NotImplementedError", "EOFError",
        "UnicodeDecodeError('a', b'', 0, 1, 'r')",
    )),
    *(f"import os\nprint('lost')\nos._exit({code})" for code in (0, 1, 7, 255, 256)),
    *(f"import os\nprint('kept', flush=True)\nos._exit({code})" for code in (0, 3)),
    "exit()", "exit(3)", "quit('q')", "print(1); exit(0)",
    "def main():\n  print(1)\n  quit()\nmain()",
    "import sys\ntry: exit(2)\nexcept SystemExit as e: print(e.code)\nprint(sys.stdin.closed)",
    "import atexit\natexit.register(print, 'bye')\nexit()", "exit('said')",
    "print(exit, repr(quit), type(exit), type(copyright), type(help))",
    "copyright()", "credits()", "help(len)", "help()",
    "import builtins\nprint(sorted(dir(builtins)))", "import threading\n"
    "t = threading.Thread(target=lambda: exit(3))\nt.start(); t.join()\nprint(1)",
    "print(__name__, __doc__, __package__, __spec__, __cached__)",
    "import os\nprint(os.path.basename(__file__), os.path.isabs(__file__))",
    "import sys\nprint(sys.argv, sys.orig_argv[1:], sys.flags.no_site)",
    "def f(n): return n and 1 + f(n - 1)\nprint(f(990))",
    "import sys\nsys.setrecursionlimit(5000)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(4990))",
    "import resource as r, sys\nr.setrlimit(r.RLIMIT_STACK, (r.RLIM_INFINITY, r.RLIM_INFINITY))\n"
    "sys.setrecursionlimit(10**6)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(10**5))",
    "import threading, sys\nthreading.stack_size(2**27)\nsys.setrecursionlimit(10**6)\n"
    "def f(n): return n and 1 + f(n - 1)\nt = threading.Thread(target=lambda: print(f(10**5)))\n"
    "t.start(); t.join()",
    "import os, sys\nsys.stderr = open(os.devnull, 'w')\nprint('x', file=sys.stderr)\nprint(1)",
    "import contextlib, os\n"
    "with open(os.devnull, 'w') as f, contextlib.redirect_stdout(f): print(1)\nprint(2)",
     "print(repr(open('/dev/null').read()), open('/dev/null', 'rb').read(9))",
    "open('/dev/null', 'wb').write(b'x' * 10**6)\nprint(1)",
    "print(1, file=open('/dev/stdout', 'w'))", "with open('/dev/stderr', 'w') as f: f.write('x')",
    "open('/nowhere/at/all')", "open('/dev/stdin', 'nonsense')", "open(1.5)", "open([])",
    "def f(:\n", "print('unclosed", "  x = 1", "if 1:\nprint(1)", "return 1", "x = 1 +", "\0",
    "await x", "print 1", "é = 1\nprint(é)", "from __future__ import nothing",
    "from __future__ import annotations\ndef f(x: Unknown): pass\nprint(f.__annotations__)",
    "# -*- coding: latin-1 -*-\nprint('ok')", "# coding: nonsense\n", "#!/usr/bin/python\nprint(1)",
    "import nothing_of_this_name", "1 / 0", "[][1]", "{}['k']", "int('x')", "None.x", "undefined",
    "assert False, 'no'", "x: int = 'a'\nprint(x)", "", "\n\n", "pass", "...", "'a string'",
    "import sys\ntry: sys.exit(3)\nfinally: print('finally')",
    "import sys\ntry: sys.exit(3)\nexcept SystemExit: print('caught')",
    "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1 / 0",
    "import sys\nsys.exit(sys.exit)",
    "import sys\nsys.stderr.write('only here')\nsys.exit(0)",
    *(f"import io, sys\nclass Out:\n    {given}\n    def write(self, text): old.write(text)\n"
      f"old, {place} = {place}, Out()\nprint('said')\n{more}"
      for place in ("sys.stdout", "sys.stderr")
      for given in ("closed = False", "flush = print", "closed = True", "def flush(self): pass",
                    "def flush(self): 1 / 0", "def __del__(self): sys.__stdout__.write('end')")
      for more in ("", "sys.exit(3)")),
    "import io, sys\nold, sys.stdout = sys.stdout, io.StringIO()\nprint(1)\n"
    "old.write(sys.stdout.getvalue() * 2)",
    "import io, sys\nsys.stdout = io.StringIO()\nsys.__stdout__.write('there')",
    "import sys\nprint(1)\nsys.stdout = sys.stderr = None", "import sys\nprint(1)\ndel sys.stdout",
    "import sys\nprint(1)\ndel sys.stderr", "import sys\nprint(1)\nsys.modules.clear()",
    "import sys\nb = sys.stdout.detach()\nb.write(b'raw')",
    "import sys\nprint(1)\nsys.modules['threading'] = None",
    "import threading\nprint(1)\nthreading._shutdown = lambda: 1 / 0",
    "try: raise ValueError from KeyError()\nexcept ValueError as e: print(repr(e.__cause__))",
)  # fmt: skip

# What is printed and how, then the language and its library: programs between lines of dashes.
OTHERS = Path(__file__).with_name("benign.txt").read_text(encoding="utf-8")[:-1].split("\n----\n")

ARITHMETIC = """
n, m = map(int, input().split())
grid = [[(i * {a} + j * {b}) % 7 for j in range(m)] for i in range(n)]
best = [[0] * (m + 1) for _ in range(n + 1)]
for i in range(n):
    for j in range(m):
        best[i + 1][j + 1] = max(best[i][j + 1], best[i + 1][j]) + grid[i][j]
print(best[n][m])
print(*(sum(row) for row in grid))
"""


def programs() -> Iterator[Program]:
    for (how, source), (what, stdin) in product(READERS.items(), INPUTS.items()):
        yield f"{how}, {what}", source, stdin
    for number, source in enumerate((*ENDINGS, *OTHERS)):
        yield f"{number}: {source[:40]!r}", source, b""
    for a, b in product(range(8), range(10)):
        yield f"arithmetic {a} {b}", ARITHMETIC.format(a=a, b=b), f"{a + 2} {b + 3}\n".encode()
