"""Composite questions over HTTP: what decides the draws, and what a running attempt brings along."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest

from predictors.contexts import Context
from predictors.plans.graph import StageKind
from predictors.synthetic import runs
from service.client.sync import Client
from service.http.routes import plans as plans_route
from service.http.routes.plans import CHANCE_EXAMPLE, LATEST_START_EXAMPLE, SCENARIOS_EXAMPLE
from service.plan_questions import ChanceQuestion, Occasion, PlannedStage
from service.plan_schemas import ChancesOut, LatestStartsOut, ScenariosOut
from service.replay import replay
from service.settings import Settings
from telemetry import asof
from telemetry.errors import TooSlow
from telemetry.recorder.ids import clock_id, uuid7
from telemetry.store.reader import open_reader
from tests.service.living import until

SEEN = next(run for run in runs(80, seed=7) if run.attempt.host == "north" and run.events[-1].kind == "resource_released")
KNOWN = Context.of(SEEN.attempt.model_dump()).known()
EXAMPLES = {"/v1/chance": CHANCE_EXAMPLE, "/v1/latest-start": LATEST_START_EXAMPLE, "/v1/scenarios": SCENARIOS_EXAMPLE}
OUT = {"/v1/chance": ChancesOut, "/v1/latest-start": LatestStartsOut, "/v1/scenarios": ScenariosOut}
LIMITS = Settings(store=Path("unused"))
PER_ANSWER = ("answer_id", "made_ns")


def plan(name: str | None, *, wait_s: float = 0.1, deadline_s: float = 3.0, **more: Any) -> dict[str, Any]:
    setup = {"name": "load", "kind": "setup", "context": KNOWN, "attempt": "a", "after": ["wait"]}
    compute = {"name": "compute", "kind": "service", "context": KNOWN, "attempt": "a", "after": ["load"]}
    stages = [{"name": "wait", "kind": "wait", "planned_s": wait_s}, setup, compute]
    return {"stages": stages, "deadline_s": deadline_s, "level": 0.9} | ({"plan_id": name} if name else {}) | more


def with_stage(place: int = 1, **wrong: Any) -> dict[str, Any]:
    """A plan with one stage changed; None takes a field away."""
    made = plan(None)
    changed = made["stages"][place] | wrong
    made["stages"][place] = {name: value for name, value in changed.items() if value is not None}
    return made


def question(name: str | None, **need: Any) -> dict[str, Any]:
    load = {"name": "load", "kind": "setup", "context": KNOWN, "attempt": "b"}
    return {"load": load, "need": need or {"samples_s": [6.0, 7.0]}} | ({"question_id": name} if name else {})


def answers(http: httpx.Client, path: str, **body: Any) -> list[dict[str, Any]]:
    """Answers as sent, strict JSON of the documented form."""
    reply = http.post(path, json=body)
    assert 200 == reply.status_code, reply.text
    found = json.loads(reply.text, parse_constant=lambda text: pytest.fail(f"{text} was sent out"))
    assert OUT[path].model_validate(found).model_dump(mode="json", exclude_unset=True) == found
    return list(found["answers"])


def lasting(answer: dict[str, Any]) -> bytes:
    """What of an answer is decided by the question, the seed and the model: its bytes but for identity and time."""
    return orjson.dumps({name: value for name, value in answer.items() if name not in PER_ANSWER})


def refused(reply: httpx.Response, status: int) -> dict[str, Any]:
    assert status == reply.status_code, reply.text
    told: dict[str, Any] = reply.json()
    assert told["fix"]
    return told


def test_no_plan_with_an_id_is_moved_by_others_added_removed_or_reordered(http: httpx.Client) -> None:
    plans = [plan(f"p{i}", wait_s=0.1 * i, deadline_s=1.0 + i / 3) for i in range(20)]
    whole = {a["plan_id"]: lasting(a) for a in answers(http, "/v1/chance", plans=plans, seed=5)}
    assert len(set(whole.values())) == 20
    for some in (plans[::-1], plans[7:9], [*plans[3:6], plan("new"), plan(None)]):  # both sides of the thread's threshold
        found = {a["plan_id"]: lasting(a) for a in answers(http, "/v1/chance", plans=some, seed=5)}
        assert {name: body for name, body in found.items() if name in whole} == {
            p["plan_id"]: whole[p["plan_id"]] for p in some if p.get("plan_id") in whole
        }
    moved = {a["plan_id"]: lasting(a) for a in answers(http, "/v1/chance", plans=plans, seed=6)}
    assert all(moved[name] != body for name, body in whole.items() if b'"mc_se":0.0,' not in body)


def test_a_request_answered_in_parts_is_answered_like_its_plans_alone(http: httpx.Client) -> None:
    plans = [plan(f"p{i}", wait_s=i / 4_000) for i in range(2_000)]
    assert plans_route.TRIES_AT_ONCE < sum(len(one["stages"]) for one in plans)
    whole = answers(http, "/v1/chance", plans=plans)
    assert [one["plan_id"] for one in plans] == [one["plan_id"] for one in whole]
    assert 2_000 == len({one["answer_id"] for one in whole})
    for at in (0, 1_249, 1_250, 1_666, 1_999):
        assert [lasting(whole[at])] == [lasting(one) for one in answers(http, "/v1/chance", plans=[plans[at]])]


def test_plans_nobody_waits_for_are_answered_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        async def is_disconnected(self) -> bool:
            return True

    asked = list[int]()

    def ask(_serving: None, questions: Sequence[ChanceQuestion], occasion: Occasion) -> list[Any]:
        assert len(questions) == len(occasion.answer_ids)
        asked.append(len(questions))
        return [None] * len(questions)

    monkeypatch.setattr(plans_route, "answering", lambda _: SimpleNamespace(lineup=SimpleNamespace(serving=None)))
    stage = PlannedStage("load", StageKind.SETUP, context=Context(), retries=9)
    questions = [ChanceQuestion((stage,), 1.0, 0.9, str(i)) for i in range(2_000)]
    occasion = Occasion("r", tuple(map(str, range(2_000))), 1, 7, 0.0)
    with pytest.raises(TooSlow, match="closed"):
        asyncio.run(plans_route._asked(ask, Gone(), questions, occasion))  # type: ignore[arg-type]
    assert [499] == asked


def test_plans_without_an_id_are_keyed_by_what_they_ask(http: httpx.Client) -> None:
    first, second = plan(None), plan(None, wait_s=0.3)
    one, two = map(lasting, answers(http, "/v1/chance", plans=[first, second]))
    assert [one] == [lasting(a) for a in answers(http, "/v1/chance", plans=[first])]
    assert [two, one] == [lasting(a) for a in answers(http, "/v1/chance", plans=[plan("x"), second, first])][1:]


@pytest.mark.parametrize("name", ["same", None])
def test_plans_of_one_id_or_of_the_same_stages_share_their_world(http: httpx.Client, name: str | None) -> None:
    """So that the difference of two deadlines is not one of draws: a later one is never less likely met."""
    deadlines = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 9.0]
    found = answers(http, "/v1/chance", plans=[plan(name, deadline_s=d) for d in deadlines])
    assert [a["probability"] for a in found] == sorted(a["probability"] for a in found)
    assert 1 == len({a["p_complete"] for a in found})


def test_questions_with_an_id_are_keyed_alike(http: httpx.Client) -> None:
    asked = [question(f"q{i}") for i in range(9)]
    whole = [lasting(a) for a in answers(http, "/v1/latest-start", questions=asked, seed=5)]
    assert whole[::-1] == [lasting(a) for a in answers(http, "/v1/latest-start", questions=asked[::-1], seed=5)]
    assert whole[4:6] == [lasting(a) for a in answers(http, "/v1/latest-start", questions=asked[4:6], seed=5)]
    assert [lasting(a) for a in answers(http, "/v1/latest-start", questions=asked, seed=6)] != whole


def test_scenarios_are_the_same_for_whoever_asks(http: httpx.Client) -> None:
    a, b, c = ({"attempt": name, "context": KNOWN} for name in "abc")
    whole = http.post("/v1/scenarios", json={"attempts": [a, b, c], "n_scenarios": 50, "seed": 3}).json()
    part = http.post("/v1/scenarios", json={"attempts": [c, a], "n_scenarios": 20, "seed": 3}).json()
    for phase in ("setup_s", "service_s"):
        assert [whole[phase][2][:20], whole[phase][0][:20]] == part[phase]


@pytest.fixture
def running(http: httpx.Client) -> Iterator[tuple[str, int]]:
    """An attempt that has loaded since 0.5 s by this machine's own clock, and the clock's reading then."""
    attempt_id, now_ns = f"a-{uuid7()}", time.monotonic_ns()
    event = {"attempt_id": attempt_id, "source": "test", "clock_id": clock_id()}
    marks = [("eligible", 700), ("phase_start", 500)]
    events = [
        event | {"event_id": uuid7(), "kind": kind, "wall_ns": time.time_ns() - ms * 10**6, "monotonic_ns": now_ns - ms * 10**6}
        for kind, ms in marks
    ]
    http.post("/v1/events", json={"attempts": [{"attempt_id": attempt_id, **KNOWN}], "events": events}).raise_for_status()
    asked = {"running": [{"attempt_id": attempt_id, "phase": "setup"}]}
    until(lambda: http.post("/v1/residual", json=asked).status_code == 200)
    yield attempt_id, now_ns
    over = event | {"event_id": uuid7(), "kind": "failed", "wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}
    http.post("/v1/events", json={"events": [over]}).raise_for_status()


def test_a_running_attempt_named_in_a_plan_is_aged_by_its_own_clock(http: httpx.Client, running: tuple[str, int]) -> None:
    attempt_id, since_ns = running
    by_id, by_age = plan("same"), plan("same")
    by_id["stages"][1] = {"name": "load", "kind": "setup", "running_attempt_id": attempt_id, "attempt": "a"}
    by_age["stages"][1] = {"name": "load", "kind": "setup", "context": KNOWN, "attempt": "a", "elapsed_s": 0.5}
    fresh, aged, named = answers(http, "/v1/chance", plans=[plan("same"), by_age, by_id])
    assert fresh["probability"] != aged["probability"]
    # The same question but for the few milliseconds that passed meanwhile.
    assert aged["probability"] == pytest.approx(named["probability"], abs=0.1)
    asked = kept(http, named["answer_id"])
    [age_s] = [stage["elapsed_s"] for stage in asked["stages"] if stage["name"] == "load"]
    assert 0.5 <= age_s <= 0.5 + (time.monotonic_ns() - since_ns) / 1e9


def test_a_running_predecessor_named_in_a_need_is_what_the_load_waits_for(http: httpx.Client, running: tuple[str, int]) -> None:
    attempt_id, _ = running
    stage = {"name": "before", "kind": "setup", "running_attempt_id": attempt_id}
    [answer] = answers(http, "/v1/latest-start", questions=[question("q", predecessors=[stage])])
    assert (False, None) == (answer["assumed_independent"], answer["p_at_least"])
    assert attempt_id in kept(http, answer["answer_id"])["needed_by"]


@pytest.mark.parametrize("phase", ["service", "nothing"])
def test_a_phase_that_does_not_run_is_told_apart_from_an_attempt_that_does_not(
    http: httpx.Client, running: tuple[str, int], phase: str
) -> None:
    stage = {"name": "s", "kind": "service", "phase": phase, "running_attempt_id": running[0]}
    told = refused(http.post("/v1/chance", json={"plans": [plan(None) | {"stages": [stage]}]}), 422)
    assert ("phase", phase) == (told["field"], told["got"])
    assert "setup" in told["fix"]
    nobody = stage | {"running_attempt_id": "nobody"}
    told = refused(http.post("/v1/chance", json={"plans": [plan(None) | {"stages": [nobody]}]}), 404)
    assert ("attempt_id", "nobody") == (told["field"], told["got"])
    told = refused(http.post("/v1/latest-start", json={"questions": [question(None, predecessors=[nobody])]}), 404)
    assert ("attempt_id", "nobody") == (told["field"], told["got"])


def snapshot(http: httpx.Client, folder: Path, answer_ids: Collection[str]) -> Path:
    """A copy of the store that holds these answers."""
    made: list[Path] = []

    def complete() -> bool:
        made.append(folder / f"{uuid7()}.duckdb")
        Client(http).snapshot(made[-1])
        with open_reader(made[-1]) as reader:
            known = {row.answer_id for scored in (True, False) for row in asof.plan_answers(reader, 2**62, scored=scored)}
        return known.issuperset(answer_ids)

    until(complete)
    return made[-1]


def kept(http: httpx.Client, answer_id: str) -> dict[str, Any]:
    """What the ledger keeps of an answer's question."""
    with TemporaryDirectory() as folder, open_reader(snapshot(http, Path(folder), [answer_id])) as reader:
        [(asked,)] = reader.rows("SELECT asked FROM plan_answers WHERE answer_id = ?", [answer_id])
    return dict(json.loads(asked))


def test_everything_served_is_in_the_ledger_and_comes_out_again_to_the_byte(
    http: httpx.Client, running: tuple[str, int], tmp_path: Path
) -> None:
    by_id = plan(None)
    by_id["stages"][1] = {"name": "load", "kind": "setup", "running_attempt_id": running[0], "attempt": "a"}
    before = {"name": "before", "kind": "setup", "running_attempt_id": running[0]}
    given = answers(http, "/v1/chance", plans=[plan("p"), plan(None), by_id], seed=11, cvar_level=0.9)
    asked = [question("q"), question(None, predecessors=[before]), question(None, levels=[0.1, 0.9], values_s=[4, 5])]
    given += answers(http, "/v1/latest-start", questions=asked)
    with open_reader(snapshot(http, tmp_path, [answer["answer_id"] for answer in given])) as reader:
        rows = {row.answer_id: row for row in asof.plan_answers(reader, 2**62, scored=False)}
        found = replay(reader, 2**62)
    for answer in given:
        assert hashlib.sha256(orjson.dumps(answer)).hexdigest() == rows[answer["answer_id"]].answer_sha256
    assert found.answers >= len(rows) >= len(given)
    assert ([], []) == (found.different_answers, found.different_fits)


def test_what_happened_is_joined_over_http(http: httpx.Client, tmp_path: Path) -> None:
    attempt_id, now_ns, mono_ns = f"a-{uuid7()}", time.time_ns(), time.monotonic_ns()
    [answer] = answers(http, "/v1/chance", plans=[plan(attempt_id, deadline_s=0.2, attempt_id=attempt_id)])
    marks = [("eligible", 0), ("compute_start", 10), ("compute_finish", 150)]
    events = [
        {
            "event_id": uuid7(),
            "attempt_id": attempt_id,
            "kind": kind,
            "wall_ns": now_ns + (1_000 + ms) * 10**6,
            "monotonic_ns": mono_ns + ms * 10**6,
            "clock_id": clock_id(),
            "source": "test",
        }
        for kind, ms in marks
    ]
    http.post("/v1/events", json={"attempts": [{"attempt_id": attempt_id, **KNOWN}], "events": events}).raise_for_status()

    def joined() -> bool:
        with open_reader(snapshot(http, tmp_path, [answer["answer_id"]])) as reader:
            outcome = asof.plan_outcomes(reader, 2**62).get(answer["answer_id"])
        return outcome is not None and (outcome.met, round(outcome.actual_s, 3)) == (True, 0.15)

    until(joined)


def test_an_offer_ages_by_what_passed_since_it_was_told(http: httpx.Client) -> None:
    """A wait shrinks by that, to nothing at most, and an age grows."""
    stages = [
        [with_stage(0, planned_s=0.5, told_ago_s=0.3), with_stage(0, planned_s=0.2)],
        [with_stage(1, elapsed_s=0.25, told_ago_s=0.5), with_stage(1, elapsed_s=0.75)],
        [with_stage(0, planned_s=0.5, told_ago_s=9.0), with_stage(0, planned_s=0.0)],
    ]
    for told in stages:
        then, now = answers(http, "/v1/chance", plans=[one | {"plan_id": "same"} for one in told])
        assert now["probability"] == pytest.approx(then["probability"], abs=1e-9)


def test_a_stage_that_may_be_tried_again_completes_more_often_and_keeps_so_in_the_ledger(http: httpx.Client) -> None:
    again = {"retries": 2, "retry_wait_s": 0.1, "channel": "nfs"}
    once, more = answers(http, "/v1/chance", plans=[with_stage(2) | {"plan_id": "r"}, with_stage(2, **again) | {"plan_id": "r"}])
    assert once["p_complete"] <= more["p_complete"]
    [_, _, kept_stage] = kept(http, more["answer_id"])["stages"]
    assert again == {name: kept_stage[name] for name in again}


def test_an_unseen_host_is_shadow_and_certifies_nothing(http: httpx.Client) -> None:
    new = plan("new", deadline_s=1e6)
    for stage in new["stages"][1:]:
        stage["context"] = KNOWN | {"host": "elsewhere"}
    [answer] = answers(http, "/v1/chance", plans=[new])
    assert ("shadow", "cannot_certify") == (answer["status"], answer["verdict"])
