"""`phasecast hosts show` and `diff`: what was measured of a host, and what changed since, in words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.grant import newest_commit
from service.cli.options import JsonOption, StoreOption, page_console, print_json, store_path
from service.cli.token import served

app = typer.Typer(help="Hosts that were measured: profiles, and what changed.", no_args_is_help=True)


@app.command()
def show(
    host: Annotated[str, typer.Argument(help="Name of the host.")], store: StoreOption = None, json: JsonOption = False
) -> None:
    """Show the newest profile of a host."""
    path = store_path(store)
    with served(path) as api:
        found = api.profile(host).model_dump() if api else _profile(path, host)
    if json:
        print_json(found)
        return
    from rich.table import Table

    table = Table(
        "rate", "median", "95 % interval", "samples", "baseline", "against it", title=f"{host}, version {found['version']}"
    )
    for rate in found["rates"]:
        interval = f"{rate['low']:.3g} to {rate['high']:.3g}"
        usual = "" if rate["baseline"] is None else f"{rate['baseline']:.4g}"
        against = "; ".join(rate["complaints"])
        table.add_row(rate["name"], f"{rate['median']:.4g}", interval, str(rate["samples"]), usual, against)
    console = page_console()
    console.print(table)
    for line in _circumstances(found):
        console.print(line, markup=False)


def _circumstances(found: dict[str, Any]) -> list[str]:
    """Under what a profile was measured, and what it lacks, for people."""
    condition = found["condition"]
    backends = sorted({rate["backend"] for rate in found["rates"] if rate["backend"]})
    told = [f"measured on {condition.get('processor') or 'a processor that does not tell its name'}"]
    told += [f"operators of {' and '.join(backends)}"] if backends else []
    told += ["partial: it was stopped or a probe failed, and none of it is part of the baseline"] if found["partial"] else []
    return told + ([f"not measured: {condition['not_measured']}"] if condition.get("not_measured") else [])


@app.command()
def diff(
    host: Annotated[str, typer.Argument(help="Name of the host.")],
    before: Annotated[str | None, typer.Option(help="Profile to compare with; that of the condition before.")] = None,
    after: Annotated[str | None, typer.Option(help="Profile that is compared; the newest.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Tell in words what differs between two profiles of a host."""
    path = store_path(store)
    with served(path) as api:
        found = api.changes(host, before, after).model_dump() if api else _changes(path, host, before, after)
    if json:
        print_json(found)
        return
    old, new = found["before"], found["after"]
    typer.echo(f"{host}: version {old['version']} ({old['profile_id']}) to version {new['version']} ({new['profile_id']})")
    for line in found["changes"] or ["nothing that its intervals would show"]:
        typer.echo(f"  {line}")


def _profile(path: Path, host: str) -> dict[str, Any]:
    """The newest profile of a host in a store that nobody holds."""
    from service.hosting import profile_out, profiles_of
    from telemetry import asof
    from telemetry.store.reader import open_reader

    with open_reader(path) as reader:
        commit = newest_commit(reader)
        mine = profiles_of(asof.profiles(reader, commit), host)
        return profile_out(mine, asof.grants(reader, commit), time.time_ns()).model_dump()


def _changes(path: Path, host: str, before: str | None, after: str | None) -> dict[str, Any]:
    """What changed between profiles of a host in a store that nobody holds."""
    from service.hosting import changes_out, profiles_of
    from telemetry import asof
    from telemetry.store.reader import open_reader

    with open_reader(path) as reader:
        mine = profiles_of(asof.profiles(reader, newest_commit(reader)), host)
    return changes_out(mine, before, after).model_dump()
