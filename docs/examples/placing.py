"""Place real work by what the API expects of it: `python docs/examples/placing.py [URL]`, beside a running `phasecast serve`.

Two places count close pairs of points: `near`, a loop in this process, and `far`, another process with NumPy behind a pipe. Small
jobs are over near before a message has reached far; large ones are not. Nobody tells the scheduler: it records, and asks.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from service.client.sync import Client, http_client
from telemetry.recorder.marks import Recorder
from telemetry.recorder.shipper import Shipper

SIZES = [8, 32, 128, 512, 1024]


def far(points: Sequence[float]) -> int:
    """Count pairs of points that are close, all at once."""
    return int((np.abs(np.subtract.outer(points, points)) < 0.01).sum())


def main(url: str) -> None:
    """Run jobs everywhere to learn, then 100 more twice: always near, and where the median of the answer is shorter."""
    with ProcessPoolExecutor(1) as pool, http_client(url) as http, tempfile.TemporaryDirectory() as spool:
        hosts: dict[str, Callable[[Sequence[float]], int]] = {
            "near": lambda points: sum(abs(a - b) < 0.01 for a in points for b in points),
            "far": lambda points: pool.submit(far, points).result(),
        }
        hosts["far"]([0.0])  # the process starts, which is no part of a job
        recorder, shipper, api = Recorder(spool), Shipper(spool, url).start(), Client(http)

        def run(host: str, points: Sequence[float]) -> None:
            with recorder.attempt(host=host, family="pairs", size_in=len(points)) as attempt, attempt.phase("service"):
                hosts[host](points)

        def place(points: Sequence[float]) -> str:
            asked = [{"host": host, "family": "pairs", "size_in": len(points)} for host in hosts]
            medians_s = [answer.quantiles_s[0] for answer in api.predict(asked, ["service"], [0.5]).answers]
            return min(zip(medians_s, hosts, strict=True))[1]

        for size in SIZES * 6:
            for host in hosts:
                run(host, [random.random() for _ in range(size)])
        shipper.flush(timeout_s=30)
        while api.ready()["learned_to"] < api.ingest([], [])["commit"] or not api.ready()["ready"]:
            time.sleep(0.1)
        took_s = {"always near": 0.0, "placed": 0.0}
        for points in [[random.random() for _ in range(random.choice(SIZES))] for _ in range(100)]:
            for policy in took_s:
                began_s = time.perf_counter()
                run("near" if policy == "always near" else place(points), points)
                took_s[policy] += time.perf_counter() - began_s
        shipper.stop()
        print(f"far is chosen from {min(size for size in SIZES if place([0.5] * size) == 'far')} points on")
    print(f"100 jobs always near {took_s['always near']:.3f} s; placed, asking included, {took_s['placed']:.3f} s")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8787")
