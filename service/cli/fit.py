"""`phasecast fit`: fit now, and tell which expert is believed where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import JsonOption, StoreOption, print_json, store_path

if TYPE_CHECKING:
    from predictors.explained import Stratum
    from service.local import Told

WIDE = ("phase", "novelty", "family", "host")
"""Levels shown as text; JSON has all."""
ROWS = 40


def fit(
    store: StoreOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Fit nothing: only tell of the model there is.")] = False,
    json: JsonOption = False,
) -> None:
    """Fit on all that is known, and tell how the experts are weighed, stratum by stratum.

    On a store that nobody serves: `phasecast serve` fits by itself.
    """
    from service.local import fitted_now, saved_model

    told = (saved_model if explain else fitted_now)(store_path(store))
    if json:
        print_json(told)
        return
    typer.echo(
        f"model {told.model_id} ({told.family}), experts fitted as of commit {told.fit_commit}, on {told.n_observations} rows; "
        f"it serves from commit {told.served_from}" + ("" if told.forest else "; no forest as yet")
    )
    _table(told)


def _table(told: Told) -> None:
    """Weight and mean loss of every expert in the wider strata."""
    from rich.console import Console
    from rich.table import Table

    shown = [one for one in told.strata if one.level in WIDE and one.losses][:ROWS]
    if not shown:
        typer.echo("no outcome of a question asked is known yet: experts have their first weights")
        return
    table = Table("level", "stratum", "n", "weight % of each expert (its mean CRPS of log time)")
    for one in shown:
        table.add_row(one.level, one.name, f"{one.n:.0f}", _weighed(one))
    Console().print(table)
    if len(shown) < len(told.strata):
        typer.echo(f"{len(shown)} of {len(told.strata)} strata; --json tells all")


def _weighed(one: Stratum) -> str:
    """Experts by weight, the heaviest first."""
    heaviest = sorted(one.weights, key=lambda expert: -one.weights[expert])
    return ", ".join(f"{expert} {100 * one.weights[expert]:.0f} ({one.losses[expert]:.3f})" for expert in heaviest)
