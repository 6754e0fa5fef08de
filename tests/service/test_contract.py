"""The API against its own description: sense or nonsense, all is answered as `/openapi.json` says, and no fault comes out."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core import NotSet
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from predictors.synthetic import runs
from service.client.sync import Client, http_client
from tests.service.living import Served, until

KEPT = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
LEFT_OUT = {("GET", "/v1/snapshot")}
"""Copies the store each time."""
REPORTS_AT_MOST = 300
"""Sensible requests for each report: it goes through the whole ledger, which has grown long by then."""


@pytest.fixture(scope="module")
def learned(start_server: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server of its own, which nonsense may be sent to."""
    served = start_server(tmp_path_factory.mktemp("contract") / "store.duckdb")
    with http_client(served.url, timeout_s=30) as http:
        made = runs(40, seed=7)
        attempts = [run.attempt.model_dump(exclude_none=True) for run in made]
        events = [event.model_dump(exclude_none=True) for run in made for event in run.events]
        Client(http).ingest(attempts, events)
        until(lambda: Client(http).ready()["ready"])
    return served


def operations(url: str) -> Iterator[Any]:
    """Calls of the description."""
    described = schemathesis.openapi.from_dict(httpx.get(f"{url}/openapi.json").json())
    for found in described.get_all_operations():
        operation = found.ok()
        if (operation.method.upper(), operation.path) not in LEFT_OUT:
            yield operation


def about_what_is_known(body: Any) -> Any:
    """The same question about phases the server has learned, so that half of the sensible ones get numbers."""
    if isinstance(body, dict):
        known = {"phases": ["setup", "service"], "phase": "service"}
        return {name: known[name] if name in known else about_what_is_known(value) for name, value in body.items()}
    return [about_what_is_known(one) for one in body] if isinstance(body, list) else body


def sent(learned: Served, mode: GenerationMode, examples: int) -> collections.Counter[int]:
    """Send so many generated requests to each call and hold the answers to the description; how often each status came."""
    statuses: collections.Counter[int] = collections.Counter()
    for operation in operations(learned.url):
        long = mode is GenerationMode.POSITIVE and operation.path.startswith("/v1/reports")

        @settings(
            max_examples=min(examples, REPORTS_AT_MOST) if long else examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(mode), known=st.booleans())
        def send(case: Case, *, known: bool) -> None:
            if known and mode is GenerationMode.POSITIVE and not isinstance(case.body, NotSet):
                case.body = about_what_is_known(case.body)
            answer = case.call(base_url=learned.url)
            case.validate_response(answer, checks=KEPT)
            assert "Traceback" not in answer.text
            statuses[answer.status_code] += 1

        with contextlib.suppress(Unsatisfiable):  # a call without a body or parameters can't be sent wrongly
            send()
    assert learned.process.poll() is None
    named_nothing = statuses[403] + statuses[404]  # ids made up here are those of nothing, however well they are sent
    assert statuses[200 if mode is GenerationMode.POSITIVE else 422] > (sum(statuses.values()) - named_nothing) / 3, statuses
    return statuses


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_whatever_is_sent_is_answered_as_described(learned: Served, mode: GenerationMode) -> None:
    sent(learned, mode, examples=6)


@pytest.mark.soak
def test_fifty_thousand_requests_are_answered_as_described(learned: Served) -> None:
    found = {mode.value: sent(learned, mode, examples=1_050) for mode in GenerationMode}
    for name, statuses in found.items():
        print(f"\n{name}: {sum(statuses.values())} requests answered: {dict(statuses)}")  # noqa: T201  the figures a soak is run for
    assert sum(sum(statuses.values()) for statuses in found.values()) > 50_000
