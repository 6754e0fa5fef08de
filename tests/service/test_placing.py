"""The worked example places real work better than always the first host, on its own measured run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.living import Served

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "examples" / "placing.py"


@pytest.mark.slow
def test_a_scheduler_that_asks_beats_one_that_always_takes_the_first_host(
    start_server: Callable[..., Served], tmp_path: Path
) -> None:
    served = start_server(tmp_path / "s.duckdb")
    done = subprocess.run([sys.executable, SCRIPT, served.url], capture_output=True, text=True, timeout=120, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    found = re.search(r"from (\d+) points on\n.*near ([\d.]+) s; .*included, ([\d.]+) s", done.stdout)
    assert found is not None, done.stdout
    turning, always_s, placed_s = (float(part) for part in found.groups())
    assert placed_s < always_s
    assert 32 <= turning <= 512, "neither host is always taken"


def test_the_example_is_short_enough_to_be_read_at_once() -> None:
    assert len([line for line in SCRIPT.read_text().splitlines() if line.strip()]) < 60
