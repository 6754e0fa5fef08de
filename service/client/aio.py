"""The client for asyncio: the same thin shell as `sync`, awaited. A copy of the store is fetched by the blocking one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from service.client import calls
from service.client.fallback import Fallback
from service.client.sync import AWAY, TIMEOUT_S, authorization, away, headers_of
from service.frozen_schemas import FrozenOut, ScoreOut
from service.host_schemas import CalibrationOut, CalibrationsOut, ChangesOut, GrantsOut
from service.plan_schemas import ChancesOut, LatestStartsOut, ScenariosOut
from service.readings import ContextsOut, GrantOut, HostsOut, OverviewOut, ProfileOut, RunningOut
from service.report_schemas import CoverageOut, DriftOut, ReportOut, SharpnessOut, SupportReportOut
from service.schemas import AnswersOut
from service.shadow_schemas import AdviceOut, LoggedOut, PolicyOut, PromotionOut, ShadowOut
from service.token_schemas import TokenMadeOut, TokenOut, TokensOut


def async_http_client(url: str, timeout_s: float = TIMEOUT_S, token: str | None = None) -> httpx.AsyncClient:
    """An HTTP client of one API, without a proxy in between."""
    return httpx.AsyncClient(base_url=url, timeout=timeout_s, trust_env=False, headers=authorization(token))


class AsyncClient:
    """The same calls for asyncio; every refusal is raised as the error it stands for, after as many tries as `retry` says.

    Where the API is away, `predict` and `residual` are answered by `fallback`, if there is one.
    """

    def __init__(self, http: httpx.AsyncClient, retry: calls.Retry = calls.Retry(), fallback: Fallback | None = None) -> None:  # noqa: B008  frozen
        self._http, self._retry, self._fallback = http, retry, fallback

    async def predict(
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
            told = calls.answer(AnswersOut, *await self._send(calls.predict(contexts, phases, levels, attempt_ids, horizon_s)))
        except AWAY as error:
            if fallback is None:
                raise
            return fallback.predict(contexts, phases, levels, attempt_ids, fallback.failed(error))
        if fallback is not None:
            fallback.note(contexts, phases, told)
        return told

    async def residual(self, running: Sequence[Mapping[str, Any]], levels: Sequence[float] | None = None) -> AnswersOut:
        """Answer how much longer running phases will take."""
        fallback = self._fallback
        if fallback is not None and (resting := fallback.resting()):
            return fallback.residual(running, levels, resting)
        try:
            return calls.answer(AnswersOut, *await self._send(calls.residual(running, levels)))
        except AWAY as error:
            if fallback is None:
                raise
            return fallback.residual(running, levels, fallback.failed(error))

    async def chance(self, plans: Sequence[Mapping[str, Any]], seed: int = 0, cvar_level: float | None = None) -> ChancesOut:
        """Answer with what probability plans complete by their deadlines."""
        return calls.answer(ChancesOut, *await self._send(calls.chance(plans, seed, cvar_level)))

    async def latest_start(self, questions: Sequence[Mapping[str, Any]], seed: int = 0) -> LatestStartsOut:
        """Answer when loads must start at the latest."""
        return calls.answer(LatestStartsOut, *await self._send(calls.latest_start(questions, seed)))

    async def scenarios(self, attempts: Sequence[Mapping[str, Any]], n_scenarios: int, seed: int = 0) -> ScenariosOut:
        """Draw setup and service of attempts together."""
        return calls.answer(ScenariosOut, *await self._send(calls.scenarios(attempts, n_scenarios, seed)))

    async def ingest(self, attempts: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Commit attempts and events; returns the result of each."""
        return calls.document(*await self._send(calls.ingest(attempts, events)))

    async def traces(self, spans: Mapping[str, Any]) -> dict[str, Any]:
        """Commit spans of OTLP; returns what was not taken."""
        return calls.document(*await self._send(calls.traces(spans)))

    async def overview(self) -> OverviewOut:
        """How far the service has come."""
        return calls.answer(OverviewOut, *await self._send(calls.OVERVIEW))

    async def contexts(self) -> ContextsOut:
        """Contexts of recent work."""
        return calls.answer(ContextsOut, *await self._send(calls.CONTEXTS))

    async def running(self) -> RunningOut:
        """What runs now."""
        return calls.answer(RunningOut, *await self._send(calls.RUNNING))

    async def hosts(self) -> HostsOut:
        """Hosts that work ran on, or that were measured."""
        return calls.answer(HostsOut, *await self._send(calls.HOSTS))

    async def profile(self, host: str) -> ProfileOut:
        """The newest measured profile of a host."""
        return calls.answer(ProfileOut, *await self._send(calls.profile(host)))

    async def changes(self, host: str, before: str | None = None, after: str | None = None) -> ChangesOut:
        """What differs between two profiles of a host, in words."""
        return calls.answer(ChangesOut, *await self._send(calls.changes(host, before, after)))

    async def grants(self) -> GrantsOut:
        """Grants there are."""
        return calls.answer(GrantsOut, *await self._send(calls.GRANTS))

    async def give_grant(self, terms: Mapping[str, Any]) -> GrantOut:
        """Permit measuring a host."""
        return calls.answer(GrantOut, *await self._send(calls.give_grant(terms)))

    async def withdraw_grant(self, grant_id: str) -> GrantOut:
        """End a grant at once; what runs under it is stopped."""
        return calls.answer(GrantOut, *await self._send(calls.withdraw_grant(grant_id)))

    async def calibrate(self, asked: Mapping[str, Any]) -> CalibrationOut:
        """Measure the API's own host under a grant, or tell what that would be."""
        return calls.answer(CalibrationOut, *await self._send(calls.calibrate(asked)))

    async def calibrations(self) -> CalibrationsOut:
        """Runs of probes since the API started."""
        return calls.answer(CalibrationsOut, *await self._send(calls.CALIBRATIONS))

    async def calibration(self, run_id: str) -> CalibrationOut:
        """How far a run of probes has come."""
        return calls.answer(CalibrationOut, *await self._send(calls.calibration(run_id)))

    async def stop_calibration(self, run_id: str) -> CalibrationOut:
        """Have a run of probes stopped within a second."""
        return calls.answer(CalibrationOut, *await self._send(calls.stop_calibration(run_id)))

    async def log_decisions(self, decisions: Sequence[Mapping[str, Any]]) -> LoggedOut:
        """Log choices made, with all they could have been."""
        return calls.answer(LoggedOut, *await self._send(calls.log_decisions(decisions)))

    async def advice(self, decision: Mapping[str, Any]) -> AdviceOut:
        """Advise whether to try another alternative than the ordinary one."""
        return calls.answer(AdviceOut, *await self._send(calls.advice(decision)))

    async def policy(self, within_s: float, always: str | None = None, phase: str = "completion") -> PolicyOut:
        """What another policy would have met: one that always takes an alternative, or takes the one expected first."""
        return calls.answer(PolicyOut, *await self._send(calls.policy(within_s, always, phase)))

    async def shadow_forecasts(self, forecasts: Sequence[Mapping[str, Any]]) -> LoggedOut:
        """Hand in forecasts of another predictor, to be scored beside the answers."""
        return calls.answer(LoggedOut, *await self._send(calls.shadow_forecasts(forecasts)))

    async def shadow(self, newest: int | None = None) -> ShadowOut:
        """How other predictors compare with what was served."""
        return calls.answer(ShadowOut, *await self._send(calls.shadow(newest)))

    async def promote(self, decision: Mapping[str, Any]) -> PromotionOut:
        """Decide who answers."""
        return calls.answer(PromotionOut, *await self._send(calls.promote(decision)))

    async def withdraw_promotion(self, change_id: str, reason: str) -> PromotionOut:
        """Withdraw such a decision."""
        return calls.answer(PromotionOut, *await self._send(calls.withdraw_promotion(change_id, reason)))

    async def freeze(self, cohort: Mapping[str, Any]) -> FrozenOut:
        """Freeze forecasts before outcomes exist."""
        return calls.answer(FrozenOut, *await self._send(calls.freeze(cohort)))

    async def seal(self, population: Mapping[str, Any]) -> FrozenOut:
        """Seal a population before tuning."""
        return calls.answer(FrozenOut, *await self._send(calls.seal(population)))

    async def frozen(self, forecast_id: str) -> FrozenOut:
        """What was frozen, to the byte."""
        return calls.answer(FrozenOut, *await self._send(calls.frozen(forecast_id)))

    async def score(self, forecast_id: str, given: Mapping[str, Any]) -> ScoreOut:
        """Score what was frozen."""
        return calls.answer(ScoreOut, *await self._send(calls.score(forecast_id, given)))

    async def report(self, newest: int | None = None) -> ReportOut:
        """All reports on the newest answers, as of one commit."""
        return calls.answer(ReportOut, *await self._send(calls.report("", newest)))

    async def coverage(self, newest: int | None = None) -> CoverageOut:
        """Whether the newest answers came true."""
        return calls.answer(CoverageOut, *await self._send(calls.report("/coverage", newest)))

    async def sharpness(self, newest: int | None = None) -> SharpnessOut:
        """How narrow they were, and how well they scored beside simple forecasts."""
        return calls.answer(SharpnessOut, *await self._send(calls.report("/sharpness", newest)))

    async def support(self, newest: int | None = None) -> SupportReportOut:
        """What the newest answers rested on."""
        return calls.answer(SupportReportOut, *await self._send(calls.report("/support", newest)))

    async def drift(self) -> DriftOut:
        """Drift that was found and what followed, and what differs between profiles of a host."""
        return calls.answer(DriftOut, *await self._send(calls.report("/drift")))

    async def tokens(self) -> TokensOut:
        """Tokens there are."""
        return calls.answer(TokensOut, *await self._send(calls.TOKENS))

    async def add_token(self, name: str, scopes: Sequence[str], expires_in_s: float | None = None) -> TokenMadeOut:
        """Make a token; its text is in this answer alone."""
        return calls.answer(TokenMadeOut, *await self._send(calls.add_token(name, scopes, expires_in_s)))

    async def revoke_token(self, token_id: str) -> TokenOut:
        """End a token at once."""
        return calls.answer(TokenOut, *await self._send(calls.revoke_token(token_id)))

    async def alive(self) -> bool:
        """Whether the process answers."""
        return bool(calls.document(*await self._send(calls.HEALTH)))

    async def ready(self) -> dict[str, Any]:
        """What /readyz tells, whether or not it is ready."""
        status, body = await self._send(calls.READY)
        return calls.document(200 if status == 503 else status, body)

    async def metrics(self) -> str:
        """Counts, times and state in the text format of Prometheus."""
        return calls.text(*await self._send(calls.METRICS))

    async def _send(self, call: calls.Call) -> tuple[int, bytes]:
        """Status and body, after as many tries as it takes."""
        for tried in range(1, self._retry.times + 2):
            try:
                answer = await self._http.request(call.method, call.path, content=call.body, headers=headers_of(call))
            except httpx.HTTPError as error:
                pause_s = calls.pause_s(self._retry, call, tried)
                if pause_s is None:
                    raise away(self._http.base_url, error) from error
            else:
                pause_s = calls.pause_s(self._retry, call, tried, answer.status_code, answer.headers.get("retry-after"))
                if pause_s is None:
                    return answer.status_code, answer.content
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try always returns or raises")
