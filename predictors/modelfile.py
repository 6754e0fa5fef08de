"""A fitted model as one file: arrays without pickles and a JSON header, checked by its SHA-256.

The file is a NumPy archive; its member `header` is UTF-8 JSON with the schema version, the settings, and the words that number
the rows of the arrays. Members have fixed dates and no compression: the same model gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from predictors.distribution import Array
from predictors.effects import Effects
from predictors.hazards import FitSettings, HierarchicalHazards
from predictors.joint.bend import Bend
from predictors.joint.dependence import INDEPENDENT, Dependence
from predictors.joint.ranks import Correlations
from predictors.location import Location
from predictors.seeding import Seed, Start
from predictors.slopes import Level, Slopes
from predictors.strata import Node, Stratum
from telemetry.errors import DamagedStore, NewerStore
from telemetry.ledger import ModelFile

SCHEMA = 1
FAMILY = "hierarchical_hazards"
Arrays = dict[str, Any]


def save(model: HierarchicalHazards, folder: Path, *, fitted_ns: int) -> ModelFile:
    """Writes the model into `folder` and gives its row. The name holds the hash: writing again changes nothing."""
    return write(packed(model), model, folder, family=FAMILY, settings=asdict(model.settings), fitted_ns=fitted_ns)


def write(
    content: bytes, record: HierarchicalHazards, folder: Path, *, family: str, settings: Mapping[str, Any], fitted_ns: int
) -> ModelFile:
    """Writes a file of `family` whose model of record is `record`, and gives its row."""
    sha256 = hashlib.sha256(content).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{family}-{sha256[:16]}.npz"
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
    return ModelFile(
        model_id=sha256[:16],
        family=family,
        fit_commit=record.fit_commit,
        settings=json.dumps(settings),
        n_observations=sum(s.nodes[name].n for name, s in record.strata.items() if name in s.nodes),
        file_name=path.name,
        sha256=sha256,
        fitted_ns=fitted_ns,
    )


def load(path: Path, sha256: str) -> HierarchicalHazards:
    """The model in a file; DamagedStore where its bytes are not those that were written, NewerStore for a later schema."""
    return unpacked(content_of(path, sha256))


def content_of(path: Path, sha256: str) -> bytes:
    """The bytes of a file; DamagedStore where they are not those that were written."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedStore("model file", str(error), "start `phasecast serve` on the store: it fits again") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DamagedStore("model file", f"{path.name} with SHA-256 {found}", f"restore the file with {sha256}, or fit again")
    return content


def packed(model: HierarchicalHazards) -> bytes:
    """The file's bytes."""
    arrays: Arrays = {}
    return archived({"schema": SCHEMA, "family": FAMILY} | pack(model, arrays), arrays)


def archived(header: Mapping[str, Any], arrays: Arrays) -> bytes:
    """A file's bytes from its header and arrays."""
    text = json.dumps(header, ensure_ascii=False, allow_nan=False).encode()
    target = io.BytesIO()
    np.savez(target, header=np.frombuffer(text, dtype=np.uint8), **arrays)
    return target.getvalue()


def opened(content: bytes, newest: int) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a file; NewerStore where its schema is later than `newest`."""
    with np.load(io.BytesIO(content), allow_pickle=False) as members:
        header: dict[str, Any] = json.loads(bytes(members["header"]))
        if header["schema"] > newest:
            raise NewerStore("model file", f"schema {header['schema']}", f"this program reads up to {newest}; fit again")
        return header, {name: members[name] for name in members.files}


def pack(model: HierarchicalHazards, arrays: Arrays) -> dict[str, Any]:
    """Puts the model's numbers into `arrays`; gives its part of the header."""
    header: dict[str, Any] = {
        "commit": model.commit,
        "fit_commit": model.fit_commit,
        "settings": asdict(model.settings),
        "strata": [_pack_stratum(f"s{i}", stratum, arrays) for i, stratum in enumerate(model.strata.values())],
    }
    if model.dependence != INDEPENDENT:
        rho, bend = model.dependence.rho, model.dependence.bend
        header["dependence"] = {"rho": dict(rho.rho), "pairs": dict(rho.pairs), "share": dict(model.dependence.share)}
        if bend is not None:
            header["dependence"]["bend"] = asdict(bend)
    return header


def forms(model: HierarchicalHazards) -> Iterator[HierarchicalHazards]:
    """The model as programs up to this one would have saved the same fit, newest first: each tells less than the one before."""
    yield model
    strata = {phase: replace(stratum, counts_cancelled=False) for phase, stratum in model.strata.items()}
    dependence = replace(model.dependence, bend=None)
    yield (without := replace(model, strata=strata, dependence=dependence))
    yield replace(without, dependence=INDEPENDENT)


def unpacked(content: bytes) -> HierarchicalHazards:
    """The model from a file's bytes."""
    return unpack(*opened(content, SCHEMA))


def unpack(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> HierarchicalHazards:
    """The model from its part of a header and the arrays."""
    strata = [_unpack_stratum(f"s{i}", words, arrays) for i, words in enumerate(header["strata"])]
    settings = header["settings"] | {"half_life": tuple(header["settings"]["half_life"])}
    known = header.get("dependence")
    dependence = INDEPENDENT
    if known is not None:
        rho = Correlations(MappingProxyType(known["rho"]), MappingProxyType(known["pairs"]))
        bend = Bend(**{name: tuple(values) for name, values in known["bend"].items()}) if "bend" in known else None
        dependence = Dependence(rho, MappingProxyType(known["share"]), bend)
    by_phase = {s.phase: s for s in strata}
    return HierarchicalHazards(by_phase, header["commit"], header["fit_commit"], FitSettings(**settings), dependence)


def _pack_stratum(at: str, s: Stratum, arrays: Arrays) -> dict[str, Any]:
    nodes = list(s.nodes.values())
    arrays[f"{at}.edges"], arrays[f"{at}.prior"] = s.edges, s.prior
    columns = s.prior.shape[1]
    arrays[f"{at}.events"] = np.array([n.events for n in nodes]).reshape(len(nodes), 2, columns)
    arrays[f"{at}.at_risk"] = np.array([n.at_risk for n in nodes]).reshape(len(nodes), columns)
    arrays[f"{at}.running"] = np.array([n.running for n in nodes], dtype=np.int64).reshape(len(nodes), columns)
    arrays[f"{at}.n"] = np.array([n.n for n in nodes], dtype=np.int64)
    arrays[f"{at}.n_eff"] = np.array([n.n_eff for n in nodes], dtype=np.float64)
    arrays[f"{at}.last_commit"] = np.array([n.last_commit for n in nodes], dtype=np.int64)
    if s.counts_cancelled:
        arrays[f"{at}.cancelled"] = np.array([n.cancelled for n in nodes]).reshape(len(nodes), columns)
    return {
        "phase": s.phase,
        "strength": s.strength,
        "half_life": s.half_life,
        "longest_s": s.longest_s,
        "fit_commit": s.fit_commit,
        "nodes": list(s.nodes),
        "location": _pack_location(f"{at}.location", s.location, arrays),
    }


def _unpack_stratum(at: str, words: Mapping[str, Any], arrays: Mapping[str, Any]) -> Stratum:
    names = ("events", "at_risk", "running", "n", "n_eff", "last_commit")
    events, at_risk, running, n, n_eff, last_commit = (arrays[f"{at}.{name}"] for name in names)
    counts_cancelled = f"{at}.cancelled" in arrays
    cancelled = arrays[f"{at}.cancelled"] if counts_cancelled else np.zeros_like(at_risk)
    nodes = {
        name: Node(events[i], at_risk[i], running[i], int(n[i]), float(n_eff[i]), int(last_commit[i]), cancelled[i])
        for i, name in enumerate(words["nodes"])
    }
    return Stratum(
        phase=words["phase"],
        location=_unpack_location(f"{at}.location", words["location"], arrays),
        edges=arrays[f"{at}.edges"],
        prior=arrays[f"{at}.prior"],
        strength=tuple(words["strength"]),
        half_life=tuple(words["half_life"]),
        nodes=nodes,
        longest_s=words["longest_s"],
        fit_commit=words["fit_commit"],
        counts_cancelled=counts_cancelled,
    )


def _pack_location(at: str, location: Location, arrays: Arrays) -> dict[str, Any]:
    e = location.effects
    arrays[f"{at}.variance"], arrays[f"{at}.novel"] = e.variance, e.novel
    arrays[f"{at}.scale"] = np.array(list(location.scale.values()), dtype=np.float64)
    for k, (value, precision) in enumerate(zip(e.value, e.precision, strict=True)):
        arrays[f"{at}.value{k}"], arrays[f"{at}.precision{k}"] = value, precision
    for k, level in enumerate(location.slopes.levels):
        for name in _SLOPES:
            arrays[f"{at}.slopes{k}.{name}"] = getattr(level, name)
    return {
        "intercept": location.intercept,
        "low": location.low,
        "high": location.high,
        "most_left": location.most_left,
        "scale": list(location.scale),
        "keys": e.keys,
        "groups": [list(groups) for groups in e.groups],
        "within": e.within,
        "regimes": list(e.regimes),
        "slopes": [{"key": level.key, "groups": list(level.groups)} for level in location.slopes.levels],
    } | ({"seed": asdict(e.seed)} if e.seed is not None else {})


def _unpack_location(at: str, words: Mapping[str, Any], arrays: Mapping[str, Any]) -> Location:
    keys = range(len(words["keys"]))
    effects = Effects(
        keys=tuple(tuple(key) for key in words["keys"]),
        groups=tuple(_numbered(groups) for groups in words["groups"]),
        value=tuple(arrays[f"{at}.value{k}"] for k in keys),
        precision=tuple(arrays[f"{at}.precision{k}"] for k in keys),
        variance=arrays[f"{at}.variance"],
        novel=arrays[f"{at}.novel"],
        within=tuple(tuple(w) for w in words["within"]),
        regimes=_numbered(words["regimes"]),
        seed=_unpack_seed(words.get("seed")),
    )
    levels = [
        Level(tuple(level["key"]), _numbered(level["groups"]), *(arrays[f"{at}.slopes{k}.{name}"] for name in _SLOPES))
        for k, level in enumerate(words["slopes"])
    ]
    scale: Array = arrays[f"{at}.scale"]
    return Location(
        words["intercept"],
        effects,
        Slopes(tuple(levels)),
        dict(zip(words["scale"], scale.tolist(), strict=True)),
        words["low"],
        words["high"],
        words["most_left"],
    )


def _unpack_seed(words: Mapping[str, Any] | None) -> Seed | None:
    """Where rates put hosts: nowhere, in files of fits that knew of none."""
    if words is None:
        return None
    return Seed(**dict(words) | {"starts": {host: Start(**told) for host, told in words["starts"].items()}})


_SLOPES = ("centre", "slope", "covariance", "variance")


def _numbered(labels: Sequence[Sequence[str | None]]) -> dict[tuple[str | None, ...], int]:
    return {tuple(label): i for i, label in enumerate(labels)}
