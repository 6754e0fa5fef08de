"""What an ensemble is in a model file: the model of record, the forest, and the memory, so that it goes on as before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from predictors import columns, modelfile
from predictors.aggregate import Losses, Weights
from predictors.contexts import Context
from predictors.distribution import GRID
from predictors.ensemble import EXPERTS, Ensemble
from predictors.experts.asked import Asked
from predictors.experts.forest import Forest
from predictors.experts.histories import FEATURES, Centres, Histories, Mean, Recent
from predictors.experts.lessons import Lessons
from predictors.experts.pace import Pace, Ran
from predictors.experts.windows import Window
from predictors.layered import Layered
from predictors.nowcast import Host, Memory, cast_of
from telemetry.errors import DamagedStore

V = TypeVar("V")
Arrays = dict[str, Any]
_TREES = ("root", "feature", "threshold", "left", "right", "leaf")
_SHAPES: dict[str, Any] = {"experts": list(EXPERTS), "features": list(FEATURES), "levels": len(GRID)}
"""What the arrays' columns mean; a file that means others is of another program."""


def pack(model: Ensemble, arrays: Arrays) -> dict[str, Any]:
    """Puts the model's numbers into `arrays`; gives its part of the header. Outcomes last taken in are no part of it."""
    arrays["weights.prior"] = model.weights.prior
    if model.forest is not None:
        arrays.update({f"forest.{name}": getattr(model.forest, name) for name in _TREES})
    features, arrays["lessons.residual"] = model.lessons.arrays()
    arrays["lessons.features"] = features.astype(np.float32)
    histories = model.histories
    return {
        "record": modelfile.pack(model.record, arrays),
        "forest": model.forest is not None,
        "weights": pack_mapping("weights", model.weights.nodes, arrays),
        "means": pack_mapping("means", histories.means, arrays),
        "recents": pack_mapping("recents", histories.recents, arrays),
        "windows": _pack_windows(histories.windows, arrays),
        "typical": [[phase, *known] for phase, known in histories.typical.items()],
        "pending": pack_mapping("pending", model.pending, arrays),
        "pace": _pack_pace(model.pace, arrays),
    } | _SHAPES


def unpack(told: Mapping[str, Any], arrays: Mapping[str, Any]) -> Ensemble:
    """The model from its part of a header and the arrays; DamagedStore where another program wrote them."""
    for name, here in _SHAPES.items():
        if told[name] != here:
            raise DamagedStore("model file", f"{name} {told[name]}", "it is of another program; fit again")
    histories = Histories(
        means=Layered(unpack_mapping("means", told["means"], arrays, Mean)),
        recents=Layered(unpack_mapping("recents", told["recents"], arrays, Recent)),
        windows=Layered(_unpack_windows(told["windows"], arrays)),
        typical={phase: (n, mean) for phase, n, mean in told["typical"]},
    )
    return Ensemble(
        record=modelfile.unpack(told["record"], arrays),
        forest=Forest(*(arrays[f"forest.{name}"] for name in _TREES)) if told["forest"] else None,
        histories=histories,
        weights=Weights(arrays["weights.prior"], Layered(unpack_mapping("weights", told["weights"], arrays, Losses))),
        lessons=Lessons(list(zip(arrays["lessons.features"], arrays["lessons.residual"].tolist(), strict=True))),
        pending=unpack_mapping("pending", told["pending"], arrays, Asked, context=Context, centres=Centres),
        pace=_unpack_pace(told["pace"], arrays),
    )


def pack_mapping(at: str, nodes: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """A mapping to rows of one dataclass, as keys and columns."""
    return {"keys": list(nodes), "columns": columns.pack(at, list(nodes.values()), arrays)}


def unpack_mapping(
    at: str, told: Mapping[str, Any], arrays: Mapping[str, Any], kind: type[V], **nested: type[Any]
) -> dict[str, V]:
    """The mapping that `pack_mapping` took apart, in the same order."""
    return dict(zip(told["keys"], columns.unpack(at, told["columns"], arrays, kind, **nested), strict=True))


def _pack_pace(pace: Pace, arrays: Arrays) -> dict[str, Any]:
    told: dict[str, Any] = {"clock_s": pace.clock_s, "recent": columns.pack("pace", pace.recent, arrays)}
    if pace.cast is not None:
        told |= {"memory": asdict(pace.cast.memory), "unit": pace.cast.unit}
        told["hosts"] = pack_mapping("hosts", pace.cast.hosts, arrays)
    return told


def _unpack_pace(told: Mapping[str, Any], arrays: Mapping[str, Any]) -> Pace:
    recent = tuple(columns.unpack("pace", told["recent"], arrays, Ran, context=Context))
    if "memory" not in told:
        return Pace(None, recent, told["clock_s"])
    hosts = unpack_mapping("hosts", told["hosts"], arrays, Host)
    return Pace(cast_of(Memory(**told["memory"]), told["unit"], hosts), recent, told["clock_s"])


def _pack_windows(windows: Mapping[str, Window], arrays: Arrays) -> list[str]:
    held = list(windows.values())
    arrays["windows.size"] = np.array([window.size for window in held], dtype=np.int64)
    arrays["windows.length"] = np.array([len(window) for window in held], dtype=np.int64)
    arrays["windows.values"] = np.array([value for window in held for value in window.values], dtype=np.float64)
    return list(windows)


def _unpack_windows(keys: Sequence[str], arrays: Mapping[str, Any]) -> dict[str, Window]:
    values, ends = arrays["windows.values"].tolist(), np.cumsum(arrays["windows.length"]).tolist()
    parts = zip(keys, arrays["windows.size"].tolist(), [0, *ends], ends, strict=False)
    return {key: Window(size, tuple(values[start:end])) for key, size, start, end in parts}
