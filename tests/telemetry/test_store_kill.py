import collections
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from telemetry.store.file import Store

STREAM = """
import os, sys, threading
from pathlib import Path
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Event, Observation
round_, store = sys.argv[2], Store.open(Path(sys.argv[1]))
def stream(sender):
    for n in range(10**9):
        events = tuple(Event(event_id=f"{round_}-{sender}-{n}-{i}", attempt_id=sender, kind="heartbeat", wall_ns=n, source="s")
                       for i in range(20))
        length = Observation(observation_id=f"{sender}/service/0", attempt_id=sender, phase="service", duration_s=n)
        receipt = store.write(Batch((*events, length)))
        os.write(1, "".join(event.event_id + "\\n" for event in events).encode())  # whole, unlike a print on three threads
threads = [threading.Thread(target=stream, args=(f"s{k}",), daemon=True) for k in range(3)]
[thread.start() for thread in threads]
print("ready", flush=True)
threads[0].join()
"""


def kill_and_reopen(path: Path, rounds: int) -> None:
    """Kill a process that streams at random moments; every acknowledged event must be there once, every time."""
    moments, acknowledged = random.Random(20), set[str]()
    for round_ in range(rounds):
        command = [sys.executable, "-c", STREAM, str(path), str(round_)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout.readline()
            time.sleep(moments.uniform(0.0, 0.4))
            child.kill()
            told = child.stdout.read()
        acknowledged |= set(told[: told.rfind("\n")].split("\n")) - {""}
        with Store.open(path) as store, store.reader() as reader:
            assert 0 == store.opened.lost_commits
            times = collections.Counter(event_id for (event_id,) in reader.rows("SELECT event_id FROM events"))
            standing = reader.rows("SELECT observation_id FROM observations WHERE known_until IS NULL")
        assert set() == acknowledged - times.keys()
        assert {1} == set(times.values())
        assert len(standing) == len(set(standing))
    assert acknowledged


def test_what_was_acknowledged_survives_sigkill_once(tmp_path: Path) -> None:
    kill_and_reopen(tmp_path / "s.duckdb", rounds=3)


@pytest.mark.soak
def test_what_was_acknowledged_survives_twenty_sigkills_once(tmp_path: Path) -> None:
    kill_and_reopen(tmp_path / "s.duckdb", rounds=20)
