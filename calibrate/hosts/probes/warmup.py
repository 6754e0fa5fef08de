"""What a fresh process takes before it computes steadily: its backend imported, then the first operator ever called.

Each sample is a process of its own. `python -m calibrate.hosts.probes.warmup SECONDS` starts them; with `once` it is one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from calibrate.hosts.begin import end_with_parent
from calibrate.hosts.loops import timed
from calibrate.hosts.operators import backend, build, version
from calibrate.hosts.series import tell_done, tell_facts, telling

LEAST, MOST = 3, 9


def main() -> None:
    """Measure, telling each sample."""
    if sys.argv[1] == "once":
        end_with_parent()
        sys.stdout.write(json.dumps(begun()) + "\n")
        return
    ends_s = time.monotonic() + float(sys.argv[1])
    tell_facts(backend=version(backend()))
    for n in range(MOST):
        if n >= LEAST and time.monotonic() > ends_s:
            break
        done = subprocess.run(
            [sys.executable, "-m", "calibrate.hosts.probes.warmup", "once"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        for name, took_s in json.loads(done.stdout).items():
            telling(f"warmup_{name}", "s")("sample", took_s, took_s, 1)
    tell_done()


def begun() -> dict[str, float]:
    """Seconds that this process took to have its backend, to run its first operator, and to run it once more."""
    began_s = time.perf_counter()
    kind = backend()
    version(kind)
    backend_s = time.perf_counter() - began_s
    operator = build("matmul", kind, threads=1)
    return {"backend": backend_s, "first_operator": timed(operator.once, 1), "second_operator": timed(operator.once, 1)}


if __name__ == "__main__":
    main()
