"""`phasecast calibrate`: measure this host under a grant, by the API that holds the store or, where nobody serves, by itself."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.grant import standing
from service.cli.options import JsonOption, StoreOption, page_console, print_json, store_path
from service.cli.token import served

if TYPE_CHECKING:
    from service.client.sync import Client
    from service.host_schemas import CalibrationIn, CalibrationOut
    from telemetry.store.batch import Batch

STOPPED = 7
"""Exit code of a run that was stopped or lacks probes: what it measured is kept."""
POLL_S = 0.3
KEEPING_S = 10.0
"""How long the store is waited for where another command holds it when the measuring is over, s."""
Told = Callable[["CalibrationOut"], None]


def calibrate(
    grant: Annotated[str | None, typer.Option(help="Id of the grant; the one in force here that lasts longest.")] = None,
    probe: Annotated[list[str] | None, typer.Option("--probe", help="What to measure; all that the grant names.")] = None,
    seconds: Annotated[float, typer.Option(min=0.05, max=600, help="Time given to each probe, s.")] = 2.0,
    threads: Annotated[int | None, typer.Option(min=1, help="Most threads of an operator; all usable within the grant.")] = None,
    if_busy: Annotated[
        str, typer.Option(help="hold: wait while others want the processors. measure: mark it contended.")
    ] = "hold",
    patience: Annotated[float, typer.Option(min=0, help="How long a probe may be held before the run ends, s.")] = 30.0,
    yield_to: Annotated[list[str] | None, typer.Option(help="A process, by name or id, whose work is never disturbed.")] = None,
    peer: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a peer of the network probe. The README tells how one is started on another host."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would run, for how long, touching what.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Measure this host, as far as a grant permits. Exit code 7: it was stopped, as by Ctrl-C, and what it measured is kept."""
    from service.host_schemas import CalibrationIn

    path = store_path(store)
    options = {
        "probes": probe or None,
        "seconds": seconds,
        "threads": threads,
        "if_busy": if_busy,
        "patience_s": patience,
        "yield_to": yield_to or [],
        "peer": peer,
        "dry_run": dry_run,
    }
    with served(path) as api, _progress(quiet=json or dry_run) as told:
        grants = {one.grant_id: one for one in api.grants().grants} if api else standing(path)
        asked = CalibrationIn.model_validate(options | {"grant_id": _chosen(grants, grant)})
        found = _by_api(api, asked, told) if api else _here(path, asked, told)
    if json:
        print_json(found.model_dump())
    else:
        _show(found)
    if found.state in {"stopped", "failed"} or found.partial:
        raise typer.Exit(STOPPED)


def _chosen(grants: Mapping[str, Any], grant_id: str | None) -> str:
    """Id of the grant to use; NoGrant where there is none."""
    import socket

    from calibrate.hosts.grants import chosen

    found: str = chosen(grants.values(), grant_id, host=socket.gethostname(), now_ns=time.time_ns()).grant_id
    return found


def _by_api(api: Client, asked: CalibrationIn, told: Told) -> CalibrationOut:
    """Have the API that holds the store do it; Ctrl-C stops it there too."""
    found = api.calibrate(asked.model_dump())
    with _stopped_here() as stopped:
        while found.run_id is not None and found.state == "running":
            told(found)
            time.sleep(POLL_S)
            found = api.stop_calibration(found.run_id) if stopped() else api.calibration(found.run_id)
    told(found)
    return found


@contextmanager
def _stopped_here() -> Iterator[Callable[[], str | None]]:
    """What says that somebody stopped this command while the block runs, by Ctrl-C or by ending it: what was measured is kept."""
    asked: list[str] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    former = [signal.signal(number, lambda *_: asked.append("asked to stop")) for number in numbers]
    try:
        yield lambda: asked[0] if asked else None
    finally:
        for number, handler in zip(numbers, former, strict=True):
            signal.signal(number, handler)


def _here(path: Path, asked: CalibrationIn, told: Told) -> CalibrationOut:
    """Do it in this process and keep the result in a store that nobody holds."""
    from calibrate.hosts.profile import carried_out, planned
    from calibrate.hosts.run import Care
    from calibrate.hosts.vitals import Rules
    from service.measuring import ended, kept, planned_out
    from telemetry.store.writer import refuse_full

    grant = standing(path)[asked.grant_id]
    plan = planned(
        grant, path.absolute().parent, seconds=asked.seconds, names=asked.probes, threads=asked.threads, peer=asked.peer
    )
    now = planned_out(plan)
    if asked.dry_run:
        return now
    refuse_full(path)  # before the measuring rather than after it
    progress: dict[str, Any] = {"finished": [], "current": None, "state": "running"}

    def begun(name: str) -> None:
        progress["finished"] += [progress["current"]] if progress["current"] else []
        progress["current"] = name
        told(now.model_copy(update=progress))

    rules = Rules(asked.if_busy, asked.patience_s, yield_to=tuple(asked.yield_to))
    now, withdrawn = now.model_copy(update={"began_ns": time.time_ns()}), _withdrawal(path, grant.grant_id)
    with _stopped_here() as stopped:
        runs = carried_out(plan, Care(rules, withdrawn=lambda: stopped() or withdrawn()), on_probe=begun)
    profile, batch = kept(plan, runs)
    _keep(path, batch)
    found = ended(now.model_copy(update={"finished": [run.probe.name for run in runs]}), profile, runs)
    told(found)
    return found


def _keep(path: Path, batch: Batch) -> None:
    """Put the result into the store; where another command holds it, ask again for a while, ever more seldom."""
    from telemetry.errors import StoreHeld
    from telemetry.store.file import Store

    pause_s, give_up_at = 0.05, time.monotonic() + KEEPING_S
    while True:
        try:
            with Store.open(path) as opened:
                opened.write(batch)
                return
        except StoreHeld:
            if time.monotonic() >= give_up_at:
                raise
        time.sleep(pause_s)
        pause_s = min(1.0, 2.0 * pause_s)


def _withdrawal(path: Path, grant_id: str) -> Callable[[], str | None]:
    """What says that somebody withdrew the grant meanwhile; the store is read again only after it changed."""
    from telemetry.errors import StoreHeld

    seen_ns = _changed_ns(path)

    def withdrawn() -> str | None:
        nonlocal seen_ns
        changed_ns = _changed_ns(path)
        if changed_ns == seen_ns:
            return None
        try:
            found = standing(path).get(grant_id)
        except StoreHeld:  # whoever changes it is not done yet: it is read at the next look
            return None
        seen_ns = changed_ns
        return "grant: it was withdrawn" if found is None or found.revoked_ns is not None else None

    return withdrawn


def _changed_ns(path: Path) -> int:
    """When the store or its log was last written; 0 where there is neither. The log comes and goes with each owner."""
    found_ns = 0
    for file in (path, path.with_name(path.name + ".wal")):
        with suppress(FileNotFoundError):
            found_ns = max(found_ns, file.stat().st_mtime_ns)
    return found_ns


def _show(found: CalibrationOut) -> None:
    """A plan or an ended run as text."""
    from rich.table import Table

    console = page_console()
    if found.state == "planned":
        table = Table(
            "probe", "granted as", "s", "threads", "memory", "disk", "touches", title="What would run; nothing was started"
        )
        for one in found.probes:
            memory, disk = f"{one.memory_bytes >> 20} MiB", f"{one.disk_bytes >> 20} MiB"
            table.add_row(one.probe, one.granted_as, f"{one.seconds:g}", str(one.threads), memory, disk, one.touches)
        console.print(table)
        console.print(f"{found.run_s:g} s of measuring on {found.host} under grant {found.grant_id}")
        return
    ending = "all probes are over" if not found.partial else f"{found.state}: {found.why}; kept as partial"
    console.print(
        f"profile {found.profile_id} of {found.host}: {len(found.finished)} of {len(found.probes)} probes, {ending}", markup=False
    )
    console.print(f"`phasecast hosts show {found.host}` shows it, `phasecast hosts diff {found.host}` what changed")


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Told]:
    """A bar over probes while the block runs; none where it would be in the way."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), disable=quiet)
    task = bar.add_task("measuring", total=None)

    def told(now: CalibrationOut) -> None:
        bar.start()  # not before: a refusal comes first
        bar.update(task, description=now.current or "measuring", total=len(now.probes), completed=len(now.finished))

    try:
        yield told
    finally:
        if bar.live.is_started:
            bar.stop()
