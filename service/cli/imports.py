"""`phasecast import`: files of the field into the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import JsonOption, StoreOption, print_json, store_path

if TYPE_CHECKING:
    from service.importing import FileReport
    from telemetry.importers.contract import Importer, Options

MOST_REFUSALS = 20
"""Refusals of a file that are told as text; JSON has all."""


def import_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files to read, plain or gzip.")],
    format_name: Annotated[str | None, typer.Option("--format", help="Their format, where it isn't recognised.")] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of lengths that don't say theirs: s, ms, us or ns.")] = None,
    host: Annotated[str | None, typer.Option(help="Host they are from, where they don't say.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Bring in timings recorded elsewhere; again adds nothing. Fails only if nothing could be read."""
    from telemetry.importers.cells import name
    from telemetry.importers.contract import Options
    from telemetry.importers.decimals import unit_told

    unit_told(unit)
    reports = _imported(files, format_name, Options(unit, name(host)), store_path(store))
    if json:
        print_json({"files": reports})
    else:
        for report in reports:
            _tell(report)
    if not any(report.was_read for report in reports):
        raise typer.Exit(1)


def _imported(files: list[Path], format_name: str | None, options: Options, path: Path) -> list[FileReport]:
    """Reports of the files in order; the store is not touched if none of them is of a known format."""
    from service.importing import bring_in, unreadable
    from telemetry.errors import PhasecastError
    from telemetry.importers.registry import importer_for
    from telemetry.store.file import Store

    importers: dict[Path, Importer] = {}
    unknown: dict[Path, FileReport] = {}
    for file in dict.fromkeys(files):
        try:
            importers[file] = importer_for(file, format_name)
        except (PhasecastError, OSError) as error:
            unknown[file] = unreadable(file, error)
    if not importers:
        return list(unknown.values())
    with Store.open(path) as opened, _progress() as show:
        known = {file: bring_in(opened, file, importer, options, show(file)) for file, importer in importers.items()}
    return [(known | unknown)[file] for file in dict.fromkeys(files)]


@contextmanager
def _progress() -> Iterator[Callable[[Path], Callable[[int, int], None]]]:
    """Bars on the terminal: of each file that it is being read, then how far it is written."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def show(file: Path) -> Callable[[int, int], None]:
            task = bars.add_task(f"reading {file.name}", total=None)
            return lambda done, total: bars.update(task, description=f"writing {file.name}", completed=done, total=total)

        yield show


def _tell(report: FileReport) -> None:
    """Print what became of a file: counts, notes, refusals."""
    tables = ", ".join(f"{count:,} {table}" for table, count in report.new_rows.items())
    made = f"{report.new:,} rows new" + (f" ({tables})" if tables else "")
    typer.echo(
        f"{report.file} ({report.format or 'no known format'}): {report.read:,} records read; "
        f"{made}, {report.repeat:,} known already, {report.refused:,} refused"
    )
    for note in report.notes:
        typer.echo(f"  note: {note}")
    for refusal in report.refusals[:MOST_REFUSALS]:
        place = report.file if refusal.line is None else f"{report.file}:{refusal.line}"
        typer.echo(f"  refused: {place}: {refusal.item}: {refusal.reason}")
    if (more := len(report.refusals) - MOST_REFUSALS) > 0:
        typer.echo(f"  and {more:,} more; --json tells all")
