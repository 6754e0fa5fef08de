"""Fixtures every part of the tests may use."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

SHARED_SERVERS = ("answering", "served")
"""Fixtures of a whole run: tests that talk to them stay in one process and keep their order, since some leave rows behind."""
LONGEST_FIRST = ("test_docs.py", "service")
"""Files that take longest, by their name or folder: begun first, so that no process ends alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Divide tests among processes by file, or by the server they share, whatever processes there are; skip what needs torch."""
    without = [] if find_spec("torch") else [pytest.mark.skip(reason="torch is not installed; `make torch` does it")]
    for item in items:
        for mark in without if item.get_closest_marker("torch") else ():
            item.add_marker(mark)
        shared = [name for name in SHARED_SERVERS if name in getattr(item, "fixturenames", ())]
        item.add_marker(pytest.mark.xdist_group("servers" if shared else str(item.path)))
    items.sort(key=lambda item: not any(name in item.path.parts for name in LONGEST_FIRST))


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of data sets and reference scorers beside the repository, absent in a lone clone.

    PHASECAST_REQUIRE_SHARED=1 makes its absence a failure, so that a full run can't skip these tests unnoticed.
    """
    found = Path(__file__).resolve().parents[2] / "shared"
    if not (found / "bench").is_dir():
        reason = "the shared folder is not beside this clone"
        if os.environ.get("PHASECAST_REQUIRE_SHARED") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
