"""A model comes back from its file with the same bits, or not at all."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from predictors import hazards, modelfile
from predictors.contexts import Context
from predictors.distribution import GRID
from predictors.frames import Frame
from predictors.hazards import FitSettings, HierarchicalHazards
from predictors.model import Change
from telemetry.errors import DamagedStore, NewerStore
from telemetry.words import Ended

CONTEXTS = tuple(
    Context(host=f"höst {h}", family="encoder", state=s, batch=b) for h in range(3) for s in ("cold", None) for b in (1.0, 8.0)
)


@pytest.fixture(scope="module")
def model() -> HierarchicalHazards:
    rng = np.random.default_rng(3)
    n = 240
    running, none = np.arange(n) % 10 == 0, np.zeros(n, dtype=bool)
    frame = Frame(
        CONTEXTS, ("setup", "service"), rng.integers(0, 12, n), rng.integers(0, 2, n), np.zeros(n), np.exp(rng.normal(size=n)),
        ~running, none, running, np.ones(n), np.arange(1, n + 1),
    )  # fmt: skip
    return hazards.fit(frame, n, FitSettings(novel_sd=0.4))


def answers(model: HierarchicalHazards) -> bytes:
    asked = [*CONTEXTS, Context(host="new", size_in=5.0)]
    return b"".join(model.predict(asked, [phase] * len(asked)).quantile(GRID).tobytes() for phase in ("setup", "service"))


def test_a_loaded_model_answers_the_same_bits_and_goes_on_learning_alike(model: HierarchicalHazards, tmp_path: Path) -> None:
    row = modelfile.save(model, tmp_path, fitted_ns=1)
    loaded = modelfile.load(tmp_path / row.file_name, row.sha256)
    assert answers(model) == answers(loaded)
    assert (model.commit, model.fit_commit, model.settings) == (loaded.commit, loaded.fit_commit, loaded.settings)
    more = [Change(1, 241, "setup", CONTEXTS[0], 0.0, 2.5, Ended.COMPLETED, 1.0, 241)]
    assert answers(model.after(more, 241)) == answers(loaded.after(more, 241))


def test_the_same_model_is_the_same_file(model: HierarchicalHazards, tmp_path: Path) -> None:
    first, second = (modelfile.save(model, tmp_path / name, fitted_ns=1) for name in "ab")
    assert first == second
    assert (first.model_id, 216) == (first.sha256[:16], first.n_observations)
    assert json.loads(first.settings)["novel_sd"] == 0.4


def test_a_changed_byte_is_refused_by_hash(model: HierarchicalHazards, tmp_path: Path) -> None:
    row = modelfile.save(model, tmp_path, fitted_ns=1)
    path = tmp_path / row.file_name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedStore, match="SHA-256"):
        modelfile.load(path, row.sha256)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedStore, match="fits again"):
        modelfile.load(tmp_path / "gone.npz", "0" * 64)


def test_a_later_schema_is_refused(model: HierarchicalHazards) -> None:
    with np.load(io.BytesIO(modelfile.packed(model))) as arrays:
        members = dict(arrays)
    header = json.loads(bytes(members["header"])) | {"schema": modelfile.SCHEMA + 1}
    target = io.BytesIO()
    np.savez(target, **members | {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)})
    with pytest.raises(NewerStore):
        modelfile.unpacked(target.getvalue())


def test_nothing_in_the_file_is_a_pickle(model: HierarchicalHazards) -> None:
    with np.load(io.BytesIO(modelfile.packed(model)), allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "fiu" for name in arrays.files)
