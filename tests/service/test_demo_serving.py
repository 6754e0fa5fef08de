"""The demo's API ends with the demo, in whatever way that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from telemetry.store.lock import holder
from tests.service.living import until

DEMO = """
import signal, sys, time
from pathlib import Path
from service.demo.run import api
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may have been started where it is ignored
with api(Path(sys.argv[1])) as url:
    print(url, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_server_is_left_behind(tmp_path: Path, how: signal.Signals) -> None:
    store = tmp_path / "s.duckdb"
    with subprocess.Popen(
        [sys.executable, "-c", DEMO, store], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as demo:
        assert demo.stdout is not None
        url = demo.stdout.readline().strip()
        assert 200 == httpx.get(f"{url}/healthz").status_code
        demo.send_signal(how)
        demo.wait(timeout=30)
    until(lambda: holder(store) is None)
