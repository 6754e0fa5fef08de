"""Both clients: what they send again, what stands in while the API is away, and that they are alike and complete."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from predictors.contexts import Context
from predictors.synthetic import runs
from service.client import calls, sync
from service.client.aio import AsyncClient, async_http_client
from service.client.fallback import Fallback
from service.client.sync import Client, http_client
from service.schemas import AnswersOut
from telemetry.errors import BadField, NoEvidence, NotReached, TooMany, UnknownId
from tests.service.living import Served

SEEN = next(run for run in runs(80, seed=7) if run.attempt.host == "north" and run.events[-1].kind == "resource_released")
KNOWN = Context.of(SEEN.attempt.model_dump()).known()
QUICK = calls.Retry(times=2, first_s=0.001)
STAGE = {"name": "load", "kind": "setup", "context": KNOWN, "attempt": "b"}
PLAN = {"deadline_s": 3.0, "stages": [STAGE]}
QUESTION = {"load": STAGE, "need": {"samples_s": [6.0, 7.0]}}
ASKED: dict[str, tuple[Any, ...]] = {
    "predict": ([KNOWN], ["service"], [0.5, 0.9], ["a-1"], 1.0),
    "residual": ([{"context": KNOWN, "phase": "service", "elapsed_s": 0.1}], [0.5]),
    "chance": ([PLAN], 7, 0.9),
    "latest_start": ([QUESTION], 7),
    "scenarios": ([{"attempt": "a", "context": KNOWN}], 3, 7),
    "ingest": ([{"attempt_id": "of-clients"}], []),
    "traces": ({"resourceSpans": []},),
    "report": (10,),
    "coverage": (10,),
    "sharpness": (10,),
    "support": (10,),
    "drift": (),
    "shadow": (10,),
    **dict.fromkeys(
        ("overview", "contexts", "running", "hosts", "tokens", "grants", "calibrations", "alive", "ready", "metrics"), ()
    ),
}
"""Every call that a server which has learned answers, with arguments."""
BY_NAME: dict[str, tuple[Any, ...]] = {
    "profile": ("{host}",),
    "changes": ("{host}",),
    "add_token": ("n", ["query"]),
    "revoke_token": ("{token_id}",),
    "give_grant": ({},),
    "withdraw_grant": ("{grant_id}",),
    "calibrate": ({},),
    "calibration": ("{run_id}",),
    "stop_calibration": ("{run_id}",),
    "log_decisions": ([],),
    "advice": ({},),
    "policy": (1.0, "north"),
    "shadow_forecasts": ([],),
    "promote": ({},),
    "withdraw_promotion": ("{change_id}", "a slip"),
    "freeze": ({},),
    "seal": ({},),
    "frozen": ("{forecast_id}",),
    "score": ("{forecast_id}", {}),
}
"""Calls about one thing by name, or that need a body of their own."""
OTHERS = BY_NAME.keys() | {"snapshot"}
GIVEN = (
    "prediction_id",
    "answer_id",
    "made_ns",
    "now_ns",
    "as_of_commit",
    "last_commit",
    "last_commit_ns",
    "learned_to",
    "commit",
)
"""Members that differ from call to call."""
REPORTS = ("report", "coverage", "sharpness", "support", "drift")


def told(found: Any) -> Any:
    """An answer without what differs from call to call."""
    plain = json.loads(found.model_dump_json()) if hasattr(found, "model_dump_json") else found
    if isinstance(plain, dict):
        return {name: told(value) for name, value in plain.items() if name not in GIVEN}
    return [told(one) for one in plain] if isinstance(plain, list) else plain


def public(kind: type[Client | AsyncClient]) -> dict[str, inspect.Signature]:
    return {name: inspect.signature(f) for name, f in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_both_clients_have_the_same_calls() -> None:
    blocking = public(Client)
    assert {name: sign for name, sign in blocking.items() if name != "snapshot"} == public(AsyncClient)
    assert ASKED.keys() | OTHERS == blocking.keys()


def test_both_clients_get_the_same_answers_from_a_real_server(answering: Served) -> None:
    async def all_of_them() -> dict[str, Any]:
        async with async_http_client(answering.url, timeout_s=30) as http:
            client = AsyncClient(http)
            return {name: await getattr(client, name)(*arguments) for name, arguments in ASKED.items()}

    with http_client(answering.url, timeout_s=30) as http:
        blocking = {name: getattr(Client(http), name)(*arguments) for name, arguments in ASKED.items()}
    awaited = asyncio.run(all_of_them())
    for name in ASKED.keys() - {"ready", "metrics", "overview", "running", "ingest", *REPORTS}:  # those tell how far it is
        assert told(blocking[name]) == told(awaited[name]), name
    assert ["new", "repeat"] == [one["ingest"]["attempts"][0]["result"] for one in (blocking, awaited)]
    [answer] = blocking["predict"].answers
    assert (2, 1.0) == (len(answer.quantiles_s), answer.causes.horizon_s)


def test_refusals_of_a_real_server_are_raised_by_both(answering: Served) -> None:
    async def within() -> None:
        async with async_http_client(answering.url, timeout_s=30) as http:
            client = AsyncClient(http)
            for error, ask in wrong(client):
                with pytest.raises(error):
                    await ask()

    asyncio.run(within())
    with http_client(answering.url, timeout_s=30) as http:
        for error, ask in wrong(Client(http)):
            with pytest.raises(error):
                ask()


def wrong(client: Any) -> Iterator[tuple[type[Exception], Callable[[], Any]]]:
    """Calls that are refused, and how."""
    yield NoEvidence, lambda: client.predict([{}], ["polishing"])
    yield BadField, lambda: client.predict([{"batch": 0}], ["service"])
    yield UnknownId, lambda: client.profile("a/b c%2F?")
    yield UnknownId, lambda: client.revoke_token("nobody")


def test_every_call_of_the_api_has_one_of_the_client(answering: Served) -> None:
    sent: list[tuple[str, str]] = []

    def note(asked: httpx.Request) -> httpx.Response:
        sent.append((asked.method.lower(), asked.url.raw_path.decode().partition("?")[0]))
        return httpx.Response(400)

    client = Client(httpx.Client(base_url="http://127.0.0.1", transport=httpx.MockTransport(note)))
    for name, arguments in (ASKED | BY_NAME).items():
        with pytest.raises(NotReached):
            getattr(client, name)(*arguments)
    covered = {(method, path.replace("%7B", "{").replace("%7D", "}")) for method, path in sent} | {("get", "/v1/snapshot")}
    with http_client(answering.url) as http:
        described = http.get("/openapi.json").json()["paths"]
    assert set() == {(method, path) for path, ways in described.items() for method in ways} - covered


class Flaky:
    """An API that fails in the ways given, one a call, then answers."""

    def __init__(self, *failures: int | Exception, retry_after: str | None = None) -> None:
        self.failures, self.headers, self.calls = list(failures), {"Retry-After": retry_after} if retry_after else {}, 0

    def __call__(self, asked: httpx.Request) -> httpx.Response:
        self.calls += 1
        if not self.failures:
            answers = {"/v1/predict": {"answers": []}, "/v1/tokens": {}}
            return httpx.Response(200, json=answers.get(asked.url.path, {"commit": 1}))
        failure = self.failures.pop(0)
        if isinstance(failure, Exception):
            raise failure
        problem = {
            "type": "urn:phasecast:problem:too-many",
            "title": "",
            "detail": "",
            "field": "requests",
            "got": "1",
            "fix": "wait",
        }
        return httpx.Response(failure, json=problem | {"status": failure}, headers=self.headers)


def both(api: Flaky, ask: Callable[[Any], Any], *, retry: calls.Retry = QUICK, fallback: Fallback | None = None) -> list[Any]:
    """What either client gets, or the error it raises, from an API of its own that fails alike."""

    async def awaited() -> Any:
        async with httpx.AsyncClient(base_url="http://127.0.0.1", transport=httpx.MockTransport(api)) as http:
            return await ask(AsyncClient(http, retry, fallback))

    failures = list(api.failures)
    found = []
    for run in (lambda: asyncio.run(awaited()), lambda: ask(blocking(api, retry, fallback))):
        api.failures = list(failures)
        try:
            found.append(run())
        except (NotReached, TooMany) as error:
            found.append(type(error))
    return found


def blocking(api: Flaky, retry: calls.Retry, fallback: Fallback | None) -> Client:
    return Client(httpx.Client(base_url="http://127.0.0.1", transport=httpx.MockTransport(api)), retry, fallback)


ASK: Callable[[Any], Any | Awaitable[Any]] = lambda client: client.predict([{}], ["service"])  # noqa: E731
SEND: Callable[[Any], Any] = lambda client: client.ingest([], [])  # noqa: E731
MINT: Callable[[Any], Any] = lambda client: client.add_token("n", ["query"])  # noqa: E731


@pytest.mark.parametrize(
    "failure", [429, 503, httpx.ConnectError("no"), httpx.ReadTimeout("late"), httpx.RemoteProtocolError("cut")]
)
@pytest.mark.parametrize("ask", [ASK, SEND], ids=["ask", "send"])
def test_what_may_be_repeated_is_sent_again(failure: int | Exception, ask: Callable[[Any], Any]) -> None:
    api = Flaky(failure, failure)
    assert all(not isinstance(one, type) for one in both(api, ask))
    assert 6 == api.calls


def test_it_is_sent_no_oftener_than_said_and_what_may_not_be_only_once() -> None:
    api = Flaky(*[503] * 3)
    assert [TooMany, TooMany] == both(api, ASK)
    assert 6 == api.calls
    api = Flaky(*[httpx.ConnectError("no")] * 3)
    assert [NotReached, NotReached] == both(api, ASK, retry=calls.Retry(times=0))
    assert 2 == api.calls
    api = Flaky(httpx.ReadTimeout("late"))
    assert [NotReached, NotReached] == both(api, MINT), "a second token could be made"
    assert 2 == api.calls


def test_refusals_are_not_repeated_nor_a_server_that_wants_a_long_rest() -> None:
    api = Flaky(*[503] * 3, retry_after="60")
    assert [TooMany, TooMany] == both(api, ASK)
    assert 2 == api.calls
    ask, other = calls.predict([{}], ["service"]), calls.Retry(times=2, first_s=0.1, longest_s=1.0)
    assert [None] * 4 == [calls.pause_s(other, ask, 1, status) for status in (404, 422, 500, 507)]


def test_pauses_grow_to_a_bound_and_keep_to_what_the_server_says() -> None:
    ask, retry = calls.predict([{}], ["service"]), calls.Retry(times=9, first_s=0.1, longest_s=1.0)
    for tried, longest_s in ((1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (9, 1.0)):
        pauses_s = [calls.pause_s(retry, ask, tried) for _ in range(50)]
        assert all(pause_s is not None and longest_s / 2 <= pause_s <= longest_s for pause_s in pauses_s)
        assert len(set(pauses_s)) > 1
    assert 1.0 == calls.pause_s(retry, ask, 1, 429, "1")
    assert calls.pause_s(retry, ask, 1, 429, "2") is None
    assert calls.pause_s(retry, ask, 10) is None


def test_while_the_api_is_away_its_last_answer_stands_in_marked(answering: Served) -> None:
    fallback = Fallback()
    with http_client(answering.url, timeout_s=30) as http:
        before = Client(http, fallback=fallback).predict([KNOWN], ["service"], [0.5, 0.9]).answers[0]
    for found in both(
        Flaky(*[httpx.ConnectError("no")] * 9), lambda c: c.predict([KNOWN], ["service"], [0.5, 0.9]), fallback=fallback
    ):
        after = found.answers[0]
        assert (before.quantiles_s, before.made_ns) == (after.quantiles_s, after.made_ns)
        assert (None, "shadow") == (after.prediction_id, after.status)
        assert ["api_away", "remembered"] == after.reasons[:2]


def test_else_the_caller_supplies_or_nobody_does() -> None:
    def guess(context: Any, phase: str, levels: Any, elapsed_s: float | None) -> list[float] | None:
        return [p * 10.0 + (elapsed_s or 0.0) for p in levels] if context.get("host") == "known" else None

    for fallback, quantiles_s, reason in ((Fallback(guess), [5.0], "supplied"), (Fallback(), None, "no_evidence")):
        for found in both(
            Flaky(*[503] * 9), lambda c: c.predict([{"host": "known"}], ["service"], [0.5], ["a"]), fallback=fallback
        ):
            [answer] = found.answers
            assert (quantiles_s, "a", "shadow", ["api_away", reason]) == (
                answer.quantiles_s,
                answer.attempt_id,
                answer.status,
                answer.reasons,
            )
            assert (answer.needs is None) == (quantiles_s is not None)
    running = [{"context": {"host": "known"}, "phase": "service", "elapsed_s": 1.0}, {"attempt_id": "b", "phase": "service"}]
    for found in both(Flaky(*[503] * 9), lambda c: c.residual(running, [0.5]), fallback=Fallback(guess)):
        assert [[6.0], None] == [a.quantiles_s for a in found.answers]
        assert [1.0, None] == [a.elapsed_s for a in found.answers]


def test_an_api_that_failed_is_left_alone_for_a_while() -> None:
    api, fallback = Flaky(*[503] * 99), Fallback(rest_s=60)
    both(api, ASK, fallback=fallback)
    assert 3 == api.calls, "one question is tried, and then none"
    assert ["api_away", "no_evidence"] == both(api, ASK, fallback=fallback)[1].answers[0].reasons
    fallback = Fallback(rest_s=0.0)
    both(api, ASK, fallback=fallback)
    assert 9 == api.calls


def test_a_refusal_is_no_absence() -> None:
    problem = {
        "type": "urn:phasecast:problem:bad-field",
        "title": "",
        "detail": "",
        "field": "f",
        "got": "g",
        "fix": "x",
        "status": 422,
    }
    http = httpx.Client(
        base_url="http://127.0.0.1", transport=httpx.MockTransport(lambda _asked: httpx.Response(422, json=problem))
    )
    with pytest.raises(BadField):
        Client(http, fallback=Fallback()).predict([{}], ["service"])


def test_memory_of_a_fallback_is_bounded() -> None:
    fallback, answer = Fallback(most=2), {"answers": []}
    with httpx.Client(base_url="http://127.0.0.1", transport=httpx.MockTransport(Flaky())) as http:
        assert AnswersOut.model_validate(answer) == Client(http, fallback=fallback).predict([], [])
    kept = fallback.predict([{}], ["service"], [0.5], None, NotReached("api", "", "")).answers[0]
    full = kept.model_copy(update={"quantiles_s": [1.0]})
    for host in ("a", "b", "c"):
        fallback.note([{"host": host}], ["service"], AnswersOut(answers=[full]))
    found = [fallback.predict([{"host": h}], ["service"], [0.5], None, NotReached("api", "", "")).answers[0] for h in "abc"]
    assert [None, [1.0], [1.0]] == [one.quantiles_s for one in found]


def test_errors_a_fallback_answers_for_are_those_of_absence() -> None:
    assert {"NotReached", "Busy", "TooMany"} == {kind.__name__ for kind in sync.AWAY}
