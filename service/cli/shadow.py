"""`phasecast shadow`: those who do not answer beside what was served, and who is to answer; served or not."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.cli.options import JsonOption, StoreOption, print_json, store_path
from service.cli.served import ask_served

if TYPE_CHECKING:
    from telemetry.store.reader import Reader
    from telemetry.verdicts import Change

app = typer.Typer(help="Challengers and outside predictors: the scoreboard, and who answers.", invoke_without_command=True)
PredictorArgument = Annotated[str, typer.Argument(help="Name of the predictor.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept on record.")]
OperatorOption = Annotated[str | None, typer.Option("--by", help="Who decides; you, if left out.")]
NewestOption = Annotated[int, typer.Option("--newest", min=1, max=100_000, help="Newest forecasts to score.")]


@app.callback()
def board(context: typer.Context, newest: NewestOption = 20_000, store: StoreOption = None, json: JsonOption = False) -> None:
    """Show the scoreboard: by how much, and how surely, each one differs from what was served."""
    from service.shadow_schemas import ShadowOut

    if context.invoked_subcommand is not None:
        return
    path = store_path(store)
    told = ask_served(path, "GET", f"/v1/reports/shadow?newest={newest}") or _reported(path, newest)
    found = ShadowOut.model_validate(told)
    if json:
        print_json(found.model_dump())
        return
    typer.echo(f"in office: {found.in_office}; {found.late_count} forecasts came too late")
    for one in found.standings:
        ratio = f"{one.ratio.estimate:.3f} ({one.ratio.low:.3f} to {one.ratio.high:.3f})" if one.ratio else "not known yet"
        typer.echo(
            f"{one.predictor} [{one.source}] {one.phase or 'all phases'}: {one.counts['scored']} scored of {one.runs} runs, "
            f"CRPS {one.predictor_crps_log:.4g} beside {one.champion_crps_log:.4g} nats, ratio {ratio}, "
            f"{one.wins} wins {one.ties} ties {one.losses} losses"
        )
        typer.echo(f"  {one.action}: {one.reason}")
    for change in found.promotions:
        over = f"; withdrawn: {change.undone_reason}" if change.undone_ns else ""
        typer.echo(f"{change.change_id} {change.action} {change.subject} by {change.decided_by}: {change.reason}{over}")


@app.command()
def promote(
    predictor: PredictorArgument,
    reason: ReasonOption,
    by: OperatorOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Have an expert of the model, or a rule of thumb, answer from now on, whatever the rule of promotion says."""
    _decide("promote", predictor, reason, by, store, as_json=json)


@app.command()
def demote(
    predictor: PredictorArgument,
    reason: ReasonOption,
    by: OperatorOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Have a predictor answer no more: the one before it answers again."""
    _decide("demote", predictor, reason, by, store, as_json=json)


@app.command()
def hold(
    predictor: PredictorArgument,
    reason: ReasonOption,
    by: OperatorOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Keep the rule off a predictor until this is withdrawn."""
    _decide("hold", predictor, reason, by, store, as_json=json)


@app.command()
def withdraw(
    change_id: Annotated[str, typer.Argument(help="Id of the decision, as `phasecast shadow` shows it.")],
    reason: ReasonOption,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """End a decision; it stays on record with the reason."""
    from urllib.parse import quote, urlencode

    from service import shadow
    from telemetry import asof_verdicts

    def row(reader: Reader, commit: int) -> Change:
        return shadow.ended(asof_verdicts.promotions(reader, commit), change_id, reason, time.time_ns())

    path = store_path(store)
    place = f"/v1/promotions/{quote(change_id, safe='')}?{urlencode({'reason': reason})}"
    _say(ask_served(path, "DELETE", place) or _written(path, row), "withdrawn", as_json=json)


def _decide(
    action: Literal["promote", "demote", "hold"],
    predictor: str,
    reason: str,
    by: str | None,
    store: Path | None,
    *,
    as_json: bool,
) -> None:
    """Put an operator's decision on record."""
    from service import shadow
    from service.shadow_schemas import PromotionIn

    asked = PromotionIn(predictor=predictor, action=action, operator=by or getpass.getuser(), reason=reason)
    path = store_path(store)
    told = ask_served(path, "POST", "/v1/promotions", asked.model_dump()) or _written(
        path, lambda _reader, _commit: shadow.decided(asked, time.time_ns())
    )
    _say(told, action, as_json=as_json)


def _say(told: dict[str, Any], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['change_id']}: {what} {told['subject']}, decided by {told['decided_by']}")


def _reported(path: Path, newest: int) -> dict[str, Any]:
    """The scoreboard of a store that nobody holds."""
    from service import shadow
    from telemetry.store.reader import open_reader

    with open_reader(path) as reader:
        [(commit,)] = reader.rows("SELECT coalesce(max(known_from), 0) FROM commits")
        return shadow.report(reader, int(commit), newest).model_dump()


def _written(path: Path, row: Callable[[Reader, int], Change]) -> dict[str, Any]:
    """Put a decision into a store that nobody holds."""
    from service import shadow
    from telemetry.store.batch import Batch
    from telemetry.store.file import Store

    with Store.open(path) as store, store.reader() as reader:
        change = row(reader, store.last_commit)
        store.write(Batch((change,)))
    return shadow.told(change).model_dump()
