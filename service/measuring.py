"""Measuring the API's own host: one run at a time, in a thread that stays with its probes, its result kept in the store."""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from calibrate.hosts.catalogue import Probe
from calibrate.hosts.profile import Plan, carried_out, profiled
from calibrate.hosts.run import Care, ProbeRun
from calibrate.hosts.telling import rows_of
from service.host_schemas import CalibrationOut, PlannedProbeOut
from service.lineup import Lineup
from telemetry.errors import Busy, UnknownId
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import HostProfile

log = logging.getLogger(__name__)
KEPT = 20
"""Runs (count) that are remembered until the API ends; their profiles stay in the store."""


def planned_out(plan: Plan) -> CalibrationOut:
    """A plan as it is told: what would run, for how long, touching what."""
    return CalibrationOut(
        run_id=None,
        state="planned",
        host=socket.gethostname(),
        grant_id=plan.grant.grant_id,
        run_s=plan.run_s,
        probes=[_probe_out(probe, plan.seconds) for probe in plan.probes],
        finished=[],
        current=None,
        why=None,
        profile_id=None,
        partial=None,
        began_ns=None,
        ended_ns=None,
    )


def _probe_out(probe: Probe, seconds: float) -> PlannedProbeOut:
    told = {name: getattr(probe, name) for name in PlannedProbeOut.model_fields.keys() - {"probe", "seconds"}}
    return PlannedProbeOut(probe=probe.name, seconds=seconds, **told)


def kept(plan: Plan, runs: list[ProbeRun]) -> tuple[HostProfile, Batch]:
    """The profile that runs of a plan make, and all that goes into the store: it, and each run as an attempt."""
    profile = profiled(plan, runs)
    return profile, Batch((profile, *rows_of(runs, plan.grant.grant_id)))


def ended(told: CalibrationOut, profile: HostProfile, runs: list[ProbeRun]) -> CalibrationOut:
    """How a run is told once it is over: stopped from outside, failed where a probe did, else done."""
    stopped = next((run.attended.ended_by for run in runs if run.attended.ended_by is not None), None)
    failed = "; ".join(f"{run.probe.name}: {run.failed}" for run in runs if run.failed is not None) or None
    return told.model_copy(
        update={
            "state": "stopped" if stopped is not None else "failed" if failed is not None else "done",
            "why": stopped or failed,
            "current": None,
            "profile_id": profile.profile_id,
            "partial": profile.partial,
            "ended_ns": time.time_ns(),
        }
    )


def work_here(lineup: Lineup) -> Callable[[], str | None]:
    """What says which attempt is at work on this machine, by the clock its open phases were marked with; None if none is."""

    def at_work() -> str | None:
        for attempt_id, attempt in lineup.running.items():
            if any(phase.clock_id == lineup.clock_id for phase in attempt.phases.values()):
                return f"attempt {attempt_id}"
        return None

    return at_work


class Calibrations:
    """The runs of this API. `begin` may be called by any thread; one run goes on at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[str, CalibrationOut] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._withdrawn: str | None = None

    def begin(self, plan: Plan, care: Care) -> CalibrationOut:
        """Start a run; Busy while another goes on."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise Busy("calibration", "another run goes on", "GET /v1/calibrations shows it; wait, or DELETE it")
            run_id = str(uuid.uuid4())
            update: dict[str, Any] = {"run_id": run_id, "state": "running", "began_ns": time.time_ns()}
            told = planned_out(plan).model_copy(update=update)
            self._runs = dict([*self._runs.items(), (run_id, told)][-KEPT:])
            self._withdrawn = None
            watched = replace(care, withdrawn=lambda: self._withdrawn)
            self._thread = threading.Thread(target=self._run, args=(run_id, plan, watched), name="calibration")
            self._thread.start()
        return told

    def known(self) -> list[CalibrationOut]:
        """The runs, newest first."""
        return list(reversed(self._runs.values()))

    def one(self, run_id: str) -> CalibrationOut:
        """One run; UnknownId if there is none of that id."""
        found = self._runs.get(run_id)
        if found is None:
            raise UnknownId("run_id", run_id, "GET /v1/calibrations lists the runs since the API started")
        return found

    def end(self, run_id: str) -> CalibrationOut:
        """Have a run stopped within a second; what it measured is kept. One that is over stays as it was."""
        found = self.one(run_id)
        if found.state == "running":
            self._withdrawn = "asked to stop"
        return found

    def withdraw(self, grant_id: str) -> None:
        """Have the run under a grant stopped, since the grant is withdrawn."""
        if any(one.grant_id == grant_id and one.state == "running" for one in self._runs.values()):
            self._withdrawn = "grant: it was withdrawn"

    def close(self) -> None:
        """Stop what runs, and wait for that: no probe outlives the API."""
        self._withdrawn = "the API ends"
        if self._thread is not None:
            self._thread.join()

    def _run(self, run_id: str, plan: Plan, care: Care) -> None:
        try:
            runs = carried_out(
                plan,
                care,
                on_probe=lambda name: self._note(run_id, current=name),
                on_run=lambda run: self._note(run_id, finished=[*self._runs[run_id].finished, run.probe.name]),
            )
            profile, batch = kept(plan, runs)
            self._store.submit(batch).result()
            self._runs = self._runs | {run_id: ended(self._runs[run_id], profile, runs)}
        except Exception as error:
            log.exception("a run of probes failed")
            self._note(run_id, state="failed", why=str(error), current=None, ended_ns=time.time_ns())

    def _note(self, run_id: str, **changes: Any) -> None:
        self._runs = self._runs | {run_id: self._runs[run_id].model_copy(update=changes)}
