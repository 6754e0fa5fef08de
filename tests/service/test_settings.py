from __future__ import annotations

from pathlib import Path

import pytest

from service.settings import Settings, default_store, default_token, is_loopback, models_folder
from telemetry.errors import BadField


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org"])
def test_where_others_can_reach_it_calls_need_a_token_and_are_counted(host: str) -> None:
    settings = Settings(store=Path("s"), host=host)
    assert (True, 1000.0) == (settings.token_required, settings.requests_per_s)
    assert 7.0 == Settings(store=Path("s"), host=host, rate_per_s=7.0).requests_per_s


def test_no_address_is_not_every_address() -> None:
    with pytest.raises(BadField) as refusal:
        Settings(store=Path("s"), host="")
    assert ("host", "") == (refusal.value.field, refusal.value.got)
    assert "127.0.0.1" in refusal.value.fix


def test_a_command_shows_the_token_of_the_environment() -> None:
    assert "phc_1_2" == default_token({"PHASECAST_TOKEN": "phc_1_2"})
    assert default_token({"PHASECAST_TOKEN": ""}) is None
    assert default_token({}) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_names_of_this_machine_are_loopback(host: str) -> None:
    assert is_loopback(host)
    settings = Settings(store=Path("s"), host=host)
    assert (False, 0.0) == (settings.token_required, settings.requests_per_s)
    assert Settings(store=Path("s"), host=host, require_token=True).token_required


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
