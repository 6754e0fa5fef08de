"""Freezing at the edge: a cohort asked of the model that serves, its hashes, and scores against files or the store."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cache
from pathlib import Path

import orjson

from calibrate.evidence.forecasts import (
    ErrorName,
    MadeFrom,
    Manifest,
    Number,
    Outcomes,
    as_frozen,
    digest,
    opened,
    same_outcomes,
    sealed,
    written,
)
from calibrate.evidence.frozen_scores import score
from calibrate.evidence.populations import PartFile, PartName, Population, held, may_open, opening_id
from predictors.contexts import Context
from service.answerers import file_of, fitted_as_of
from service.engine import Asking, Question, Serving, ask
from service.frozen_schemas import AskedIn, CohortIn, FrozenOut, PopulationIn, ScoreIn, ScoreOut
from service.schemas import DEFAULT_LEVELS
from service.settings import models_folder
from telemetry import asof, asof_verdicts
from telemetry.errors import BadField, Conflict, NoEvidence, UnknownId
from telemetry.recorder.ids import uuid7
from telemetry.store.reader import Reader
from telemetry.verdicts import Forecast, Opening
from telemetry.words import Ended

WHOLE = "all"
"""Part of a manifest that belongs to no population."""


def frozen(cohort: CohortIn, serving: Serving | None, reader: Reader, commit: int, now_ns: int) -> Forecast:
    """A cohort as a row to commit. Raises NoEvidence where the model knows nothing of what is asked of it."""
    numbers, made_from = list(cohort.numbers), MadeFrom(**cohort.hashes.model_dump(exclude_none=True))
    if cohort.asked:
        if serving is None:
            raise NoEvidence("asked", "no model", "no finished attempt is known; POST their events to /v1/events first")
        numbers += _answers(cohort.asked, serving, now_ns)
        made_from = _made_from(reader, serving, commit)
    if cohort.population is not None and cohort.part is not None:
        _population(reader, cohort.population, commit)
        made_from = made_from.model_copy(update={"population": cohort.population, "part": cohort.part.value})
    manifest = Manifest(
        name=cohort.name,
        frozen_ns=now_ns,
        made_from=made_from,
        numbers=numbers,
        contrasts=cohort.contrasts,
        calls=cohort.calls,
        gains=cohort.gains,
        attempts={one.id: (one.attempt_id, one.phase) for one in cohort.asked if one.attempt_id is not None},
    )
    return _row("forecast", manifest.name, written(manifest), now_ns)


def sealed_population(asked: PopulationIn, now_ns: int) -> Forecast:
    """A population as a row to commit."""
    parts = {name: PartFile(**part.model_dump()) for name, part in asked.parts.items()}
    population = Population(name=asked.name, frozen_ns=now_ns, generator=asked.generator, ranges=asked.ranges, parts=parts)
    return _row("population", population.name, written(population), now_ns)


def told(row: Forecast) -> FrozenOut:
    """A frozen row on the wire, with the file to keep."""
    kind = Population if row.kind == "population" else Manifest
    file = sealed(kind.model_validate_json(row.manifest)).decode()
    return FrozenOut(forecast_id=row.forecast_id, sha256=row.sha256, frozen_ns=row.frozen_ns, file=file)


def scored(forecast_id: str, asked: ScoreIn, reader: Reader, store: Path, commit: int, now_ns: int) -> tuple[ScoreOut, Opening]:
    """Score frozen forecasts; the opening is to be committed unless it was before (`repeated`).

    Raises UnknownId, and Conflict with a message of its own for each thing that is not as it was frozen: manifest, model, data,
    code, outcomes, or a locked part that was opened with something else.
    """
    row, manifest = _intact(reader, forecast_id, asked, commit)
    as_frozen(manifest.made_from, _now(manifest.made_from, asked, reader, store, commit))
    text = _outcomes(manifest, reader, commit) if asked.outcomes is None else asked.outcomes.encode()
    before = asof_verdicts.openings(reader, forecast_id, commit)
    if asked.outcomes is not None:
        same_outcomes([one.outcomes_sha256 for one in before if one.scored_id == forecast_id], digest(text))
    looked_at, part = manifest.made_from.population or forecast_id, manifest.made_from.part or WHOLE
    wanted = _opening(looked_at, part, row, manifest.made_from, digest(text), now_ns)
    standing = next((one for one in before if one.opening_id == wanted.opening_id), None)
    if manifest.made_from.population is not None:
        population = _population(reader, looked_at, commit)
        held(population, PartName(part), text)
        standing = may_open(PartName(part), manifest, wanted, asof_verdicts.openings(reader, looked_at, commit))
    if standing is None:
        standing = wanted.model_copy(update={"report": _report(manifest, text)})
    found = ScoreOut(
        forecast_id=forecast_id,
        opening_id=standing.opening_id,
        part=part,
        opened_ns=standing.opened_ns,
        repeated=standing.opened_ns != now_ns,
        report=orjson.loads(standing.report),
    )
    return found, standing


@cache
def code_sha256() -> str:
    """SHA-256 of this program: the names and contents of its modules, in order of name."""
    root, found = Path(__file__).resolve().parents[1], hashlib.sha256()
    for package in ("telemetry", "predictors", "calibrate", "service"):
        for path in sorted((root / package).rglob("*.py")):
            found.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return found.hexdigest()


def _answers(asked: list[AskedIn], serving: Serving, now_ns: int) -> list[Number]:
    """What the model that serves says, as numbers to freeze."""
    questions = [Question(one.phase, Context(**one.context.model_dump())) for one in asked]
    levels = sorted({*DEFAULT_LEVELS, *(one.level for one in asked)})
    answered = ask(serving, questions, Asking(tuple(levels), uuid7(), tuple(uuid7() for _ in asked), now_ns))
    found = []
    for one, answer in zip(asked, answered, strict=True):
        told = orjson.loads(answer.body)
        if told["quantiles_s"] is None:
            raise NoEvidence(f"asked.{one.id}", one.phase, told["needs"])
        at = dict(zip(levels, told["quantiles_s"], strict=True))
        found.append(
            Number(
                id=one.id,
                predicted=at[one.level],
                unit="s",
                error=one.error if at[one.level] > 0.0 else ErrorName.TO_ACTUAL,
                tolerance=one.tolerance,
                run=one.run,
                information=one.information,
                reference=one.reference,
                levels=DEFAULT_LEVELS,
                quantiles=[at[level] for level in DEFAULT_LEVELS],
            )
        )
    return found


def _made_from(reader: Reader, serving: Serving, commit: int) -> MadeFrom:
    """Model, commit and data of the answers."""
    if fitted_as_of(serving.model_id) is not None:
        fix = "the rule in office has no file whose hash could be frozen; freeze its forecasts as your own, or demote it first"
        raise NoEvidence("model", serving.model_id, fix)
    row = next((one for one in asof.models(reader, commit) if one.model_id == file_of(serving.model_id)), None)
    if row is None:
        raise NoEvidence("model", serving.model_id, "its file is not on record yet; freeze again in a second")
    at = serving.model.commit
    return MadeFrom(
        code_sha256=code_sha256(),
        model_sha256=row.sha256,
        data_sha256=asof_verdicts.evidence_sha256(reader, at),
        model_id=serving.model_id,
        as_of_commit=at,
    )


def _now(made_from: MadeFrom, asked: ScoreIn, reader: Reader, store: Path, commit: int) -> MadeFrom:
    """The hashes as they are now: those of the store's own model and data where they forecast, else as the caller tells them.

    A newer version of this program scores what is in a manifest no differently; a locked part wants the very one that forecast.
    """
    if made_from.model_id is None or made_from.as_of_commit is None:
        return MadeFrom(**asked.hashes.model_dump(exclude_none=True))
    row = next((one for one in asof.models(reader, commit) if one.model_id == file_of(made_from.model_id)), None)
    path = models_folder(store) / row.file_name if row else None
    on_record = row.sha256 if row else ""  # files of older fits are removed in time, and the forecasts are in the manifest
    return MadeFrom(
        code_sha256=code_sha256() if made_from.population else made_from.code_sha256,
        model_sha256=digest(path.read_bytes()) if path and path.exists() else on_record,
        data_sha256=asof_verdicts.evidence_sha256(reader, made_from.as_of_commit),
    )


def _intact(reader: Reader, forecast_id: str, asked: ScoreIn, commit: int) -> tuple[Forecast, Manifest]:
    """The frozen row and its manifest, held against the file that was kept."""
    row = asof_verdicts.forecast(reader, forecast_id, commit)
    if row is None or row.kind != "forecast":
        raise UnknownId("forecast_id", forecast_id, "nothing was frozen here under this id; POST /v1/forecasts freezes")
    fix = "it was edited after it was frozen; score the one that was frozen"
    if digest(row.manifest.encode()) != row.sha256:
        raise Conflict("manifest", "a row of the store that was changed", fix)
    if asked.file is not None:
        _, sha256 = opened(asked.file.encode(), Manifest)
        if sha256 != row.sha256:
            raise Conflict("manifest", f"SHA-256 {sha256[:16]}..., frozen was {row.sha256[:16]}...", fix)
    return row, Manifest.model_validate_json(row.manifest)


def _population(reader: Reader, forecast_id: str, commit: int) -> Population:
    row = asof_verdicts.forecast(reader, forecast_id, commit)
    if row is None or row.kind != "population":
        raise UnknownId("population", forecast_id, "no population was sealed here under this id")
    return Population.model_validate_json(row.manifest)


def _outcomes(manifest: Manifest, reader: Reader, commit: int) -> bytes:
    """Lengths of the attempts that were forecast, as far as they completed by now."""
    standing = asof.standing(reader, sorted({attempt for attempt, _ in manifest.attempts.values()}), commit)
    lengths_s = {
        (row.attempt_id, row.phase): row.duration_s
        for row in standing.values()
        if row.ended is Ended.COMPLETED and row.segment == 0 and row.duration_s is not None
    }
    known = {name: lengths_s[key] for name, key in manifest.attempts.items() if key in lengths_s}
    if not known:
        raise BadField("outcomes", "none", "none of the attempts has completed; wait, or give outcomes")
    return orjson.dumps({"numbers": known}, option=orjson.OPT_SORT_KEYS)


def _report(manifest: Manifest, text: bytes) -> str:
    """The scores as JSON."""
    report = score(manifest, Outcomes.model_validate_json(text))
    return orjson.dumps({"counts": report.counts(), **asdict(report)}).decode()


def _opening(looked_at: str, part: str, row: Forecast, made_from: MadeFrom, outcomes: str, now_ns: int) -> Opening:
    """One look, without its report yet."""
    model, code = made_from.model_sha256, made_from.code_sha256
    return Opening(
        opening_id=opening_id(looked_at, part, row.forecast_id, outcomes, model, code),
        forecast_id=looked_at,
        part=part,
        opened_ns=now_ns,
        scored_id=row.forecast_id,
        outcomes_sha256=outcomes,
        model_sha256=model,
        code_sha256=code,
        report="",
    )


def _row(kind: str, name: str, body: bytes, now_ns: int) -> Forecast:
    sha256 = digest(body)
    return Forecast(forecast_id=sha256[:16], kind=kind, name=name, sha256=sha256, manifest=body.decode(), frozen_ns=now_ns)
