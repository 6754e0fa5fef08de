"""A replay shows each row exactly what was known when it began, and nothing that came later changes what was said before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.unforeseen import by, replaced_after
from calibrate.conformal.wrap import Calibrated
from predictors.contexts import Context
from predictors.distribution import GRID
from predictors.ensemble import EXPERTS
from predictors.frames import Frame
from predictors.model import Change, Model
from service.backtest import SPARE, Answer, Replay
from service.backtest_run import backtest
from service.learners import AGGREGATE, DEFAULT, Served, learner, models
from service.recorded import Recorded, recorded
from telemetry.errors import BadField
from telemetry.words import Ended
from tests.service.timings import work, write


class Listener:
    """A learner that keeps what it is told, and hands it on where it is given one."""

    def __init__(self, inner: Served | None = None) -> None:
        self.inner = inner
        self.changes: list[Change] = []
        self.known: dict[str, Change] = {}
        self.frames: list[Frame] = []
        self.commits: list[int] = []

    @property
    def model(self) -> Model | None:
        return self.inner.model if self.inner is not None else None

    def learn(self, changes: Sequence[Change], commit: int) -> None:
        self.changes += changes
        self.known |= {change.key: change for change in changes if change.ended != Ended.RUNNING}
        self.commits.append(commit)
        if self.inner is not None:
            self.inner.learn(changes, commit)

    def fit(self, frame: Frame, commit: int, *, grown: bool) -> None:
        self.frames.append(frame)
        if self.inner is not None:
            self.inner.fit(frame, commit, grown=grown)


def rows_of(start_s: Sequence[float], duration_s: Sequence[float]) -> Recorded:
    """Rows of one context, in order of their start."""
    n = len(start_s)
    begun = np.array(start_s, dtype=float)
    lasted = np.array(duration_s, dtype=float)
    return Recorded(
        observation_id=[f"o{i}" for i in range(n)],
        attempt=np.zeros(n, dtype=np.int64),
        phase=["service"] * n,
        contexts=[Context(host="h")] * n,
        run=np.arange(n),
        duration_s=lasted,
        ended=[Ended.COMPLETED] * n,
        begun_s=begun,
        known_s=begun + lasted,
        timed=True,
        left_out=0,
    )


spans = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=25).map(sorted)


@given(spans)
@settings(max_examples=150, deadline=None)
def test_a_row_is_asked_with_the_outcomes_of_earlier_rows_that_have_ended(made: list[tuple[int, int]]) -> None:
    rows = rows_of([start for start, _ in made], [lasted for _, lasted in made])
    listener = Listener()
    asked = []
    for answer in Replay(rows, listener).answers():
        now_s = rows.begun_s[answer.row]
        expected = {rows.key(r) for r in range(len(rows)) if rows.begun_s[r] < now_s and rows.known_s[r] <= now_s}
        assert expected == set(listener.known)
        asked.append(answer.row)
    assert list(range(len(rows))) == asked
    assert sorted(listener.commits) == listener.commits


@given(spans, st.data())
@settings(max_examples=150, deadline=None)
def test_remaining_time_is_asked_with_what_is_known_at_that_age(made: list[tuple[int, int]], data: st.DataObject) -> None:
    rows = rows_of([start for start, _ in made], [lasted for _, lasted in made])
    long = [row for row in range(len(rows)) if rows.duration_s[row] > 1.0]
    ages = {row: [float(data.draw(st.integers(1, int(rows.duration_s[row]) - 1)))] for row in long}
    listener = Listener()
    answered = {}
    for answer in Replay(rows, listener, ages).answers():
        if answer.elapsed_s is not None:
            now_s = rows.begun_s[answer.row] + answer.elapsed_s
            expected = {rows.key(r) for r in range(len(rows)) if rows.begun_s[r] < now_s and rows.known_s[r] <= now_s}
            assert expected == set(listener.known)
            answered[answer.row] = [answer.elapsed_s]
    assert ages == answered


def test_rows_that_run_are_fitted_on_at_their_age() -> None:
    rows = rows_of([0.0, 0.0, 1.0, 6.0], [100.0, 2.0, 3.0, 1.0])
    listener = Listener()
    assert 4 == len(list(Replay(rows, listener).answers()))
    [frame] = listener.frames
    assert ([2.0, 3.0, 6.0], [False, False, True]) == (frame.duration_s.tolist(), frame.running.tolist())
    assert [True, True, False] == frame.completed.tolist()


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, Listener, list[Answer]]:
    """A replay of the model of record alone, listened to."""
    rows = recorded(write(tmp_path_factory.mktemp("heard"), work(120)))
    listener = Listener(Served("hazards"))
    return rows, listener, list(Replay(rows, listener).answers())


def test_survivors_are_told_at_ages_they_reached(heard: tuple[Recorded, Listener, list[Answer]]) -> None:
    rows, listener, _ = heard
    lasted = {rows.key(row): rows.duration_s[row] for row in range(len(rows))}
    told = [
        change for change in listener.changes if change.sign > 0 and change.ended == Ended.RUNNING and change.duration_s > 0.0
    ]
    assert 20 < len(told)
    assert all(change.duration_s < lasted[change.key] for change in told)


def test_what_was_told_of_a_survivor_is_taken_back_once(heard: tuple[Recorded, Listener, list[Answer]]) -> None:
    told: dict[str, float] = {}
    for change in heard[1].changes:
        if change.ended == Ended.RUNNING and change.sign < 0:
            assert told.pop(change.key) == change.duration_s
        elif change.ended == Ended.RUNNING and change.duration_s > 0.0:
            assert change.key not in told
            told[change.key] = change.duration_s
        assert change.ended == Ended.RUNNING or change.key not in told
    assert heard[1].frames[-1].running.any()


def test_survivors_leave_nothing_in_the_recalibration_once_they_ended(tmp_path: Path) -> None:
    rows = recorded(write(tmp_path, [*work(120), {"start_s": 1e6, "duration_s": 1.0}]))
    replay = Replay(rows, Served(DEFAULT))
    counted = 0
    for answer in replay.answers():
        model = replay.learner.model
        running = [any(node.running) for node in model.recalibration.nodes.values()] if isinstance(model, Calibrated) else []
        counted += any(running)
        assert answer.row < 120 or not any(running)
    assert counted > 50


def one_after_another(hosts: Sequence[str]) -> Recorded:
    """Rows that take a second each, on these hosts."""
    n = len(hosts)
    return replace(rows_of(range(n), [1.0] * n), contexts=[Context(host=host) for host in hosts])


@pytest.mark.parametrize("of_new", [9, 10])
def test_ten_outcomes_of_a_host_that_no_fit_knew_are_followed_by_a_fit(of_new: int) -> None:
    known = ["old"] * 200
    fits = [len(frame) for frame in fitted(one_after_another([*known, *["new"] * of_new, "old", "old"]))]
    by_growth = [len(frame) for frame in fitted(one_after_another([*known, *["old"] * of_new, "old", "old"]))]
    assert by_growth == [one for one in fits if one < 200]
    assert [one for one in fits if one >= 200] == ([210] if of_new == 10 else [])


def test_fits_for_new_hosts_read_no_more_rows_than_those_by_growth() -> None:
    """Every row has a host of its own: fits alone would take all the time."""
    n = 2_000
    frames = fitted(one_after_another([f"pod-{i}" for i in range(n)]))
    assert sum(len(frame) for frame in frames) < 2 * SPARE * n
    assert len(frames) > len(fitted(one_after_another(["one"] * n)))


def fitted(rows: Recorded) -> list[Frame]:
    """What each fit of a replay was made from."""
    listener = Listener()
    assert len(rows) == len(list(Replay(rows, listener).answers()))
    return listener.frames


def test_fits_come_at_doublings_and_then_at_growths_of_a_tenth(heard: tuple[Recorded, Listener, list[Answer]]) -> None:
    known = [int((~frame.running).sum()) for frame in heard[1].frames]
    assert known[0] <= 4
    assert all(2 * a <= b or (b > 64 and 1.1 * a < b) for a, b in pairwise(known))
    assert known[-1] > 80


def test_failures_count_for_the_chance_of_completing_and_not_for_the_time(tmp_path: Path) -> None:
    given_rows = [
        {"start_s": 20.0 * i, "duration_s": 10.0 + i % 3 if i % 2 else 0.1, "outcome": "completed" if i % 2 else "failed"}
        for i in range(80)
    ]
    rows = recorded(write(tmp_path, given_rows))
    last = list(Replay(rows, learner("hazards")).answers())[-1].made
    assert last is not None
    assert_allclose(0.5, last.p_complete, atol=0.05)
    assert 9.0 < last.quantiles_s[4] < last.quantiles_s[94] < 13.0


def test_remaining_time_is_the_conditional_law_of_the_model_of_that_moment(tmp_path: Path) -> None:
    rows = recorded(write(tmp_path, work(60)))
    row = next(row for row in range(40, 60) if rows.duration_s[row] > 4.0)
    replay = Replay(rows, learner("hazards"), {row: [1.0, 3.5]})
    seen = []
    for answer in replay.answers():
        if answer.elapsed_s is not None:
            assert answer.made is not None
            model = replay.learner.model
            assert model is not None
            law = model.predict([rows.contexts[row]], [rows.phase[row]]).residual(answer.elapsed_s)
            assert_array_equal(law.quantile(GRID)[0], answer.made.quantiles_s)
            seen.append((answer.row, answer.elapsed_s, answer.made.elapsed_s))
    assert [(row, 1.0, 1.0), (row, 3.5, 3.5)] == seen


def replays(folder: Path, table: pa.Table, model: str) -> pa.Table:
    """Answers about a table, read back."""
    pq.write_table(table, folder / "given.parquet")
    backtest(folder / "given.parquet", folder / "answers.parquet", model=model)
    return pq.read_table(folder / "answers.parquet")


def nothing_is_foreseen(folder: Path, table: pa.Table, model: str) -> None:
    """With every outcome not known at an instant replaced, answers up to it are the same bits, and later ones are not."""
    at_s = float(np.quantile(table["start_s"].to_numpy(), 0.6, method="nearest"))
    first, second = replays(folder, table, model), replays(folder, replaced_after(table, at_s), model)
    assert by(first, at_s).num_rows >= 0.6 * table.num_rows
    assert by(first, at_s).equals(by(second, at_s))
    later = pc.greater(first["at_s"], at_s)
    assert not first.filter(later).equals(second.filter(later))


def test_every_model_that_is_named_is_the_one_that_is_told_of() -> None:
    for name, about in models().items():
        asked = learner(name)
        assert (name in {DEFAULT, AGGREGATE, *EXPERTS}) == isinstance(asked, Served), about
    assert {"median_of_nine", "median_of_nine_rule", "kaplan_meier"} <= models().keys()
    assert models()["median_of_nine"] != models()["median_of_nine_rule"]


@pytest.mark.parametrize("model", [DEFAULT, AGGREGATE, "median_of_nine"])
def test_nothing_that_comes_later_changes_what_was_said(tmp_path: Path, model: str) -> None:
    nothing_is_foreseen(tmp_path, pq.read_table(write(tmp_path, work(160))), model)


@pytest.mark.parametrize("name", ["lambda_coldstart", "azure_vm_noise"])
def test_nothing_is_foreseen_in_recorded_timings_either(tmp_path: Path, shared_dir: Path, name: str) -> None:
    table = pq.read_table(shared_dir / "datasets" / f"{name}.parquet")
    first = np.argsort(table["start_s"].to_numpy(), kind="stable")[:260]
    nothing_is_foreseen(tmp_path, table.take(pa.array(first)), DEFAULT)


def test_replaced_outcomes_stay_unknown_at_the_instant_and_earlier_ones_stand(tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path, work(100)))
    at_s = 150.0
    other = replaced_after(table, at_s)
    start = table["start_s"].to_numpy()
    known = start + table["duration_s"].to_numpy() <= at_s
    assert 20 < known.sum() < 80
    assert table.filter(pa.array(known)).equals(other.filter(pa.array(known)))
    assert np.all((start + other["duration_s"].to_numpy())[~known] > at_s)
    assert np.all(other["duration_s"].to_numpy()[~known] != table["duration_s"].to_numpy()[~known])


def test_two_replays_write_the_same_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, work(150))
    for name in ("first", "second"):
        backtest(path, tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_rows_without_every_start_are_answered_too(tmp_path: Path) -> None:
    path = write(tmp_path, [{**row, "start_s": None} for row in work(160)])
    summary = backtest(path, tmp_path / "out.parquet")
    out = pq.read_table(tmp_path / "out.parquet")
    assert (160, 160) == (summary.rows, out.num_rows)
    assert 160 == out["at_s"].null_count
    assert 8 == summary.unanswered == out["mean"].null_count  # the first of twelve steps through 96 rows


def test_what_experts_weigh_is_told_of_the_rows_that_count(tmp_path: Path) -> None:
    path = write(tmp_path, work(100))
    shares = backtest(path, tmp_path / "out.parquet").weights
    assert_allclose(1.0, sum(shares.values()))
    assert all(share > 0.0 for share in shares.values())
    alone = backtest(path, tmp_path / "out.parquet", model="forest").weights
    assert {"forest": 1.0} == {name: share for name, share in alone.items() if share}
    assert {} == backtest(path, tmp_path / "out.parquet", model="kaplan_meier").weights


@pytest.fixture(params=["calibrated", "aggregate", "hazards", "forest", "kaplan_meier"])
def named(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param


def test_a_model_asked_by_name_answers(tmp_path: Path, named: str) -> None:
    backtest(write(tmp_path, work(80)), tmp_path / "out.parquet", model=named)
    out = pq.read_table(tmp_path / "out.parquet")
    quantiles = np.stack([out[f"q{p:02d}"].to_numpy() for p in range(1, 100)], axis=1)[10:]
    assert np.all(np.isfinite(quantiles))
    assert np.all(np.diff(quantiles, axis=1) >= 0.0)


def test_a_name_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadField) as refused:
        learner("oracle")
    assert ("model", "oracle") == (refused.value.field, refused.value.got)
    assert all(name in refused.value.fix for name in models())
