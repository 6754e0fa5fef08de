"""Founded on history, the model knows who answers best and how true answers are; and it comes back from its file as it was."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from calibrate import founding
from calibrate.conformal import saved
from calibrate.conformal.checked import checked, few
from calibrate.conformal.pit import Histogram, Placed, Recalibration
from calibrate.conformal.wrap import Calibrated
from predictors import modelfile
from predictors.contexts import Context, judged_path
from predictors.distribution import GRID, Checked
from predictors.explained import explained
from predictors.frames import Frame
from predictors.layered import Layered
from predictors.model import Change
from predictors.settings import FitSettings
from telemetry.errors import DamagedStore, NewerStore
from telemetry.words import Ended

CONTEXTS = tuple(
    Context(host=f"höst {h}", family="encoder", model=f"m{m}", batch=float(b)) for h in "ab" for m in range(3) for b in (1, 8)
)
N = 400


def history(n: int = N, *, running: int = 5, together: bool = False) -> Frame:
    """Completed runs of twelve configurations, a fifth of them failed, and some that run."""
    rng = np.random.default_rng(4)
    context = rng.integers(0, len(CONTEXTS), n)
    runs = np.arange(n) >= n - running
    failed = ~runs & (np.arange(n) % 5 == 0)
    return Frame(
        contexts=CONTEXTS,
        phases=("setup", "service"),
        context=context,
        phase=np.arange(n) % 2,
        entry_s=np.zeros(n),
        duration_s=np.exp(0.3 * context + rng.normal(scale=0.4, size=n)),
        completed=~runs & ~failed,
        failed=failed,
        running=runs,
        weight=np.ones(n),
        known_from=np.arange(1, n + 1),
        started_ns=np.zeros(n, dtype=np.int64) if together else np.arange(n),
    )


@pytest.fixture(scope="module")
def model() -> Calibrated:
    return founding.found(history(), N, FitSettings())


def answers(model: Calibrated) -> bytes:
    asked = [*CONTEXTS, Context(host="new", size_in=5.0)]
    return b"".join(model.predict(asked, [phase] * len(asked)).quantile(GRID).tobytes() for phase in ("setup", "service"))


def more(n: int, start: int) -> list[Change]:
    """Further outcomes, one after the other, each known to run first."""
    rng = np.random.default_rng(start)
    found = []
    for i in range(start, start + n):
        context, took_s = CONTEXTS[int(rng.integers(len(CONTEXTS)))], float(np.exp(rng.normal()))
        for age_s, sign, ended in ((took_s / 2, 1, Ended.RUNNING), (took_s / 2, -1, Ended.RUNNING), (took_s, 1, Ended.COMPLETED)):
            found.append(Change(sign, i, "service", context, 0.0, age_s, ended, 1.0, i, f"{i}/service/0"))
    return found


def test_steps_double_what_is_known_and_only_the_newest_rows_are_replayed() -> None:
    assert [(16, 32), (32, 64), (64, 100)] == list(founding._steps(100, 16))
    assert [] == list(founding._steps(16, 16))
    assert [(30_000, 50_000)] == list(founding._steps(50_000, 16))


def test_history_teaches_weights_recalibration_and_lessons(model: Calibrated) -> None:
    learned = int(history().completed[16:].sum())
    assert learned == len(model.inner.lessons)
    roots = {one.name: one for one in explained(model.inner, [(CONTEXTS[0], "setup"), (CONTEXTS[0], "service")])}
    assert all(roots[f"{phase}/"].n > 50 for phase in ("setup", "service"))
    assert roots["service/"].weights["phase"] < 0.05  # twelve configurations differ far more than the phase as a whole can tell
    assert model.inner.forest is not None
    support = model.predict([CONTEXTS[0]], ["service"]).support[0]
    assert support.checked is not None
    assert support.checked.enough


def test_founding_is_deterministic_to_the_byte(model: Calibrated) -> None:
    assert saved.packed(model) == saved.packed(founding.found(history(), N, FitSettings()))


def test_what_became_known_last_changes_nothing_that_was_learned_before_it() -> None:
    whole = history(40, running=0)
    other = history(40, running=0)
    other.duration_s[-1] *= 100.0
    first, second = (founding.found(frame, 40, FitSettings()) for frame in (whole, other))
    features = [lessons.inner.lessons.arrays()[0] for lessons in (first, second)]
    np.testing.assert_array_equal(features[0], features[1])


def test_rows_that_began_together_count_together() -> None:
    apart, together = (founding.found(history(200, together=t), 200, FitSettings()).recalibration.nodes for t in (False, True))
    assert together["service/"].n < 0.6 * apart["service/"].n


def test_too_little_history_founds_a_model_that_has_learned_nothing_yet() -> None:
    model = founding.found(history(6, running=0), 6, FitSettings())
    assert (0, 0, None) == (len(model.inner.lessons), len(model.recalibration.nodes), model.inner.forest)
    assert model.knows("setup")


def test_a_loaded_model_answers_the_same_bits_and_goes_on_learning_alike(model: Calibrated, tmp_path: Path) -> None:
    begun = model.after(more(5, 401)[:-1], 405)
    row = saved.save(begun, tmp_path, settings={"served_from": 405}, fitted_ns=1)
    loaded = saved.load(tmp_path / row.file_name, row.sha256)
    assert isinstance(loaded, Calibrated)
    assert 1 == len(loaded.inner.pending)
    assert answers(begun) == answers(loaded)
    changes = [*more(5, 401)[-1:], *more(40, 406)]
    assert saved.packed(begun.after(changes, 445)) == saved.packed(loaded.after(changes, 445))
    grown = [founding._fitted(one.after(changes, 445), one.inner.record) for one in (begun, loaded)]
    assert answers(grown[0]) == answers(grown[1])


def test_the_row_tells_the_file_and_what_it_was_given(model: Calibrated, tmp_path: Path) -> None:
    row = saved.save(model, tmp_path, settings={"parent": None}, fitted_ns=7)
    assert (saved.FAMILY, N, '{"parent": null}', 7) == (row.family, row.fit_commit, row.settings, row.fitted_ns)
    assert row.sha256.startswith(row.model_id)


def test_a_changed_byte_is_refused_by_hash_and_nothing_is_a_pickle(model: Calibrated, tmp_path: Path) -> None:
    row = saved.save(model, tmp_path, settings={}, fitted_ns=1)
    path = tmp_path / row.file_name
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "fiu" for name in arrays.files)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedStore, match="SHA-256"):
        saved.load(path, row.sha256)


def test_files_of_schema_1_are_read_and_later_ones_refused(model: Calibrated) -> None:
    record = model.inner.record
    former = saved.unpacked(modelfile.packed(record))
    assert modelfile.packed(record) == modelfile.packed(former)  # type: ignore[arg-type]
    with pytest.raises(NewerStore):
        saved.unpacked(_with(saved.packed(model), schema=saved.SCHEMA + 1))


def test_a_file_of_a_program_with_other_experts_is_not_taken_for_ours(model: Calibrated) -> None:
    with pytest.raises(DamagedStore, match="another program"):
        saved.unpacked(_with(saved.packed(model), experts=["hazards"]))


def _with(content: bytes, **other: object) -> bytes:
    """A file with other words in its header."""
    with np.load(io.BytesIO(content)) as arrays:
        members = dict(arrays)
    header = json.loads(bytes(members.pop("header"))) | other
    return modelfile.archived(header, members)


def counted(path: tuple[str, ...], *n: float) -> Recalibration:
    """Nodes of a path with so many outcomes; 0 is a node that is not there."""
    counts = Recalibration().having([Placed(path, (1.0,) * len(path), 0.5)]).nodes[path[0]].counts
    return Recalibration(Layered({key: Histogram(m, counts) for key, m in zip(path, n, strict=True) if m}))


@pytest.mark.parametrize(
    ("n", "claimed", "found"),
    [
        ((500, 400, 300, 200, 50, 9), 0.9, Checked("configuration", 9, enough=True)),
        ((500, 400, 300, 200, 50, 9), 0.8, Checked("host", 200, enough=True)),
        ((99, 99, 99, 99, 50, 20), 0.8, Checked("configuration", 20, enough=False)),
        ((500, 99, 99, 99, 50, 0), 0.0, Checked("phase", 500, enough=True)),
        ((99, 99, 99, 99, 50, 0), 0.0, Checked("model", 50, enough=False)),
        ((0, 0, 0, 0, 0, 0), 0.0, None),
    ],
)
def test_the_narrowest_node_with_enough_outcomes_checks_an_answer(
    n: tuple[float, ...], claimed: float, found: Checked | None
) -> None:
    path = judged_path(CONTEXTS[0], "service", 1)
    known = counted(path, *n)
    assert found == checked(known, path, claimed)
    assert few(known, path) == (n[0] < 100)
