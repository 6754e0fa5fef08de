"""Every bad day of the contract has a test: those that are told elsewhere by name, the rest here."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from calibrate.hosts.profile import UNASKED, Plan, carried_out, profiled
from predictors.synthetic import runs
from service.client.calls import ingest
from service.http.app import create_app
from service.lineup import Lineup
from service.settings import Settings
from service.upkeep import Upkeep
from telemetry.store import writer
from telemetry.store.file import Store
from tests.calibrate.test_profile import PROBE, granted
from tests.service.living import Living, Served

TESTS = Path(__file__).resolve().parents[1]
BAD_DAYS = {
    "unknown host or model": [
        "service/test_http_answers.py::test_an_unseen_context_is_answered_from_its_parents_and_says_so",
        "service/test_http_plans.py::test_an_unseen_host_is_shadow_and_certifies_nothing",
    ],
    "unknown phase": ["service/test_http_plans_refused.py::test_a_phase_nobody_ever_finished_is_named"],
    "an id asked for by name": ["service/test_http_refusals.py::test_an_attempt_asked_for_by_name_must_be_known"],
    "no data at all": ["service/test_http_refusals.py::test_nothing_known_is_a_problem_that_says_what_to_ingest"],
    "deadline in the past, negative elapsed, zero batch, mixed units": [
        "service/test_http_refusals.py::test_a_wrong_field_is_named",
        "service/test_http_plans_refused.py::test_a_senseless_plan_is_refused_by_its_place",
    ],
    "100 MB body": [
        "service/test_http_refusals.py::test_an_announced_body_over_the_limit_is_not_read",
        "service/test_http_refusals.py::test_a_stream_without_length_ends_at_the_limit_with_bounded_memory",
    ],
    "10^6 plans": ["service/test_http_refusals.py::test_a_million_plans_are_refused_with_bounded_memory"],
    "deep JSON": ["service/test_http_refusals.py::test_deep_nesting_below_a_field_is_refused"],
    "bad UTF-8": ["service/test_http_refusals.py::test_a_body_that_is_no_json_object_is_refused"],
    "file locked by another process": [
        "telemetry/test_store_opening.py::test_another_process_is_refused_while_the_owner_lives_and_welcome_afterwards",
        "service/test_cli.py::test_exit_codes_are_those_the_help_tells",
        "service/test_bad_days.py::test_a_second_server_names_the_first_and_ends_at_once",
    ],
    "disk full": [
        "service/test_bad_days.py::test_on_a_full_disk_events_are_507_and_questions_go_on",
        "telemetry/test_shipper.py::test_passing_trouble_is_waited_out",
        "telemetry/test_store.py::test_a_write_the_disk_refuses_fails_alone_and_the_store_goes_on_when_there_is_room",
    ],
    "killed": ["telemetry/test_store_kill.py::test_what_was_acknowledged_survives_sigkill_once"],
    "rebooted": [
        "service/test_upkeep.py::test_a_restart_answers_as_before_and_still_waits_for_outcomes",
        "telemetry/test_timelines_clocks.py::test_clocks_are_never_subtracted_from_each_other",
    ],
    "clock stepped": ["telemetry/test_timelines_clocks.py::test_suspend_or_clock_step_is_quarantined"],
    "corrupt model file": ["service/test_upkeep.py::test_a_damaged_model_file_is_refused_and_the_one_before_serves"],
    "damaged log": ["telemetry/test_store_opening.py::test_a_damaged_log_is_set_aside_and_the_last_checkpoint_serves"],
    "GPU driver gone mid-run": [
        "service/test_bad_days.py::test_a_driver_gone_in_a_run_leaves_a_profile_marked_partial_and_the_host_serves",
        "telemetry/test_nvml.py::test_a_driver_that_falls_silent_is_lost_begun_again_ever_more_rarely_and_found",
    ],
}
QUESTION = {"contexts": [{"host": "north"}], "phases": ["service"]}
GONE = """
from calibrate.hosts.series import telling
for n in range(4):
    telling("memory_copy", "bytes_per_s")("sample" if n else "warmup", 1e9, 0.05, 1)
raise RuntimeError("CUDA error: the launch failed; is the driver still there?")
"""


@pytest.mark.parametrize("bad_day", BAD_DAYS)
def test_a_bad_day_has_its_test(bad_day: str) -> None:
    for told in BAD_DAYS[bad_day]:
        file, name = told.split("::")
        assert re.search(rf"^def {name}\(", (TESTS / file).read_text(), re.MULTILINE), f"{told} is gone"


def test_on_a_full_disk_events_are_507_and_questions_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(store=tmp_path / "store.duckdb", refit_share=1.0)
    (run,) = runs(1, seed=3)
    events = [event.model_dump(exclude_none=True) for event in run.events]
    body = ingest([run.attempt.model_dump(exclude_none=True)], events).body

    async def lived(store: Store) -> list[httpx.Response]:
        app, replies = create_app(settings, store), []
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            with monkeypatch.context() as full:
                full.setattr(writer, "RESERVE_BYTES", 2**62)
                replies.append(await http.post("/v1/events", content=body))
                replies.append(await http.post("/v1/predict", json=QUESTION))
            replies.append(await http.post("/v1/events", content=body))
        return replies

    with Store.open(settings.store) as store:
        taught = Living(store, Lineup("here/boot-1"), Upkeep(store, Lineup("here/boot-1"), settings))
        taught.send(runs(40, seed=2))
        taught.settle()
        taught.upkeep.stop()
        refused, answered, taken = asyncio.run(lived(store))
    assert (507, "store") == (refused.status_code, refused.json()["field"])
    assert "bytes free" in refused.json()["got"]
    assert (200, "service") == (answered.status_code, answered.json()["answers"][0]["phase"])
    assert {"new"} == {one["result"] for one in taken.json()["events"]}


def test_a_second_server_names_the_first_and_ends_at_once(served: Served) -> None:
    command = [sys.executable, "-m", "service.cli.main", "serve", "--store", str(served.store), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (3, "") == (second.returncode, second.stdout)
    told = re.findall(rf"-> process {served.process.pid} .*ask the API at {re.escape(served.url)}", second.stderr)
    assert 1 == len(told), "it says so once, and does not try again"
    assert 200 == httpx.get(f"{served.url}/healthz").status_code


def test_a_driver_gone_in_a_run_leaves_a_profile_marked_partial_and_the_host_serves(
    http: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone_probe.py").write_text(GONE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    plan = Plan(granted(), (replace(PROBE, module="gone_probe"),), 5.0)
    row = profiled(plan, carried_out(plan, UNASKED))
    assert row.partial
    rate = json.loads(row.rates)["memory_copy_bytes_per_s"]
    assert (1e9, 3) == (rate["median"], rate["samples"])
    assert "is the driver still there?" in json.loads(row.condition)["not_measured"]
    assert 200 == http.post("/v1/predict", json=QUESTION).status_code
