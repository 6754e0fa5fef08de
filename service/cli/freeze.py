"""`phasecast freeze` and `score`: forecasts sealed before their outcomes exist, and what became of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import JsonOption, StoreOption, json_object, print_json, store_path
from service.cli.served import ask_served

if TYPE_CHECKING:
    from pydantic import BaseModel

    from service.frozen_schemas import CohortIn, ScoreOut
    from telemetry.verdicts import Forecast

ModelOption = Annotated[Path | None, typer.Option("--model", help="File of a model of your own, held to its hash.")]
DataOption = Annotated[Path | None, typer.Option("--data", help="File your forecasts were made from, held to its hash.")]
CodeOption = Annotated[Path | None, typer.Option("--code", help="File of the code that made them, held to its hash.")]
KINDS = ("numbers", "contrasts", "calls", "gains")


def freeze(
    cohort: Annotated[Path, typer.Argument(help="JSON: a cohort to forecast, or a population with its parts.")],
    out: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    model: ModelOption = None,
    data: DataOption = None,
    code: CodeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Seal forecasts (or a population) with their SHA-256, before outcomes exist. Works while the store is served."""
    from service.frozen_schemas import CohortIn, FrozenOut, PopulationIn
    from telemetry.errors import BadField

    if out.exists():
        raise BadField("OUT", str(out), "it exists; a frozen file is never written again, name a new one")
    path, asked = store_path(store), json_object(str(cohort), cohort.read_text())
    if "parts" in asked:
        population = PopulationIn.model_validate(asked | {"parts": _hashed(asked["parts"], cohort.parent)})
        told = _posted(path, "/v1/forecasts/populations", population) or _sealed(path, population)
    else:
        given = CohortIn.model_validate(asked | ({"hashes": hashes} if (hashes := _hashes(code, model, data)) else {}))
        told = _posted(path, "/v1/forecasts", given) or _frozen(path, given)
    found = FrozenOut.model_validate(told)
    out.write_bytes(found.file.encode())
    if json:
        print_json(found.model_dump(exclude={"file"}) | {"file": str(out)})
    else:
        typer.echo(f"{out}: frozen as {found.forecast_id}, SHA-256 {found.sha256}")


def score(
    manifest: Annotated[Path, typer.Argument(help="File as `freeze` wrote it.")],
    outcomes: Annotated[Path | None, typer.Argument(help="JSON of outcomes; found in the store by attempt if left out.")] = None,
    model: ModelOption = None,
    data: DataOption = None,
    code: CodeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Score frozen forecasts, misses first. Refused where anything is not as it was frozen."""
    from calibrate.evidence.forecasts import Manifest, opened
    from service.frozen_schemas import ScoreIn, ScoreOut

    file = manifest.read_bytes()
    _, sha256 = opened(file, Manifest)
    asked = ScoreIn.model_validate(
        {
            "file": file.decode(),
            "outcomes": outcomes.read_text() if outcomes else None,
            "hashes": _hashes(code, model, data),
        }
    )
    path, forecast_id = store_path(store), sha256[:16]
    found = ScoreOut.model_validate(
        _posted(path, f"/v1/forecasts/{forecast_id}/score", asked) or _scored(path, forecast_id, asked)
    )
    if json:
        print_json(found.model_dump())
    else:
        _tell(found)


def _tell(found: ScoreOut) -> None:
    """The scores for people: misses, what is missing, then counts."""
    report = found.report
    typer.echo(f"{found.forecast_id}, part {found.part}{' (looked at before)' if found.repeated else ''}")
    for kind in KINDS:
        for one in report[kind]:
            if one["hit"] is not True:
                typer.echo(f"  {'MISS' if one['hit'] is False else 'missing'} {kind[:-1]} {one['id']}: {one['note']}")
    for kind in KINDS:
        counts = report["counts"][kind]
        if any(counts.values()):
            typer.echo(f"{kind}: {', '.join(f'{count} {name}' for name, count in counts.items())}")
    for one in report["passed"]:
        share = one["share"]
        typer.echo(f"p{100 * one['level']:g} passed by {share['estimate']:.1%} ({share['low']:.1%} to {share['high']:.1%})")
    if (against := report["against"]) is not None:
        off = against["difference"]
        by_run = f"; error less by {off['estimate']:.3g} ({off['low']:.3g} to {off['high']:.3g}, {off['n']} runs)" if off else ""
        typer.echo(f"against the reference: {against['wins']} wins, {against['ties']} ties, {against['losses']} losses{by_run}")
    if report["worst"] is not None:
        known = ", ".join(f"{count} with {name}" for name, count in report["information"].items())
        typer.echo(f"worst case: {report['worst']}; information: {known}")


def _hashes(code: Path | None, model: Path | None, data: Path | None) -> dict[str, str]:
    """SHA-256 of the files named."""
    from calibrate.evidence.forecasts import digest

    named = {"code_sha256": code, "model_sha256": model, "data_sha256": data}
    return {name: digest(path.read_bytes()) for name, path in named.items() if path is not None}


def _hashed(parts: Any, folder: Path) -> Any:
    """Parts with the hash of each one's `file` (beside the JSON that names it) in its place."""
    from calibrate.evidence.forecasts import digest

    if not isinstance(parts, dict):
        return parts
    found = {}
    for name, part in parts.items():
        told = dict(part) if isinstance(part, dict) else part
        if isinstance(told, dict) and "file" in told:
            told["sha256"] = digest((folder / str(told.pop("file"))).read_bytes())
        found[name] = told
    return found


def _posted(path: Path, place: str, body: BaseModel) -> dict[str, Any] | None:
    """The answer of the API that holds the store; None where nobody serves it."""
    return ask_served(path, "POST", place, body.model_dump(mode="json", exclude_none=True))


def _frozen(path: Path, cohort: CohortIn) -> dict[str, Any]:
    """Freeze on a store that nobody holds."""
    from service.frozen import frozen
    from service.local import local_lineup
    from telemetry.store.batch import Batch
    from telemetry.store.file import Store

    serving = None
    if cohort.asked:
        with local_lineup(path) as lineup:
            serving = lineup.serving
    with Store.open(path) as store, store.reader() as reader:
        row = frozen(cohort, serving, reader, store.last_commit, time.time_ns())
        store.write(Batch((row,)))
    return _told(row)


def _sealed(path: Path, population: Any) -> dict[str, Any]:
    """Seal a population on a store that nobody holds."""
    from service.frozen import sealed_population
    from telemetry.store.batch import Batch
    from telemetry.store.file import Store

    row = sealed_population(population, time.time_ns())
    with Store.open(path) as store:
        store.write(Batch((row,)))
    return _told(row)


def _scored(path: Path, forecast_id: str, asked: Any) -> dict[str, Any]:
    """Score on a store that nobody holds."""
    from service.frozen import scored
    from telemetry.errors import UnknownId
    from telemetry.store.batch import Batch
    from telemetry.store.file import Store

    if not path.exists():
        raise UnknownId("store", str(path), "no such file; give --store, the one in which it was frozen")
    with Store.open(path) as store, store.reader() as reader:
        found, opening = scored(forecast_id, asked, reader, path, store.last_commit, time.time_ns())
        if not found.repeated:
            store.write(Batch((opening,)))
    return found.model_dump()


def _told(row: Forecast) -> dict[str, Any]:
    from service.frozen import told

    return told(row).model_dump()
