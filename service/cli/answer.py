"""`phasecast predict` and `phasecast residual`, on a store that nobody serves at the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import JsonOption, StoreOption, json_object, print_json, store_path

if TYPE_CHECKING:
    from service.engine import Question
    from service.lineup import Lineup
    from service.schemas import Answer

ContextOption = Annotated[
    str, typer.Option("--context", help='What is known, as JSON: \'{"host": "node-1", "state": "cold", "size_in": 64}\'.')
]
PhaseOption = Annotated[list[str], typer.Option("--phase", help="Phase to ask about; may be given more than once.")]
LevelOption = Annotated[list[float] | None, typer.Option("--level", help="Level in (0, 1); default 0.5, 0.9, 0.95, 0.99.")]


def predict(
    phase: PhaseOption,
    context: ContextOption = "{}",
    level: LevelOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Tell how long phases of an attempt will take."""
    from service.engine import Question
    from service.local import local_lineup

    known, levels = _context(context), _levels(level)
    with local_lineup(store_path(store)) as lineup:
        _tell(_answers(lineup, [Question(name, known) for name in phase], levels), as_json=json)


def residual(
    phase: PhaseOption,
    context: ContextOption = "{}",
    elapsed_s: Annotated[float | None, typer.Option(help="Age of the phase in s.")] = None,
    attempt_id: Annotated[str | None, typer.Option(help="A running attempt, instead of context and elapsed time.")] = None,
    level: LevelOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Tell how much longer a running phase will take."""
    from service.engine import Question
    from service.local import local_lineup
    from service.schemas import RunningIn
    from telemetry.errors import BadField

    known, levels = _context(context), _levels(level)
    if elapsed_s is None and attempt_id is None:
        raise BadField("--elapsed-s", "missing", "give --elapsed-s with --context, or --attempt-id")
    for name in phase:
        RunningIn.model_validate({"phase": name, "attempt_id": attempt_id or "-", "elapsed_s": elapsed_s})
    with local_lineup(store_path(store)) as lineup:
        if attempt_id is not None:
            questions = [lineup.running_question(attempt_id, name, elapsed_s) for name in phase]
        else:
            questions = [Question(name, known, None, elapsed_s, "given") for name in phase]
        _tell(_answers(lineup, questions, levels), as_json=json)


def _context(text: str) -> Any:
    """Context from the option, with the checks of the API."""
    from predictors.contexts import Context
    from service.schemas import ContextIn

    return Context(**ContextIn.model_validate(json_object("--context", text)).model_dump())


def _levels(given: list[float] | None) -> tuple[float, ...]:
    """Levels from the options, with the checks of the API."""
    from service.schemas import DEFAULT_LEVELS, PredictRequest

    asked = PredictRequest.model_validate({"contexts": [{}], "phases": ["any"], "levels": given or DEFAULT_LEVELS})
    return tuple(asked.levels)


def _answers(lineup: Lineup, questions: list[Question], levels: tuple[float, ...]) -> list[Answer]:
    """Ask, and keep the answers for the ledger."""
    import time

    from service.engine import Asking, ask
    from service.schemas import Answer
    from telemetry.recorder.ids import uuid7

    asking = Asking(levels, uuid7(), tuple(uuid7() for _ in questions), time.time_ns())
    answered = ask(lineup.serving, questions, asking)
    lineup.ledger.extend(a.row for a in answered if a.row is not None)
    return [Answer.model_validate_json(a.body) for a in answered]


def _tell(answers: list[Answer], *, as_json: bool) -> None:
    """Print answers as JSON or as a table."""
    if as_json:
        print_json({"answers": [a.model_dump() for a in answers]})
        return
    from rich.console import Console
    from rich.table import Column, Table

    wide = [Column("status", overflow="fold"), Column("evidence", overflow="fold")]
    table = Table("phase", *wide, *[f"p{100 * p:g} s" for p in answers[0].levels], "mean s")
    for a in answers:
        evidence = f"{a.support.n} at {a.support.level}" if a.support else "none"
        values = a.quantiles_s or []
        cells = [f"{v:.4g}" for v in values] or ["-"] * len(a.levels)
        table.add_row(
            a.phase, f"{a.status}: {', '.join(a.reasons)}", evidence, *cells, f"{a.mean_s:.4g}" if a.mean_s is not None else "-"
        )
    Console().print(table)
    for a in answers:
        for b in a.beyond:
            least = f"at least {b.at_least_s:.4g} s; further outcomes needed: {b.needs_n}"
            typer.echo(f"{a.phase}: p{100 * b.level:g} is not claimed yet ({least})")
        if a.needs:
            typer.echo(f"{a.phase}: {a.needs}")
