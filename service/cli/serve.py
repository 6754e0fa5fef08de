"""`phasecast serve` and `phasecast snapshot`."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal

import typer

from service.cli.options import JsonOption, StoreOption, print_json, store_path


def serve(
    store: StoreOption = None,
    host: Annotated[
        str, typer.Option(help="Address to serve on. Where others can reach it, every call needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8787,
    sample: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds between samples of this machine's resources; 0 takes none. Sleeping GPUs sleep on."),
    ] = 0.0,
    sample_host: Annotated[
        str | None, typer.Option(help="Name of this machine in those samples; its host name by default.")
    ] = None,
    require_token: Annotated[bool, typer.Option("--require-token", help="Want a token from this machine's callers too.")] = False,
    rate_limit: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Requests a second of one token, or of one address without; 0 is no limit. Default: 1000, "
            "and no limit on a loopback address.",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(min=0, max=64, help="Processes that answer questions, each with the model in memory; 0: this one."),
    ] = 0,
    challenger: Annotated[
        list[str] | None,
        typer.Option(
            help="Who answers in shadow beside the model that serves, and may be promoted over it; once each, or `none`. "
            "Default: hazards and median_of_nine.",
        ),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Log lines for people, or JSON with a line a request.")
    ] = "text",
) -> None:
    """Serve the API, and own the store while it runs."""
    from service.answerers import known
    from service.http.app import serve as run
    from service.http.logs import configure
    from service.settings import Settings

    configure(log_format)
    path = store_path(store)
    path.parent.mkdir(parents=True, exist_ok=True)
    named = [known(name, "--challenger") for name in challenger or () if name != "none"]
    settings = Settings(
        store=path,
        host=host,
        port=port,
        sample_s=sample,
        sample_host=sample_host or socket.gethostname(),
        require_token=require_token,
        rate_per_s=rate_limit,
        workers=workers,
        challengers=Settings.challengers if challenger is None else tuple(named),
        log_format=log_format,
    )
    run(settings, lambda url: typer.echo(f"Phasecast serves {path} at {url}"))


def snapshot(
    out: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Copy the store, consistent at a commit, while it is served or while nobody holds it."""
    from telemetry.errors import BadField

    if out.exists():
        raise BadField("OUT", str(out), "it exists; name a new file")
    if not out.absolute().parent.is_dir():
        raise BadField("OUT", str(out), f"there is no folder {out.absolute().parent}; make it first")
    commit = copy_of(store_path(store), out)
    if json:
        print_json({"snapshot": str(out), "commit": commit, "size_bytes": out.stat().st_size})
    else:
        typer.echo(f"{out}: the store at commit {commit} ({out.stat().st_size} bytes); open it with any DuckDB client")


def copy_of(path: Path, out: Path) -> int:
    """Write a consistent copy of the store at `path`, whoever holds it; returns its commit."""
    from telemetry.store.lock import holder

    held = holder(path)
    return _copy_of_held(held.url, out) if held and held.url else _copy_of_free(path, out)


def _copy_of_held(url: str, out: Path) -> int:
    """Ask the process that holds the store."""
    from service.client.sync import Client, http_client
    from service.settings import default_token

    with http_client(url, token=default_token()) as http:
        return Client(http).snapshot(out)


def _copy_of_free(path: Path, out: Path) -> int:
    """Copy a store that nobody holds; StoreHeld if somebody without an address does."""
    from telemetry.errors import UnknownId
    from telemetry.store.file import Store

    if not path.exists():
        raise UnknownId("store", str(path), "no such file; give --store, or start `phasecast serve`")
    store = Store.open(path)
    try:
        return store.snapshot(out)
    finally:
        store.close()
