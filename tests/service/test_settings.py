from __future__ import annotations

from pathlib import Path

import pytest

from service.settings import Settings, default_store, is_loopback, models_folder
from telemetry.errors import BadField


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", ""])
def test_only_this_machine_is_served(host: str) -> None:
    with pytest.raises(BadField) as refusal:
        Settings(store=Path("s"), host=host)
    assert ("host", host) == (refusal.value.field, refusal.value.got)
    assert "127.0.0.1" in refusal.value.fix


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_names_of_this_machine_are_loopback(host: str) -> None:
    assert is_loopback(host)
    assert host == Settings(store=Path("s"), host=host).host


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PHASECAST_STORE": "/a/b.duckdb", "XDG_DATA_HOME": "/data"}, Path("/a/b.duckdb")),
        ({"PHASECAST_STORE": "", "XDG_DATA_HOME": "/data"}, Path("/data/phasecast/store.duckdb")),
        ({"XDG_DATA_HOME": ""}, Path.home() / ".local/share/phasecast/store.duckdb"),
        ({}, Path.home() / ".local/share/phasecast/store.duckdb"),
    ],
)
def test_the_store_is_where_the_environment_says(environment: dict[str, str], expected: Path) -> None:
    assert expected == default_store(environment)


def test_models_lie_beside_their_store() -> None:
    assert Path("/a/s.duckdb.models") == models_folder(Path("/a/s.duckdb"))
