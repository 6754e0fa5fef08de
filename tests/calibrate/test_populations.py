"""Sealed populations: parts are apart, data are those sealed, and the locked part is opened once."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from calibrate.evidence.forecasts import MadeFrom, Manifest, digest, opened, sealed
from calibrate.evidence.populations import ALREADY_OPENED, PartName, Population, held, may_open, opening_id
from telemetry.errors import BadField, Conflict
from telemetry.verdicts import Opening

DATA = {PartName.DEVELOPMENT: b"dev", PartName.VALIDATION: b"val", PartName.LOCKED_TEST: b"test"}


def population(**values: Any) -> Population:
    parts = {
        name: {"sha256": digest(data), "families": [f"family of {name}"], "seeds": [len(data) + k * 10]}
        for k, (name, data) in enumerate(DATA.items())
    }
    given = {
        "name": "graphs-1",
        "frozen_ns": 7,
        "generator": {"name": "graphs", "version": "3"},
        "ranges": {"depth": [2, 9], "joins": ["all", "any"]},
        "parts": parts,
    }
    return Population.model_validate({**given, **values})


def forecasts(**made_from: str) -> Manifest:
    hashes = {"code_sha256": "c" * 64, "model_sha256": "m" * 64, **made_from}
    return Manifest.model_validate(
        {"name": "mine", "frozen_ns": 8, "made_from": hashes, "calls": [{"id": "a", "predicted": True, "test": "t"}]}
    )


def look(part: PartName = PartName.LOCKED_TEST, scored: str = "f-1", model: str = "m" * 64, code: str = "c" * 64) -> Opening:
    return Opening(
        opening_id=opening_id("p-1", part, scored, "o" * 64, model, code),
        forecast_id="p-1",
        part=part,
        opened_ns=9,
        scored_id=scored,
        outcomes_sha256="o" * 64,
        model_sha256=model,
        code_sha256=code,
        report="{}",
    )


def test_a_population_is_sealed_like_a_manifest() -> None:
    made = population()
    assert made == opened(sealed(made), Population)[0]
    with pytest.raises(Conflict, match="manifest"):
        opened(sealed(made).replace(b"graphs-1", b"graphs-2"), Population)


def test_data_are_those_sealed() -> None:
    held(population(), PartName.LOCKED_TEST, b"test")
    with pytest.raises(Conflict, match="locked_test"):
        held(population(), PartName.LOCKED_TEST, b"tesT")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"locked_test": None}, "part locked_test is missing"),
        ({"locked_test": {"sha256": digest(b"dev"), "families": ["x"]}}, "share a sha256"),
        ({"locked_test": {"sha256": digest(b"other"), "families": ["x"], "seeds": [3]}}, "share a seed"),
        ({"locked_test": {"sha256": "short", "families": ["x"]}}, "sha256"),
    ],
)
def test_parts_that_are_not_apart_are_refused(change: dict[str, Any], told: str) -> None:
    parts = {name.value: part.model_dump() for name, part in population().parts.items()} | change
    with pytest.raises(ValidationError, match=told):
        population(parts={name: part for name, part in parts.items() if part})


def test_the_locked_part_opens_once_and_the_same_look_is_the_same() -> None:
    assert None is may_open(PartName.LOCKED_TEST, forecasts(), look(), [])
    assert look() == may_open(PartName.LOCKED_TEST, forecasts(), look(), [look()])


@pytest.mark.parametrize("changed", [{"scored": "f-2"}, {"model": "n" * 64}, {"code": "d" * 64}])
def test_after_any_change_it_is_already_opened(changed: dict[str, str]) -> None:
    with pytest.raises(Conflict, match=ALREADY_OPENED) as refused:
        may_open(PartName.LOCKED_TEST, forecasts(), look(**changed), [look()])  # type: ignore[arg-type]
    assert refused.value.got == "already_opened: locked_test of p-1, by f-1"


@pytest.mark.parametrize("field", ["code_sha256", "model_sha256"])
def test_it_opens_for_frozen_code_and_model_only(field: str) -> None:
    with pytest.raises(BadField, match=field):
        may_open(PartName.LOCKED_TEST, forecasts(**{field: ""}), look(), [])


def test_other_parts_may_be_looked_at_as_often_as_wanted() -> None:
    before = [look(PartName.VALIDATION), look()]
    assert None is may_open(PartName.VALIDATION, forecasts(), look(PartName.VALIDATION, "f-2"), before)
    assert before[0] == may_open(PartName.VALIDATION, forecasts(), look(PartName.VALIDATION), before)


def test_the_hashes_of_another_population_do_not_lock_this_one() -> None:
    other = look().model_copy(update={"forecast_id": "p-2", "opening_id": "x"})
    assert None is may_open(PartName.LOCKED_TEST, forecasts(), look(), [other])


def test_made_from_names_the_part_it_is_for() -> None:
    assert ("p-1", "locked_test") == ((made := MadeFrom(population="p-1", part="locked_test")).population, made.part)
