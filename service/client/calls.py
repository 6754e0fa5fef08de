"""What to send, how to read it and whether to send it again, without I/O: shared by every client."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import orjson
from pydantic import BaseModel

from service.schemas import Problem
from telemetry.errors import NotReached, PhasecastError

A = TypeVar("A", bound=BaseModel)
PASSING = frozenset({429, 503})
"""Statuses of trouble that passes by itself. A full disk (507) does not."""


@dataclass(frozen=True)
class Call:
    """One HTTP call. One that is not `repeatable` may have done its work although no answer came."""

    method: str
    path: str
    body: bytes | None = None
    repeatable: bool = True


@dataclass(frozen=True)
class Retry:
    """How often a call is sent again, and after what pauses: doubled each time, up to `longest_s`."""

    times: int = 2
    first_s: float = 0.05
    longest_s: float = 1.0


def pause_s(retry: Retry, call: Call, tried: int, status: int | None = None, retry_after: str | None = None) -> float | None:
    """Seconds until a call that has been tried `tried` times is sent again; None if it is not.

    `status` is that of the answer, None where none came; `retry_after` its header. A server that wants a longer rest than
    `longest_s` is left alone: whoever waits in the path of a decision would rather hear that.
    """
    if not call.repeatable or tried > retry.times or (status is not None and status not in PASSING):
        return None
    asked_s = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
    if asked_s > retry.longest_s:
        return None
    backed_off_s = min(retry.longest_s, retry.first_s * 2.0 ** (tried - 1))
    return max(asked_s, backed_off_s * random.uniform(0.5, 1.0))  # callers that failed together should not come back together


def predict(
    contexts: Sequence[Mapping[str, Any]],
    phases: Sequence[str],
    levels: Sequence[float] | None = None,
    attempt_ids: Sequence[str] | None = None,
    horizon_s: float | None = None,
) -> Call:
    """Ask how long each phase of each context will take, and with a horizon how it ends by then."""
    body: dict[str, Any] = {"contexts": list(contexts), "phases": list(phases)}
    if levels is not None:
        body["levels"] = list(levels)
    if attempt_ids is not None:
        body["attempt_ids"] = list(attempt_ids)
    if horizon_s is not None:
        body["horizon_s"] = horizon_s
    return Call("POST", "/v1/predict", orjson.dumps(body))


def residual(running: Sequence[Mapping[str, Any]], levels: Sequence[float] | None = None) -> Call:
    """Ask how much longer running phases will take."""
    body: dict[str, Any] = {"running": list(running)}
    if levels is not None:
        body["levels"] = list(levels)
    return Call("POST", "/v1/residual", orjson.dumps(body))


def chance(plans: Sequence[Mapping[str, Any]], seed: int = 0, cvar_level: float | None = None) -> Call:
    """Ask with what probability plans complete by their deadlines."""
    body = {"plans": list(plans), "seed": seed} | ({} if cvar_level is None else {"cvar_level": cvar_level})
    return Call("POST", "/v1/chance", orjson.dumps(body))


def latest_start(questions: Sequence[Mapping[str, Any]], seed: int = 0) -> Call:
    """Ask when loads must start at the latest."""
    return Call("POST", "/v1/latest-start", orjson.dumps({"questions": list(questions), "seed": seed}))


def scenarios(attempts: Sequence[Mapping[str, Any]], n_scenarios: int, seed: int = 0) -> Call:
    """Ask for joint draws of setup and service."""
    body = {"attempts": list(attempts), "n_scenarios": n_scenarios, "seed": seed}
    return Call("POST", "/v1/scenarios", orjson.dumps(body))


def ingest(attempts: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> Call:
    """Send attempts and events."""
    return Call("POST", "/v1/events", orjson.dumps({"attempts": list(attempts), "events": list(events)}))


def traces(spans: Mapping[str, Any]) -> Call:
    """Send spans as an ExportTraceServiceRequest of OTLP."""
    return Call("POST", "/v1/traces", orjson.dumps(spans))


def profile(host: str) -> Call:
    """Ask for the newest measured profile of a host."""
    return Call("GET", f"/v1/hosts/{quote(host, safe='')}/profile")


def changes(host: str, before: str | None = None, after: str | None = None) -> Call:
    """Ask what differs between two profiles of a host."""
    asked = urlencode({name: value for name, value in (("before", before), ("after", after)) if value is not None})
    return Call("GET", f"/v1/hosts/{quote(host, safe='')}/changes" + (f"?{asked}" if asked else ""))


def give_grant(terms: Mapping[str, Any]) -> Call:
    """Permit measuring; `terms` as in GrantIn."""
    return Call("POST", "/v1/grants", orjson.dumps(dict(terms)), repeatable=False)


def withdraw_grant(grant_id: str) -> Call:
    """Ask to end a grant."""
    return Call("DELETE", f"/v1/grants/{quote(grant_id, safe='')}")


def calibrate(asked: Mapping[str, Any]) -> Call:
    """Measure the API's own host; `asked` as in CalibrationIn."""
    return Call("POST", "/v1/calibrations", orjson.dumps(dict(asked)), repeatable=False)


def calibration(run_id: str) -> Call:
    """Ask how far a run of probes has come."""
    return Call("GET", f"/v1/calibrations/{quote(run_id, safe='')}")


def stop_calibration(run_id: str) -> Call:
    """Ask to stop a run of probes."""
    return Call("DELETE", f"/v1/calibrations/{quote(run_id, safe='')}")


def report(part: str = "", newest: int | None = None) -> Call:
    """Ask for a part of the report on the newest answers, such as /coverage; for all of it where none is named."""
    return Call("GET", f"/v1/reports{part}" + (f"?newest={newest}" if newest is not None else ""))


def add_token(name: str, scopes: Sequence[str], expires_in_s: float | None = None) -> Call:
    """Ask for a new token."""
    body = {"name": name, "scopes": list(scopes)} | ({} if expires_in_s is None else {"expires_in_s": expires_in_s})
    return Call("POST", "/v1/tokens", orjson.dumps(body), repeatable=False)


def revoke_token(token_id: str) -> Call:
    """Ask to end a token."""
    return Call("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")


def log_decisions(decisions: Sequence[Mapping[str, Any]]) -> Call:
    """Send choices made, with all they could have been."""
    return Call("POST", "/v1/decisions", orjson.dumps({"decisions": list(decisions)}))


def advice(decision: Mapping[str, Any]) -> Call:
    """Ask whether to try another alternative; `decision` as in AdviceIn. It is paid for each time it is asked."""
    return Call("POST", "/v1/decisions/advice", orjson.dumps(dict(decision)), repeatable=False)


def policy(within_s: float, always: str | None, phase: str) -> Call:
    """Ask what another policy would have met."""
    asked = {"phase": phase, "within_s": within_s} | ({} if always is None else {"always": always})
    return Call("GET", f"/v1/reports/policies?{urlencode(asked)}")


def shadow_forecasts(forecasts: Sequence[Mapping[str, Any]]) -> Call:
    """Send forecasts of another predictor, to be scored beside the answers."""
    return Call("POST", "/v1/shadow/forecasts", orjson.dumps({"forecasts": list(forecasts)}))


def shadow(newest: int | None = None) -> Call:
    """Ask how other predictors compare with what was served."""
    return Call("GET", "/v1/reports/shadow" + (f"?newest={newest}" if newest is not None else ""))


def promote(decision: Mapping[str, Any]) -> Call:
    """Decide who answers; `decision` as in PromotionIn."""
    return Call("POST", "/v1/promotions", orjson.dumps(dict(decision)), repeatable=False)


def withdraw_promotion(change_id: str, reason: str) -> Call:
    """Withdraw such a decision."""
    return Call("DELETE", f"/v1/promotions/{quote(change_id, safe='')}?{urlencode({'reason': reason})}")


def freeze(cohort: Mapping[str, Any]) -> Call:
    """Freeze forecasts before outcomes exist; `cohort` as in CohortIn."""
    return Call("POST", "/v1/forecasts", orjson.dumps(dict(cohort)), repeatable=False)


def seal(population: Mapping[str, Any]) -> Call:
    """Seal a population before tuning; `population` as in PopulationIn."""
    return Call("POST", "/v1/forecasts/populations", orjson.dumps(dict(population)), repeatable=False)


def frozen(forecast_id: str) -> Call:
    """Ask for what was frozen."""
    return Call("GET", f"/v1/forecasts/{quote(forecast_id, safe='')}")


def score(forecast_id: str, given: Mapping[str, Any]) -> Call:
    """Score what was frozen; `given` as in ScoreIn. A locked part is opened once."""
    return Call("POST", f"/v1/forecasts/{quote(forecast_id, safe='')}/score", orjson.dumps(dict(given)), repeatable=False)


READY = Call("GET", "/readyz", repeatable=False)  # its 503 is an answer
HEALTH = Call("GET", "/healthz")
METRICS = Call("GET", "/metrics")
SNAPSHOT = Call("GET", "/v1/snapshot", repeatable=False)
OVERVIEW = Call("GET", "/v1/overview")
CONTEXTS = Call("GET", "/v1/contexts")
RUNNING = Call("GET", "/v1/running")
HOSTS = Call("GET", "/v1/hosts")
TOKENS = Call("GET", "/v1/tokens")
GRANTS = Call("GET", "/v1/grants")
CALIBRATIONS = Call("GET", "/v1/calibrations")


def _kinds(above: type[PhasecastError]) -> Iterator[tuple[str, type[PhasecastError]]]:
    """Every error of the tree by the name its problem document has."""
    for kind in above.__subclasses__():
        yield re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower(), kind
        yield from _kinds(kind)


_BY_NAME = dict(_kinds(PhasecastError))


def refused(status: int, body: bytes) -> PhasecastError:
    """The error a problem document stands for."""
    try:
        told = Problem.model_validate_json(body)
    except ValueError:
        return NotReached("api", f"status {status}", "this is not a Phasecast API; check the address")
    return _BY_NAME.get(told.type.rsplit(":", 1)[-1], PhasecastError)(told.field, told.got, told.fix)


def answer(kind: type[A], status: int, body: bytes) -> A:
    """An answer of the given form."""
    if status != 200:
        raise refused(status, body)
    return kind.model_validate_json(body)


def document(status: int, body: bytes) -> dict[str, Any]:
    """Any other JSON answer."""
    if status != 200:
        raise refused(status, body)
    found: dict[str, Any] = orjson.loads(body)
    return found


def text(status: int, body: bytes) -> str:
    """An answer that is plain text."""
    if status != 200:
        raise refused(status, body)
    return body.decode()
