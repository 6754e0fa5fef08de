"""Speed of one operator on the processors: sustained, alone after a rest, and the first call of a new shape.

`python -m calibrate.hosts.probes.cpu SECONDS OPERATOR THREADS`; OPERATOR as in calibrate.hosts.operators.
"""

from __future__ import annotations

import sys

from calibrate.hosts.loops import sampled, singly, timed
from calibrate.hosts.operators import backend, build, version
from calibrate.hosts.series import tell_done, tell_facts, telling

SUSTAINED_SHARE = 0.7


def main() -> None:
    """Measure, telling each sample."""
    budget_s, name, threads = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    series = f"{name}_threads_{threads}"
    kind = backend()
    tell_facts(backend=version(kind))
    timed(build(name, kind, threads=threads, shrink=2).once, 1)  # what the process itself takes to begin is told by `warmup`
    operator = build(name, kind, threads=threads)
    first_s = timed(operator.once, 1)
    telling(f"{series}_first", "s")("sample", first_s, first_s, 1)
    sampled(operator.once, work=operator.work, budget_s=SUSTAINED_SHARE * budget_s, tell=telling(series, operator.unit))
    singly(operator.once, budget_s=(1.0 - SUSTAINED_SHARE) * budget_s, tell=telling(f"{series}_single", "s"))
    tell_done()


if __name__ == "__main__":
    main()
