"""The list of commands. Each imports what it needs when it runs, so that `phasecast doctor` answers at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from pydantic import ValidationError

from service.cli import answer, backtest, calibrate, fit, freeze, grant, host, hosts, imports, keep, report, serve, shadow, token
from service.cli.options import Failure
from telemetry.errors import (
    CeilingTooSmall,
    NoEvidence,
    NoGrant,
    NotInForce,
    NotReached,
    OtherHost,
    PhasecastError,
    ProbeNotNamed,
    StoreError,
    StoreHeld,
)

app = typer.Typer(
    name="phasecast",
    help="How long things will take, as probability distributions that stay true.",
    no_args_is_help=True,
    epilog="Exit codes: 0 done; 1 not possible as asked; 2 wrong use; 3 another process holds the store; "
    "4 nothing known to answer from; 5 the API did not answer; 6 the store cannot serve; "
    "7 a measurement was stopped and is partial. Measuring refused: 10 no grant; 11 grant not in force; "
    "12 grant for another host; 13 probe not named; 14 ceiling too small.",
    pretty_exceptions_enable=False,
    add_completion=False,
)
EXIT_CODES: dict[type[PhasecastError], int] = {
    StoreHeld: 3,
    NoEvidence: 4,
    NotReached: 5,
    StoreError: 6,
    NoGrant: 10,
    NotInForce: 11,
    OtherHost: 12,
    ProbeNotNamed: 13,
    CeilingTooSmall: 14,
}
"""Exit codes beside 0 (done), 1 (any other error of ours) and 2 (wrong use)."""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(version("phasecast"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Hold the options common to all commands."""


app.command()(host.doctor)
app.command()(serve.serve)
app.command()(serve.snapshot)
app.command()(answer.predict)
app.command()(answer.residual)
app.command()(fit.fit)
app.command()(backtest.backtest)
app.command()(host.demo)
app.command("import")(imports.import_files)
app.command()(keep.export)
app.command()(keep.backup)
app.command()(keep.restore)
app.command()(keep.compact)
app.command()(calibrate.calibrate)
app.add_typer(hosts.app, name="hosts")
app.add_typer(grant.app, name="grant")
app.command()(freeze.freeze)
app.command()(freeze.score)
app.command()(report.report)
app.add_typer(shadow.app, name="shadow")
app.add_typer(token.app, name="token")


def main() -> None:
    """Run a command; one of our errors is told in a line or two, never as a trace."""
    try:
        app()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        typer.echo(Failure(field, str(first["input"]), first["msg"].removeprefix("Value error, ")).text(), err=True)
        sys.exit(1)
    except OSError as error:
        fix = "check that the path exists, that you may use it, and that the disk has room"
        typer.echo(Failure(str(error.filename or "system"), error.strerror or str(error), fix).text(), err=True)
        sys.exit(1)
    except PhasecastError as error:
        code = next((c for kind, c in EXIT_CODES.items() if isinstance(error, kind)), 1)
        typer.echo(Failure.of(error).text(), err=True)
        sys.exit(code)


if __name__ == "__main__":
    main()
