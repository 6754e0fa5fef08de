"""`phasecast doctor` and `phasecast demo`: what this machine can measure, and the whole of Phasecast on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import JsonOption, StoreOption, print_json
from service.settings import default_store

if TYPE_CHECKING:
    from rich.console import Console

    from service.demo.run import Made

LEAST_ROUNDS, ATTEMPTS_PER_ROUND = 6, 20
"""Relay rounds follow the attempts: one load, to be ready when a running predecessor ends, for every so many attempts."""


def doctor(store: StoreOption = None, json: JsonOption = False) -> None:
    """Tell what this machine can and cannot measure. Never fails because something is absent."""
    from service.doctor import examine

    findings = examine(store if store is not None else default_store())
    if json:
        print_json({"findings": findings})
        return
    from rich.console import Console
    from rich.table import Table

    colours = {"ok": "green", "limited": "yellow", "absent": "dim"}
    table = Table("what", "state", "found", "note")
    for f in findings:
        table.add_row(f.name, f"[{colours[f.state]}]{f.state}[/]", f.value, f.note)
    Console().print(table)


def demo(
    attempts: Annotated[int, typer.Option(min=20, help="Attempts to make.")] = 600,
    seed: Annotated[int, typer.Option(help="Seed of their order.")] = 1,
    torch: Annotated[bool, typer.Option("--torch/--no-torch", help="Use torch where it is installed.")] = True,
    folder: Annotated[Path, typer.Option(help="Where the demo keeps its files; never your own store.")] = Path(".demo"),
    json: JsonOption = False,
) -> None:
    """Predict real work on this machine before it runs, and show what the predictions were worth.

    Running it is consent to a grant of 15 minutes, which is printed and kept.
    """
    from rich.console import Console

    from service.demo import text
    from service.demo.figures import figures

    console = Console(stderr=json)
    if not console.is_terminal:
        console = Console(stderr=json, width=text.PAGE_WIDTH)
    store = _folder_of_run(folder) / "store.duckdb"
    made = _make(console, folder, store, attempts, seed, use_torch=torch)
    console.rule("What happened")
    with console.status("reading the snapshot, replaying served answers") as status:
        found = figures(made, lambda n: status.update(f"replayed {n} served answers") if n % 100 == 0 else None)
    if json:
        print_json(found.as_json())
    text.everything(console, made, found, store)


def _folder_of_run(folder: Path) -> Path:
    """A folder of its own, so that a run never writes to the store of another."""
    from datetime import UTC, datetime

    made = folder / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    made.mkdir(parents=True)
    return made


def _make(console: Console, folder: Path, store: Path, attempts: int, seed: int, *, use_torch: bool) -> Made:
    """Say what is permitted, measure the host, then make the attempts beside the API, with progress."""
    import getpass
    import os
    import socket
    import time

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from calibrate.hosts.grants import demo_grant, describe
    from calibrate.hosts.profile import profile
    from service.demo import run, text
    from service.demo.encoder import best_backend
    from service.demo.schedule import plan

    backend = best_backend(use_torch)
    console.print(text.backend_line(backend, use_torch=use_torch))
    threads = os.cpu_count() or 1
    grant = demo_grant(user=getpass.getuser(), host=socket.gethostname(), now_ns=time.time_ns(), threads=threads)
    console.print(f"Running this is consent to: {describe(grant, time.time_ns())}")
    with console.status("probing this host") as status:
        measured = profile(grant, store.parent, on_probe=lambda name: status.update(f"probing this host: {name}"))
    run.consent(store, grant, measured)
    text.rates(console, measured)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        rounds = max(LEAST_ROUNDS, attempts // ATTEMPTS_PER_ROUND)
        task = progress.add_task("attempts predicted, then made", total=attempts + rounds)
        work = run.Work(plan(attempts, seed), rounds, grant, folder, backend, seed)
        return run.make(store, work, lambda: progress.advance(task))
