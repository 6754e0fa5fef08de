"""The blocking client: a thin shell around `calls` that takes its HTTP client as an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from service.client import calls
from service.plan_schemas import ChancesOut, LatestStartsOut, ScenariosOut
from service.schemas import AnswersOut
from telemetry.errors import NotReached

TIMEOUT_S = 5.0


def http_client(url: str, timeout_s: float = TIMEOUT_S) -> httpx.Client:
    """An HTTP client of a local API: no proxy stands between a process and its own machine."""
    return httpx.Client(base_url=url, timeout=timeout_s, trust_env=False)


class Client:
    """Calls of the API; every refusal is raised as the error it stands for."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def predict(
        self,
        contexts: Sequence[Mapping[str, Any]],
        phases: Sequence[str],
        levels: Sequence[float] | None = None,
        attempt_ids: Sequence[str] | None = None,
    ) -> AnswersOut:
        """Answer contexts x phases."""
        return calls.answer(AnswersOut, *self._send(calls.predict(contexts, phases, levels, attempt_ids)))

    def residual(self, running: Sequence[Mapping[str, Any]], levels: Sequence[float] | None = None) -> AnswersOut:
        """Answer how much longer running phases will take."""
        return calls.answer(AnswersOut, *self._send(calls.residual(running, levels)))

    def chance(self, plans: Sequence[Mapping[str, Any]], seed: int = 0) -> ChancesOut:
        """Answer with what probability plans complete by their deadlines."""
        return calls.answer(ChancesOut, *self._send(calls.chance(plans, seed)))

    def latest_start(self, questions: Sequence[Mapping[str, Any]], seed: int = 0) -> LatestStartsOut:
        """Answer when loads must start at the latest."""
        return calls.answer(LatestStartsOut, *self._send(calls.latest_start(questions, seed)))

    def scenarios(self, attempts: Sequence[Mapping[str, Any]], n_scenarios: int, seed: int = 0) -> ScenariosOut:
        """Draw setup and service of attempts together."""
        return calls.answer(ScenariosOut, *self._send(calls.scenarios(attempts, n_scenarios, seed)))

    def ingest(self, attempts: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Commit attempts and events; returns the result of each."""
        return calls.document(*self._send(calls.ingest(attempts, events)))

    def ready(self) -> dict[str, Any]:
        """What /readyz tells, whether or not it is ready."""
        _status, body = self._send(calls.Call("GET", "/readyz"))
        return calls.document(200, body)

    def snapshot(self, target: Path) -> int:
        """Write a copy of the store to `target`, whole or not at all; returns the commit it is consistent at."""
        part = target.with_name(target.name + ".part")
        try:
            with self._http.stream("GET", "/v1/snapshot", timeout=None) as answer:
                if answer.status_code != 200:
                    raise calls.refused(answer.status_code, answer.read())
                with part.open("xb") as out:
                    for chunk in answer.iter_bytes():
                        out.write(chunk)
                target.hardlink_to(part)  # unlike a rename, this never takes the place of a file made meanwhile
                return int(answer.headers["X-Phasecast-Commit"])
        except httpx.HTTPError as error:
            raise self._away(error) from error
        finally:
            part.unlink(missing_ok=True)

    def _send(self, call: calls.Call) -> tuple[int, bytes]:
        """Status and body."""
        headers = {"content-type": "application/json"} if call.body is not None else {}
        try:
            answer = self._http.request(call.method, call.path, content=call.body, headers=headers)
        except httpx.HTTPError as error:
            raise self._away(error) from error
        return answer.status_code, answer.content

    def _away(self, error: httpx.HTTPError) -> NotReached:
        return NotReached("api", f"{self._http.base_url}: {error}", "is `phasecast serve` running there?")
