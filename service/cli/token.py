"""`phasecast token add`, `list` and `revoke`: who may call the API, whether or not it serves at the moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import JsonOption, StoreOption, print_json, store_path
from telemetry.words import Scope

if TYPE_CHECKING:
    from service.client.sync import Client

app = typer.Typer(help="Tokens of the API: make, list, revoke.", no_args_is_help=True)
DAY_S = 86_400.0


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Who or what it is for.")],
    scope: Annotated[list[Scope], typer.Option("--scope", help="What it is good for; may be given more than once.")],
    expires_days: Annotated[
        float | None, typer.Option(min=1e-4, max=3650, help="Days it is good for; no end if left out.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token. It is shown this once: only its hash is kept."""
    expires_in_s = None if expires_days is None else expires_days * DAY_S
    scopes = [one.value for one in scope]
    path = store_path(store)
    with served(path) as api:
        made = api.add_token(name, scopes, expires_in_s).model_dump() if api else _add(path, name, scopes, expires_in_s)
    if json:
        print_json(made)
        return
    typer.echo(made["token"])
    typer.echo(
        f"token {made['token_id']} for {name}, scope {', '.join(made['scopes'])}: keep it, it is not shown again", err=True
    )


@app.command("list")
def list_tokens(store: StoreOption = None, json: JsonOption = False) -> None:
    """List tokens: what each is for, how it ends, and until when it is good."""
    path = store_path(store)
    with served(path) as api:
        found = [token.model_dump() for token in api.tokens().tokens] if api else _listed(path)
    if json:
        print_json({"tokens": found})
        return
    for token in found:
        typer.echo(_line(token))


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(help="Id of the token, as `token list` shows it.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """End a token at once."""
    path = store_path(store)
    with served(path) as api:
        ended = api.revoke_token(token_id).model_dump() if api else _revoke(path, token_id)
    if json:
        print_json(ended)
    else:
        typer.echo(f"token {token_id} for {ended['name']} is revoked")


def _line(token: dict[str, Any]) -> str:
    """A token for people."""
    state = "revoked" if token["revoked_ns"] else "in force" if token["in_force"] else "expired"
    until = f" until {minute(token['expires_ns'])}" if token["expires_ns"] else ""
    good_for, made = ", ".join(token["scopes"]), minute(token["created_ns"])
    return f"{token['token_id']} ...{token['last_four']} {token['name']}: {good_for}; made {made}; {state}{until}"


@contextmanager
def served(path: Path) -> Iterator[Client | None]:
    """A client of the API that holds the store; None where nobody serves it."""
    from service.client.sync import Client, http_client
    from service.settings import default_token
    from telemetry.store.lock import holder

    held = holder(path)
    if held is None or held.url is None:
        yield None
        return
    with http_client(held.url, token=default_token()) as http:
        yield Client(http)


def _add(path: Path, name: str, scopes: list[str], expires_in_s: float | None) -> dict[str, Any]:
    """Make a token in a store that nobody holds."""
    from service.token_schemas import TokenIn
    from telemetry.store.batch import Batch
    from telemetry.store.file import Store
    from telemetry.tokens import minted

    asked = TokenIn.model_validate({"name": name, "scopes": scopes, "expires_in_s": expires_in_s})
    now_ns = time.time_ns()
    text, row = minted(asked.name, asked.scopes, now_ns, None if expires_in_s is None else now_ns + round(expires_in_s * 1e9))
    with Store.open(path) as store:
        store.write(Batch((row,)))
    return {"token": text, **_told(row)}


def _listed(path: Path) -> list[dict[str, Any]]:
    """Tokens of a store that nobody holds."""
    from telemetry.store.reader import open_reader
    from telemetry.tokens import standing

    with open_reader(path) as reader:
        return [_told(row) for row in standing(reader).values()]


def _revoke(path: Path, token_id: str) -> dict[str, Any]:
    """Revoke a token in a store that nobody holds."""
    from telemetry.errors import UnknownId
    from telemetry.store.batch import Batch
    from telemetry.store.file import Store
    from telemetry.tokens import revoked, standing

    if not path.exists():
        raise UnknownId("store", str(path), "no such file; give --store")
    with Store.open(path) as store:
        with store.reader() as reader:
            row = revoked(standing(reader), token_id, time.time_ns())
        store.write(Batch((row,)))
    return _told(row)


def _told(row: Any) -> dict[str, Any]:
    """What is told of a token."""
    from service.token_schemas import TokenOut

    return TokenOut.of(row, time.time_ns()).model_dump()


def minute(wall_ns: int) -> str:
    """An instant in UTC, to the minute."""
    return time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(wall_ns / 1e9))
