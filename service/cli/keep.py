"""`phasecast export`, `backup`, `restore` and `compact`: keeping what is known, and keeping it small."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import JsonOption, StoreOption, print_json, store_path

if TYPE_CHECKING:
    from telemetry.store.reader import Reader

FolderArgument = Annotated[Path, typer.Argument(help="Folder to write; it must not exist.")]
WhenOption = typer.Option(help="Instant with its zone, such as 2026-11-01T00:00:00Z.")


def export(
    folder: FolderArgument,
    table: Annotated[list[str] | None, typer.Option("--table", help="Table to export, once or more; all if left out.")] = None,
    since: Annotated[str | None, WhenOption] = None,
    until: Annotated[str | None, WhenOption] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write tables as Parquet, those rows that became known or were replaced in the time given.

    Works while the store is served, from a copy.
    """
    from telemetry.store import export as parquet

    span_ns = [_instant_ns(name, text) for name, text in (("--since", since), ("--until", until))]
    with _reading(store_path(store), folder) as reader:
        done = parquet.export(reader, folder, table or (), *span_ns)
    if json:
        print_json({"folder": str(folder), **asdict(done)})
        return
    for one in done.tables:
        typer.echo(f"{folder / one.file}: {one.rows} rows ({one.size_bytes} bytes)")


def backup(folder: FolderArgument, store: StoreOption = None, json: JsonOption = False) -> None:
    """Copy the store and its model files with their hashes, and read the copy once. Works while the store is served."""
    from service.cli.serve import copy_of
    from service.settings import models_folder
    from telemetry.store import backup as backups

    path = store_path(store)
    made = backups.backup(lambda out: copy_of(path, out), models_folder(path), folder, time.time_ns())
    if json:
        print_json({"backup": str(folder), **asdict(made)})
        return
    size_bytes = sum(kept.size_bytes for kept in made.files)
    typer.echo(f"{folder}: the store at commit {made.commit}, {len(made.files)} files ({size_bytes} bytes), read back in full")
    if made.missing:
        typer.echo(f"model files that were not there any more: {', '.join(made.missing)}")


def restore(
    folder: Annotated[Path, typer.Argument(help="Folder of a backup.")], store: StoreOption = None, json: JsonOption = False
) -> None:
    """Check a backup and put it where no store is. A damaged one is refused."""
    from service.settings import models_folder
    from telemetry.store import backup as backups

    path = store_path(store)
    made = backups.restore(folder, path, models_folder(path))
    if json:
        print_json({"store": str(path), **asdict(made)})
    else:
        typer.echo(f"{path}: the store at commit {made.commit}, as backed up in {folder}")


def compact(
    max_age_days: Annotated[float | None, typer.Option(min=0, help="Remove what became known longer ago than this.")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=0, help="Remove the oldest until the file is no larger.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Write a store that nobody holds anew without unused room; with a limit, without what is past it.

    Removed are events of attempts that are over, resource samples and replaced versions; never observations, answers, outcomes.
    """
    from telemetry.store import keep

    path = store_path(store)
    max_age_s = None if max_age_days is None else max_age_days * 86_400
    done = keep.compact(path, now_ns=time.time_ns(), max_age_s=max_age_s, max_bytes=max_bytes)
    if json:
        print_json({"store": str(path), **asdict(done)})
        return
    typer.echo(f"{path}: {done.size_before_bytes} bytes before, {done.size_after_bytes} after, {sum(done.rows.values())} rows")
    for name, count in done.removed.items():
        typer.echo(f"removed from {name}: {count} rows, nothing known after commit {done.cutoff}")
    if not done.fits:
        typer.echo(f"it stays larger than {max_bytes} bytes: the rest is never removed")


@contextmanager
def _reading(path: Path, folder: Path) -> Iterator[Reader]:
    """A reader of the store, or of a copy beside `folder` while another process holds it."""
    from tempfile import TemporaryDirectory

    from service.cli.serve import copy_of
    from telemetry.store.lock import holder
    from telemetry.store.reader import open_reader

    if holder(path) is None:
        with open_reader(path) as reader:
            yield reader
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
        copy = Path(beside) / "copy.duckdb"
        copy_of(path, copy)
        with open_reader(copy) as reader:
            yield reader


def _instant_ns(option: str, text: str | None) -> int | None:
    """UTC ns of an instant, exact to the microsecond; without a zone it would mean another instant on each machine."""
    from datetime import UTC, datetime, timedelta

    from telemetry.errors import BadField

    if text is None:
        return None
    fix = "give date, time and zone, such as 2026-11-01T00:00:00Z"
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadField(option, text, fix) from error
    if found.tzinfo is None:
        raise BadField(option, text, fix)
    return (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
