"""The blocking client: a thin shell around `calls` that takes its HTTP client as an argument."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from service.client import calls
from service.client.fallback import Fallback
from service.frozen_schemas import FrozenOut, ScoreOut
from service.host_schemas import CalibrationOut, CalibrationsOut, ChangesOut, GrantsOut
from service.plan_schemas import ChancesOut, LatestStartsOut, ScenariosOut
from service.readings import ContextsOut, GrantOut, HostsOut, OverviewOut, ProfileOut, RunningOut
from service.report_schemas import CoverageOut, DriftOut, ReportOut, SharpnessOut, SupportReportOut
from service.schemas import AnswersOut
from service.shadow_schemas import AdviceOut, LoggedOut, PolicyOut, PromotionOut, ShadowOut
from service.token_schemas import TokenMadeOut, TokenOut, TokensOut
from telemetry.errors import Busy, NotReached, TooMany

TIMEOUT_S = 5.0
AWAY = (NotReached, Busy, TooMany)
"""Errors on which a fallback answers: the API can't be reached, or has no time for us."""


def http_client(url: str, timeout_s: float = TIMEOUT_S, token: str | None = None) -> httpx.Client:
    """An HTTP client of one API: no proxy stands between a process and its own machine."""
    return httpx.Client(base_url=url, timeout=timeout_s, trust_env=False, headers=authorization(token))


def authorization(token: str | None) -> dict[str, str]:
    """The header that shows a token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class Client:
    """Calls of the API; every refusal is raised as the error it stands for, after as many tries as `retry` says.

    Where the API is away, `predict` and `residual` are answered by `fallback`, if there is one.
    """

    def __init__(self, http: httpx.Client, retry: calls.Retry = calls.Retry(), fallback: Fallback | None = None) -> None:  # noqa: B008  frozen
        self._http, self._retry, self._fallback = http, retry, fallback

    def predict(
        self,
        contexts: Sequence[Mapping[str, Any]],
        phases: Sequence[str],
        levels: Sequence[float] | None = None,
        attempt_ids: Sequence[str] | None = None,
        horizon_s: float | None = None,
    ) -> AnswersOut:
        """Answer contexts x phases; with a horizon also how each ends by then."""
        fallback = self._fallback
        if fallback is not None and (resting := fallback.resting()):
            return fallback.predict(contexts, phases, levels, attempt_ids, resting)
        try:
            told = calls.answer(AnswersOut, *self._send(calls.predict(contexts, phases, levels, attempt_ids, horizon_s)))
        except AWAY as error:
            if fallback is None:
                raise
            return fallback.predict(contexts, phases, levels, attempt_ids, fallback.failed(error))
        if fallback is not None:
            fallback.note(contexts, phases, told)
        return told

    def residual(self, running: Sequence[Mapping[str, Any]], levels: Sequence[float] | None = None) -> AnswersOut:
        """Answer how much longer running phases will take."""
        fallback = self._fallback
        if fallback is not None and (resting := fallback.resting()):
            return fallback.residual(running, levels, resting)
        try:
            return calls.answer(AnswersOut, *self._send(calls.residual(running, levels)))
        except AWAY as error:
            if fallback is None:
                raise
            return fallback.residual(running, levels, fallback.failed(error))

    def chance(self, plans: Sequence[Mapping[str, Any]], seed: int = 0, cvar_level: float | None = None) -> ChancesOut:
        """Answer with what probability plans complete by their deadlines."""
        return calls.answer(ChancesOut, *self._send(calls.chance(plans, seed, cvar_level)))

    def latest_start(self, questions: Sequence[Mapping[str, Any]], seed: int = 0) -> LatestStartsOut:
        """Answer when loads must start at the latest."""
        return calls.answer(LatestStartsOut, *self._send(calls.latest_start(questions, seed)))

    def scenarios(self, attempts: Sequence[Mapping[str, Any]], n_scenarios: int, seed: int = 0) -> ScenariosOut:
        """Draw setup and service of attempts together."""
        return calls.answer(ScenariosOut, *self._send(calls.scenarios(attempts, n_scenarios, seed)))

    def ingest(self, attempts: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Commit attempts and events; returns the result of each."""
        return calls.document(*self._send(calls.ingest(attempts, events)))

    def traces(self, spans: Mapping[str, Any]) -> dict[str, Any]:
        """Commit spans of OTLP; returns what was not taken."""
        return calls.document(*self._send(calls.traces(spans)))

    def overview(self) -> OverviewOut:
        """How far the service has come."""
        return calls.answer(OverviewOut, *self._send(calls.OVERVIEW))

    def contexts(self) -> ContextsOut:
        """Contexts of recent work."""
        return calls.answer(ContextsOut, *self._send(calls.CONTEXTS))

    def running(self) -> RunningOut:
        """What runs now."""
        return calls.answer(RunningOut, *self._send(calls.RUNNING))

    def hosts(self) -> HostsOut:
        """Hosts that work ran on, or that were measured."""
        return calls.answer(HostsOut, *self._send(calls.HOSTS))

    def profile(self, host: str) -> ProfileOut:
        """The newest measured profile of a host."""
        return calls.answer(ProfileOut, *self._send(calls.profile(host)))

    def changes(self, host: str, before: str | None = None, after: str | None = None) -> ChangesOut:
        """What differs between two profiles of a host, in words."""
        return calls.answer(ChangesOut, *self._send(calls.changes(host, before, after)))

    def grants(self) -> GrantsOut:
        """Grants there are."""
        return calls.answer(GrantsOut, *self._send(calls.GRANTS))

    def give_grant(self, terms: Mapping[str, Any]) -> GrantOut:
        """Permit measuring a host."""
        return calls.answer(GrantOut, *self._send(calls.give_grant(terms)))

    def withdraw_grant(self, grant_id: str) -> GrantOut:
        """End a grant at once; what runs under it is stopped."""
        return calls.answer(GrantOut, *self._send(calls.withdraw_grant(grant_id)))

    def calibrate(self, asked: Mapping[str, Any]) -> CalibrationOut:
        """Measure the API's own host under a grant, or tell what that would be."""
        return calls.answer(CalibrationOut, *self._send(calls.calibrate(asked)))

    def calibrations(self) -> CalibrationsOut:
        """Runs of probes since the API started."""
        return calls.answer(CalibrationsOut, *self._send(calls.CALIBRATIONS))

    def calibration(self, run_id: str) -> CalibrationOut:
        """How far a run of probes has come."""
        return calls.answer(CalibrationOut, *self._send(calls.calibration(run_id)))

    def stop_calibration(self, run_id: str) -> CalibrationOut:
        """Have a run of probes stopped within a second."""
        return calls.answer(CalibrationOut, *self._send(calls.stop_calibration(run_id)))

    def log_decisions(self, decisions: Sequence[Mapping[str, Any]]) -> LoggedOut:
        """Log choices made, with all they could have been."""
        return calls.answer(LoggedOut, *self._send(calls.log_decisions(decisions)))

    def advice(self, decision: Mapping[str, Any]) -> AdviceOut:
        """Advise whether to try another alternative than the ordinary one."""
        return calls.answer(AdviceOut, *self._send(calls.advice(decision)))

    def policy(self, within_s: float, always: str | None = None, phase: str = "completion") -> PolicyOut:
        """What another policy would have met: one that always takes an alternative, or takes the one expected first."""
        return calls.answer(PolicyOut, *self._send(calls.policy(within_s, always, phase)))

    def shadow_forecasts(self, forecasts: Sequence[Mapping[str, Any]]) -> LoggedOut:
        """Hand in forecasts of another predictor, to be scored beside the answers."""
        return calls.answer(LoggedOut, *self._send(calls.shadow_forecasts(forecasts)))

    def shadow(self, newest: int | None = None) -> ShadowOut:
        """How other predictors compare with what was served."""
        return calls.answer(ShadowOut, *self._send(calls.shadow(newest)))

    def promote(self, decision: Mapping[str, Any]) -> PromotionOut:
        """Decide who answers."""
        return calls.answer(PromotionOut, *self._send(calls.promote(decision)))

    def withdraw_promotion(self, change_id: str, reason: str) -> PromotionOut:
        """Withdraw such a decision."""
        return calls.answer(PromotionOut, *self._send(calls.withdraw_promotion(change_id, reason)))

    def freeze(self, cohort: Mapping[str, Any]) -> FrozenOut:
        """Freeze forecasts before outcomes exist."""
        return calls.answer(FrozenOut, *self._send(calls.freeze(cohort)))

    def seal(self, population: Mapping[str, Any]) -> FrozenOut:
        """Seal a population before tuning."""
        return calls.answer(FrozenOut, *self._send(calls.seal(population)))

    def frozen(self, forecast_id: str) -> FrozenOut:
        """What was frozen, to the byte."""
        return calls.answer(FrozenOut, *self._send(calls.frozen(forecast_id)))

    def score(self, forecast_id: str, given: Mapping[str, Any]) -> ScoreOut:
        """Score what was frozen."""
        return calls.answer(ScoreOut, *self._send(calls.score(forecast_id, given)))

    def report(self, newest: int | None = None) -> ReportOut:
        """All reports on the newest answers, as of one commit."""
        return calls.answer(ReportOut, *self._send(calls.report("", newest)))

    def coverage(self, newest: int | None = None) -> CoverageOut:
        """Whether the newest answers came true."""
        return calls.answer(CoverageOut, *self._send(calls.report("/coverage", newest)))

    def sharpness(self, newest: int | None = None) -> SharpnessOut:
        """How narrow they were, and how well they scored beside simple forecasts."""
        return calls.answer(SharpnessOut, *self._send(calls.report("/sharpness", newest)))

    def support(self, newest: int | None = None) -> SupportReportOut:
        """What the newest answers rested on."""
        return calls.answer(SupportReportOut, *self._send(calls.report("/support", newest)))

    def drift(self) -> DriftOut:
        """Drift that was found and what followed, and what differs between profiles of a host."""
        return calls.answer(DriftOut, *self._send(calls.report("/drift")))

    def tokens(self) -> TokensOut:
        """Tokens there are."""
        return calls.answer(TokensOut, *self._send(calls.TOKENS))

    def add_token(self, name: str, scopes: Sequence[str], expires_in_s: float | None = None) -> TokenMadeOut:
        """Make a token; its text is in this answer alone."""
        return calls.answer(TokenMadeOut, *self._send(calls.add_token(name, scopes, expires_in_s)))

    def revoke_token(self, token_id: str) -> TokenOut:
        """End a token at once."""
        return calls.answer(TokenOut, *self._send(calls.revoke_token(token_id)))

    def alive(self) -> bool:
        """Whether the process answers."""
        return bool(calls.document(*self._send(calls.HEALTH)))

    def ready(self) -> dict[str, Any]:
        """What /readyz tells, whether or not it is ready."""
        status, body = self._send(calls.READY)
        return calls.document(200 if status == 503 else status, body)

    def metrics(self) -> str:
        """Counts, times and state in the text format of Prometheus."""
        return calls.text(*self._send(calls.METRICS))

    def snapshot(self, target: Path) -> int:
        """Write a copy of the store to `target`, whole or not at all; returns the commit it is consistent at."""
        part = target.with_name(target.name + ".part")
        try:
            with self._http.stream(calls.SNAPSHOT.method, calls.SNAPSHOT.path, timeout=None) as answer:
                if answer.status_code != 200:
                    raise calls.refused(answer.status_code, answer.read())
                with part.open("xb") as out:
                    for chunk in answer.iter_bytes():
                        out.write(chunk)
                target.hardlink_to(part)  # unlike a rename, this never takes the place of a file made meanwhile
                return int(answer.headers["X-Phasecast-Commit"])
        except httpx.HTTPError as error:
            raise away(self._http.base_url, error) from error
        finally:
            part.unlink(missing_ok=True)

    def _send(self, call: calls.Call) -> tuple[int, bytes]:
        """Status and body, after as many tries as it takes."""
        for tried in range(1, self._retry.times + 2):
            try:
                answer = self._http.request(call.method, call.path, content=call.body, headers=headers_of(call))
            except httpx.HTTPError as error:
                pause_s = calls.pause_s(self._retry, call, tried)
                if pause_s is None:
                    raise away(self._http.base_url, error) from error
            else:
                pause_s = calls.pause_s(self._retry, call, tried, answer.status_code, answer.headers.get("retry-after"))
                if pause_s is None:
                    return answer.status_code, answer.content
            time.sleep(pause_s)
        raise AssertionError("the last try always returns or raises")


def headers_of(call: calls.Call) -> dict[str, str]:
    """Headers of a call."""
    return {"content-type": "application/json"} if call.body is not None else {}


def away(base_url: httpx.URL, error: httpx.HTTPError) -> NotReached:
    """The error of an API that does not answer."""
    told = str(error) or type(error).__name__
    return NotReached("api", f"{base_url}: {told}", "is `phasecast serve` running there?")
