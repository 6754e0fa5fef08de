"""`phasecast report`: whether answers came true, as text, JSON, one HTML file or Parquet; served or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import JsonOption, StoreOption, page_console, print_json, store_path
from service.cli.served import ask_served
from telemetry.errors import BadField

if TYPE_CHECKING:
    from service.report_schemas import ReportOut

MOST_LINES = 20
SUFFIXES = (".html", ".json", ".parquet")
OutOption = Annotated[Path | None, typer.Option("--out", help="File to write: NAME.html, NAME.json or NAME.parquet.")]
NewestOption = Annotated[
    int, typer.Option("--newest", min=1, max=1_000_000, help="Answers to look at, those whose phases began last.")
]


def report(out: OutOption = None, newest: NewestOption = 1_000_000, store: StoreOption = None, json: JsonOption = False) -> None:
    """Tell whether answers came true: coverage, sharpness, support, drift. Read-only; asks the server where one has the store."""
    if out is not None and out.suffix not in SUFFIXES:
        raise BadField("--out", str(out), f"end it in {', '.join(SUFFIXES)}")
    found = _report(store_path(store), newest)
    if out is not None:
        _write(found, out)
    if json:
        print_json(found.model_dump())
    elif out is not None:
        typer.echo(f"wrote {out}: {found.coverage.answers} answers as of commit {found.as_of_commit}")
    else:
        _tell(found)


def _report(path: Path, newest: int) -> ReportOut:
    """The report of a store, whoever holds it."""
    from service.cli.grant import newest_commit
    from service.report_schemas import ReportOut
    from service.reporting import report as made
    from telemetry.store.reader import open_reader

    if (told := ask_served(path, "GET", f"/v1/reports?newest={newest}")) is not None:
        return ReportOut.model_validate(told)
    with open_reader(path) as reader:
        return made(reader, newest_commit(reader), newest)


def _write(found: ReportOut, out: Path) -> None:
    """Write a report in the form that the file's name asks for."""
    if out.suffix == ".html":
        from service.report_page import page

        out.write_text(page(found), encoding="utf-8")
    elif out.suffix == ".json":
        out.write_text(found.model_dump_json(indent=2), encoding="utf-8")
    else:
        from pyarrow.parquet import write_table

        from service.report_table import table

        write_table(table(found), out)


def _tell(found: ReportOut) -> None:
    """The worst strata, and where to read on."""
    from rich.table import Table

    told = found.coverage
    shown = Table("stratum", "asked", "answers", "past p50", "past p90", "past p95", "past p99", "CRPS", title="Worst first")
    for one in told.strata[:MOST_LINES]:
        past = [f"{level.share:.1%}{' !' if level.outside else ''}" if level.n else "-" for level in one.exceeded]
        name = f"{one.phase}, {one.state or 'state unknown'}, {one.host or 'host unknown'}"
        shown.add_row(name, one.asked, str(one.n), *past, "-" if one.crps_log is None else f"{one.crps_log:.3g}")
    typer.echo(f"{told.answers} answers with outcomes as of commit {found.as_of_commit}")
    if told.strata:
        page_console().print(shown)
        typer.echo(f"! outside its exact 95 % interval. Farthest off: {told.worst}")
    for change in found.drift.changes:
        if change.kind == "reaction" and change.undone_ns is None:
            typer.echo(f"stands: {change.action.replace('_', ' ')} at {change.subject}: {change.reason}")
    typer.echo("`--out FILE.html` draws all of it; `--json` tells every figure with its query.")
