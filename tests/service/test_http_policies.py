"""Other policies judged over HTTP by logged decisions whose attempts ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.client.sync import Client, http_client
from service.http.routes.decisions import ADVICE
from tests.service.living import Served, until

N, NORTH_S, SOUTH_S = 400, 1.0, 2.0
START_NS = 1_800_000_000_000_000_000


def alternatives(choice: str, south: float) -> list[dict[str, Any]]:
    """Two hosts; `south` is the probability of the second."""
    marks = {"resource_safe": True, "permitted": True}
    return [
        {"name": "north", "propensity": 1.0 - south, "expected": 1.1, **marks},
        {"name": "south", "propensity": south, "expected": 1.9, **marks},
    ]


def lived(k: int, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """A decision, the attempt that followed, and its events; every fifth is cancelled on its way."""
    choice = "south" if rng.random() < 0.3 else "north"
    took_s = rng.exponential(SOUTH_S if choice == "south" else NORTH_S)
    cut = k % 5 == 0
    length_ns = round((took_s * rng.random() if cut else took_s) * 1e9)
    decision = {
        "decision_id": f"d-{k}",
        "decided_ns": START_NS,
        "run_id": f"r-{k // 8}",
        "policy": "coin-1",
        "choice": choice,
        "alternatives": alternatives(choice, 0.3),
    }
    kinds = [("compute_start", 0), ("cancelled" if cut else "compute_finish", length_ns)]
    events = [
        {
            "event_id": f"{k}/{kind}",
            "attempt_id": f"a-{k}",
            "kind": kind,
            "wall_ns": START_NS + at_ns,
            "monotonic_ns": at_ns,
            "clock_id": f"c-{k}",
            "source": "test",
        }
        for kind, at_ns in kinds
    ]
    return decision, {"attempt_id": f"a-{k}", "decision_id": f"d-{k}", "host": choice}, events


@pytest.fixture(scope="module")
def api(start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server that knows the decisions and what became of them."""
    served: Served = start_server(Path(tmp_path_factory.mktemp("policies")) / "s.duckdb")
    rng = np.random.default_rng(8)
    found = [lived(k, rng) for k in range(N)]
    with http_client(served.url, timeout_s=30) as http:
        assert judged(http, within_s=3.0)["refused"][0].startswith("nothing is logged")
        http.post("/v1/decisions", json={"decisions": [decision for decision, _, _ in found]}).raise_for_status()
        body = {"attempts": [attempt for _, attempt, _ in found], "events": [one for _, _, events in found for one in events]}
        http.post("/v1/events", json=body).raise_for_status()
        until(lambda: judged(http, within_s=5.0)["seen"] >= 0.8 * N)
        yield http


def judged(http: httpx.Client, **asked: Any) -> dict[str, Any]:
    answer = http.get("/v1/reports/policies", params={"phase": "service", **asked})
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(("name", "mean_s"), [("north", NORTH_S), ("south", SOUTH_S)])
def test_what_an_alternative_would_have_met_is_told_with_its_interval(api: httpx.Client, name: str, mean_s: float) -> None:
    found = judged(api, always=name, within_s=5.0)
    truth_s = mean_s * (1.0 - np.exp(-5.0 / mean_s))
    assert [] == found["refused"]
    assert found["doubly_robust"]["low"] <= truth_s <= found["doubly_robust"]["high"]
    assert (N, N // 8) == (found["decisions"], found["runs"])
    assert "is not covered" in found["not_covered"]


def test_the_policy_of_least_expected_time_takes_north(api: httpx.Client) -> None:
    assert judged(api, always="north", within_s=5.0) == judged(api, within_s=5.0)


def test_without_support_it_is_refused_with_the_reason(api: httpx.Client) -> None:
    never = {
        "decision_id": "d-west",
        "decided_ns": START_NS,
        "policy": "coin-1",
        "choice": "north",
        "alternatives": [
            *alternatives("north", 0.0),
            {"name": "west", "propensity": 0, "expected": 1, "resource_safe": True, "permitted": True},
        ],
    }
    api.post("/v1/decisions", json={"decisions": [never]}).raise_for_status()
    found = judged(api, always="west", within_s=5.0, newest=1)
    assert (None, 1.0) == (found["doubly_robust"], found["unlogged"])
    assert found["refused"][0].startswith("no support: 100.0%")


def test_advice_is_paid_from_an_account_and_its_draw_is_its_own(api: httpx.Client) -> None:
    first = Client(api).advice(ADVICE)
    assert {"split": "resource_safety_unmarked"} == first.excluded
    assert first.propensities["south"] == pytest.approx(0.001 / 0.03)
    assert (pytest.approx(0.001), pytest.approx(0.0)) == (first.extra_misses, first.balance)
    assert first.choice == Client(api).advice(ADVICE).choice, "the same decision draws the same"
    kept = Client(api).advice({**ADVICE, "protected": True})
    assert ("north", 0.0, ["protected_deadline"]) == (kept.choice, kept.extra_misses, kept.reasons)
    assert pytest.approx(0.001) == kept.balance, "what was not spent is saved"
    assert 0.0 == Client(api).advice({**ADVICE, "account": "planner-2", "protected": True}).extra_misses


def test_an_ordinary_choice_that_is_no_alternative_is_refused(api: httpx.Client) -> None:
    answer = api.post("/v1/decisions/advice", json={**ADVICE, "ordinary": "nowhere"})
    assert (422, "alternatives") == (answer.status_code, answer.json()["field"])
