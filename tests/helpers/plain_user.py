"""Runs programs in boxes and prints what came of them: for a user who is not root.

JSON: reads [[program, expected, limits], ...], prints [[verdict, stdout, reason], ...].
"""

import json
import os
import sys

from rlanything_coding.sandbox.base import Job, Limits
from rlanything_coding.sandbox.local import LocalExecutor

jobs = [
    Job(program, expected=expected, limits=Limits(**limits))
    for program, expected, limits in json.load(sys.stdin)
]
assert os.geteuid() != 0
with LocalExecutor(4) as executor:
    results = executor.run_all(jobs)
json.dump(
    [[each.verdict, each.stdout.decode("latin-1"), each.reason] for each in results], sys.stdout
)
