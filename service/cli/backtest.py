"""`phasecast backtest`: what would have been answered about recorded work, had it been asked as it happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import JsonOption, print_json

if TYPE_CHECKING:
    from service.backtest_run import Summary


def backtest(
    path: Annotated[Path, typer.Argument(metavar="IN.parquet", help="Recorded observations, one phase a row.")],
    out: Annotated[Path, typer.Option(help="Parquet file to write answers to.")],
    queries: Annotated[
        Path | None,
        typer.Option(help="Ages at which the remaining time of rows is asked: observation_id, phase, attempt, elapsed_s."),
    ] = None,
    model: Annotated[str, typer.Option(help="Model to ask; a name that there is not lists them.")] = "calibrated",
    json: JsonOption = False,
) -> None:
    """Replay recorded observations: every row is asked when it begins, with what was known by then."""
    from service.backtest_run import backtest as run

    with _progress() as show:
        summary = run(path, out, queries, model, show)
    if json:
        print_json(summary)
    else:
        _tell(summary, out)


@contextmanager
def _progress() -> Iterator[Callable[[int, int, int], None]]:
    """A bar on the terminal: rows asked, how many of them per second, and fits."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("reading", total=None)
        started_s = time.perf_counter()

        def show(done: int, total: int, fits: int) -> None:
            rate = done / max(time.perf_counter() - started_s, 1e-9)
            bars.update(task, completed=done, total=total, description=f"{rate:,.0f} rows/s, {fits} fits")

        yield show


def _tell(summary: Summary, out: Path) -> None:
    """Print what was done, in a few lines."""
    asked = f"{summary.rows:,} rows" + (f" and {summary.queries:,} ages" if summary.queries else "")
    rate = summary.rows / summary.seconds
    typer.echo(f"{summary.model}: {asked} asked in {summary.seconds:,.1f} s ({rate:,.0f} rows/s, {summary.fits} fits): {out}")
    if summary.left_out:
        typer.echo(f"  left out, without a usable duration: {summary.left_out:,}")
    if summary.unanswered:
        typer.echo(f"  unanswered, asked before anything was known: {summary.unanswered:,}")
    if summary.weights:
        shares = sorted(summary.weights.items(), key=lambda one: -one[1])
        typer.echo("  weights of experts: " + ", ".join(f"{name} {share:.2f}" for name, share in shares))
