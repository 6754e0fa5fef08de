"""`phasecast grant add`, `list` and `revoke`: what may be measured where, whether or not the API serves at the moment."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import JsonOption, StoreOption, print_json, store_path
from service.cli.token import minute, served

if TYPE_CHECKING:
    from telemetry.tables import Grant

app = typer.Typer(
    help="Permission to measure a host: give, list, withdraw. Without it nothing is measured.", no_args_is_help=True
)
MIB = 1 << 20


@app.command()
def add(
    probe: Annotated[list[str], typer.Option("--probe", help="What may be measured, such as matmul; repeat it, or `all`.")],
    minutes: Annotated[float, typer.Option(min=0.001, help="Length of the window from now on, minutes.")] = 15.0,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Most time of a run, s. 20 s of it are for processes to begin, on top of the measuring."),
    ] = 120.0,
    threads: Annotated[int, typer.Option(min=1, help="Most threads.")] = 1,
    memory_mib: Annotated[int, typer.Option(min=1, help="Most memory of a process, MiB.")] = 2048,
    disk_mib: Annotated[int, typer.Option(min=0, help="Most disk, MiB.")] = 256,
    gpu_fraction: Annotated[float, typer.Option(min=0, max=1, help="Most of a GPU, 0 to 1.")] = 0.0,
    host: Annotated[str | None, typer.Option(help="Host it is for; this one if left out.")] = None,
    by: Annotated[str | None, typer.Option(help="Who permits it; you if left out.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Permit measuring, for a time and within ceilings."""
    from calibrate.hosts.grants import PROBES

    terms: dict[str, Any] = {
        "granted_by": by if by is not None else getpass.getuser(),
        "probes": list(PROBES) if probe == ["all"] else probe,
        "valid_s": minutes * 60.0,
        "max_run_s": seconds,
        "max_threads": threads,
        "max_memory_bytes": memory_mib * MIB,
        "max_disk_bytes": disk_mib * MIB,
        "max_gpu_fraction": gpu_fraction,
    }
    if host is not None:
        terms["host"] = host
    path = store_path(store)
    with served(path) as api:
        given = api.give_grant(terms).model_dump() if api else _given(path, terms)
    if json:
        print_json(given)
        return
    typer.echo(given["grant_id"])
    typer.echo(_line(given), err=True)


@app.command("list")
def list_grants(store: StoreOption = None, json: JsonOption = False) -> None:
    """List grants: who permits what on which host, and until when."""
    path = store_path(store)
    with served(path) as api:
        found = [grant.model_dump() for grant in api.grants().grants] if api else [_told(row) for row in standing(path).values()]
    if json:
        print_json({"grants": found})
        return
    for grant in found:
        typer.echo(_line(grant))


@app.command()
def revoke(
    grant_id: Annotated[str, typer.Argument(help="Id of the grant, as `grant list` shows it.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Withdraw a grant at once; what runs under it is stopped."""
    path = store_path(store)
    with served(path) as api:
        ended = api.withdraw_grant(grant_id).model_dump() if api else _withdrawn(path, grant_id)
    if json:
        print_json(ended)
    else:
        typer.echo(f"grant {grant_id} for {ended['host']} is withdrawn")


def standing(path: Path) -> dict[str, Grant]:
    """Grants in a store that nobody holds; none where there is no store yet."""
    from telemetry import asof
    from telemetry.store.reader import open_reader

    if not path.exists():
        return {}
    with open_reader(path) as reader:
        return asof.grants(reader, newest_commit(reader))


def newest_commit(reader: Any) -> int:
    """The newest commit of a store or snapshot that is only read."""
    return int(reader.rows("SELECT coalesce(max(known_from), 0) FROM commits")[0][0])


def _given(path: Path, terms: dict[str, Any]) -> dict[str, Any]:
    """Give a grant in a store that nobody holds."""
    import socket

    from calibrate.hosts.grants import Terms, give
    from service.host_schemas import GrantIn
    from telemetry.store.batch import Batch
    from telemetry.store.file import Store

    asked = GrantIn.model_validate(terms)
    limits = Terms(tuple(asked.probes), **asked.model_dump(exclude={"granted_by", "host", "probes"}))
    row = give(limits, user=asked.granted_by, host=asked.host or socket.gethostname(), now_ns=time.time_ns())
    with Store.open(path) as store:
        store.write(Batch((row,)))
    return _told(row)


def _withdrawn(path: Path, grant_id: str) -> dict[str, Any]:
    """Withdraw a grant in a store that nobody holds."""
    from service.granting import withdrawn
    from telemetry import asof
    from telemetry.store.batch import Batch
    from telemetry.store.file import Store

    with Store.open(path) as store:
        with store.reader() as reader:
            row = withdrawn(asof.grants(reader, store.last_commit), grant_id, time.time_ns())
        store.write(Batch((row,)))
    return _told(row)


def _told(row: Grant) -> dict[str, Any]:
    from service.granting import grant_out

    return grant_out(row, time.time_ns()).model_dump()


def _line(grant: dict[str, Any]) -> str:
    """A grant for people."""
    state = "withdrawn" if grant["revoked_ns"] else "in force" if grant["in_force"] else "not in force"
    ceilings = (
        f"{grant['max_run_s']:g} s, {grant['max_threads']} thread(s), {grant['max_memory_bytes'] // MIB} MiB memory, "
        f"{grant['max_disk_bytes'] // MIB} MiB disk, {grant['max_gpu_fraction']:g} of a GPU"
    )
    return (
        f"{grant['grant_id']} {grant['granted_by']} lets {', '.join(grant['probes'])} run on {grant['host']}: {ceilings}; "
        f"{state} until {minute(grant['expires_ns'])}"
    )
