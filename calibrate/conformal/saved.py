"""The calibrated model as one file, arrays and JSON: everything it answers and learns from, so that a restart answers as before.

Schema 1 holds the model of record alone, as earlier programs served it; such files are read still.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.conformal.ages import Ages, Reached, Typical
from calibrate.conformal.controlled import Controlled, Waiting
from calibrate.conformal.groups import Groups
from calibrate.conformal.held import Held, Holding
from calibrate.conformal.mixture import Levels
from calibrate.conformal.pit import Histogram, Recalibration
from calibrate.conformal.wrap import Calibrated
from calibrate.evidence import watchfile
from predictors import ensemblefile, modelfile
from predictors.hazards import HierarchicalHazards
from predictors.layered import Layered
from telemetry.ledger import ModelFile

SCHEMA = 2
FAMILY = "calibrated"


def save(model: Calibrated, folder: Path, *, settings: Mapping[str, Any], fitted_ns: int) -> ModelFile:
    """Writes the model into `folder` and gives its row with these settings. The name holds the hash."""
    return modelfile.write(packed(model), model.inner.record, folder, family=FAMILY, settings=settings, fitted_ns=fitted_ns)


def load(path: Path, sha256: str) -> Calibrated | HierarchicalHazards:
    """The model in a file of any schema; DamagedStore where its bytes are not those that were written."""
    return unpacked(modelfile.content_of(path, sha256))


def packed(model: Calibrated) -> bytes:
    """The file's bytes: the same for the same model."""
    arrays: dict[str, Any] = {}
    header = {
        "schema": SCHEMA,
        "family": FAMILY,
        "recalibration": ensemblefile.pack_mapping("recalibration", model.recalibration.nodes, arrays),
        "watching": watchfile.pack(model.watching, arrays),
        "newest": dict(model.newest),
        "typical_ages": ensemblefile.pack_mapping("typical_ages", model.ages.typical, arrays),
        "aged": ensemblefile.pack_mapping("aged", model.ages.nodes, arrays),
        "controllers": ensemblefile.pack_mapping("controllers", model.controlled.groups.states, arrays),
        "waiting": ensemblefile.pack_mapping("waiting", model.controlled.waiting, arrays),
        "most": model.controlled.most,
        "held": ensemblefile.pack_mapping("held", dict(model.controlled.holding.held), arrays),
        "held_as_of_s": model.controlled.holding.clock_s,
    } | ensemblefile.pack(model.inner, arrays)
    return modelfile.archived(header, arrays)


def unpacked(content: bytes) -> Calibrated | HierarchicalHazards:
    """The model from a file's bytes; NewerStore for a later schema."""
    header, arrays = modelfile.opened(content, SCHEMA)
    if header["schema"] == modelfile.SCHEMA:
        return modelfile.unpack(header, arrays)
    nodes = ensemblefile.unpack_mapping("recalibration", header["recalibration"], arrays, Histogram)
    watching = watchfile.unpack(header.get("watching"), arrays)
    inner, newest = ensemblefile.unpack(header, arrays), Layered(dict(header.get("newest", {})))
    return Calibrated(inner, Recalibration(Layered(nodes)), watching, _ages(header, arrays), newest, _controlled(header, arrays))


def _controlled(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Controlled:
    """Level controllers: as they start, in files of programs that had none."""
    if "controllers" not in header:
        return Controlled()
    return Controlled(
        Groups(Layered(ensemblefile.unpack_mapping("controllers", header["controllers"], arrays, Levels))),
        ensemblefile.unpack_mapping("waiting", header["waiting"], arrays, Waiting),
        header["most"],
        _holding(header, arrays),
    )


def _holding(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Holding:
    """Outcomes held back: none, in files of programs that held none."""
    if "held" not in header:
        return Holding()
    held = ensemblefile.unpack_mapping("held", header["held"], arrays, Held)
    return Holding(tuple(held.items()), header["held_as_of_s"])


def _ages(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Ages:
    """What is known of ages: nothing, in files of programs that did not tell ages apart."""
    if "aged" not in header:
        return Ages()
    return Ages(
        Layered(ensemblefile.unpack_mapping("typical_ages", header["typical_ages"], arrays, Typical)),
        Layered(ensemblefile.unpack_mapping("aged", header["aged"], arrays, Reached)),
    )
