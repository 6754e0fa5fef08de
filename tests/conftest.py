"""Fixtures every part of the tests may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


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
