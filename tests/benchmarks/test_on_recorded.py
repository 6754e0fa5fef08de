"""What is measured on recorded work besides accuracy: remaining times at ages, hosts nobody met, and the cost of an outcome."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from benchmarks import outcomes
from benchmarks.clustered import clustered, clusters, error, group_error, pieces
from benchmarks.left_out import left_out
from benchmarks.remaining import Line, Share, asked_at, line_of, share_of
from service.recorded import recorded
from tests.service.timings import work, write


def test_rows_are_asked_at_shares_of_what_was_typical_before_them(tmp_path: Path) -> None:
    rows = [{"start_s": 100.0 * i, "duration_s": 10.0, "host": "a", "family": "f"} for i in range(6)]
    later = [{"start_s": 1e4 + i, "duration_s": t, "host": h, "family": "f"} for i, (h, t) in enumerate([("a", 6.0), ("b", 9.0)])]
    longest = [{"start_s": 2e4 + i, "duration_s": 20.0, "host": "a", "family": "f"} for i in range(2)]
    asked = asked_at(recorded(write(tmp_path, [*rows, *later, *longest])))
    assert {0.25: 2.5, 0.5: 5.0} == asked[6]
    assert 7 not in asked  # nothing was known of its group
    assert {0.25: 2.5, 0.5: 5.0, 1.0: 10.0, 1.5: 15.0} == asked[8] == asked[9]


def test_of_many_rows_at_an_age_those_with_the_least_hashes_are_asked(tmp_path: Path) -> None:
    rows = recorded(
        write(tmp_path, [{"start_s": 100.0 * i, "duration_s": 10.0 + i % 2, "host": "a", "family": "f"} for i in range(50)])
    )
    asked = asked_at(rows, most=3)
    late = sorted(range(30, 50), key=lambda i: hashlib.sha256(rows.key(i).encode()).hexdigest())
    assert set(late[:3]) == {i for i, ages in asked.items() if 0.25 in ages} == {i for i, ages in asked.items() if 0.5 in ages}
    assert {i for i in late if i % 2} >= {i for i, ages in asked.items() if 1.0 in ages}  # the others never got so old
    assert 3 == sum(1.0 in ages for ages in asked.values())


def test_rows_of_one_cluster_are_one_piece_of_evidence() -> None:
    share = share_of(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0, 0, 1, 1]))
    assert share.mean == pytest.approx(0.5)
    assert share.half == pytest.approx(student.ppf(0.975, 1) * 0.5)  # sqrt(2 (1 + 1)) / 4
    assert np.inf == share_of(np.array([1.0, 0.0]), np.array([0, 0])).half


@pytest.mark.parametrize(
    ("p50", "p90", "held"),
    [
        (Share(0.52, 0.0), Share(0.88, 0.0), "yes"),
        (Share(0.60, 0.08), Share(0.9, 0.0), "by interval"),
        (Share(0.60, 0.06), Share(0.9, 0.0), "no"),
        (Share(0.5, 0.0), Share(0.8, 0.02), "no"),
    ],
)
def test_a_share_outside_counts_only_if_its_interval_is(p50: Share, p90: Share, held: str) -> None:
    assert held == Line("set", 0.5, 400, 20, p50, p90).held


def test_a_line_counts_rows_and_clusters() -> None:
    line = line_of("set", 1.0, np.array([[1, 1], [0, 1], [1, 1], [0, 1]]), np.array([0, 0, 1, 1]))
    assert (4, 2, 0.5, 1.0) == (line.n, line.clusters, line.p50.mean, line.p90.mean)


def test_rows_are_one_piece_of_evidence_by_instant_where_observations_share_those_else_by_observation() -> None:
    epochs = pieces(np.arange(6.0), ["run 1", "run 1", "run 1", "run 2", "run 2", "run 2"])
    assert [0, 0, 0, 1, 1, 1] == epochs.tolist()
    tasks = pieces(np.repeat([5.0, 9.0], 3), [f"task {i}" for i in range(6)])
    assert [0, 0, 0, 1, 1, 1] == tasks.tolist()
    assert [0, 1, 2] == pieces(None, ["a", "b", "c"]).tolist()


def test_a_host_left_out_is_asked_of_a_model_that_knows_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, work(160, failing=0.0))
    mine = sum(row["host"] == "host-1" for row in work(160, failing=0.0))
    judged = left_out(path, "host-1", "phase")
    assert ("host-1", mine) == (judged.host, judged.n)
    assert 0 <= judged.below[0] <= judged.below[1] <= mine
    assert judged.below[0] < 0.5 * mine  # it is twice as slow as the other, and takes a while to be known


def test_what_an_outcome_costs_is_told_by_layer() -> None:
    found = {one.what: one.value for one in outcomes.measured(2 * outcomes.WINDOW)}
    assert all(value > 0.0 for value in found.values())
    assert 2 * len(outcomes.LAYERS) + 2 == len(found)


def test_rows_of_one_instant_or_observation_make_a_figure_no_surer() -> None:
    together, apart = np.array([0, 0, 1, 1]), np.arange(4)
    value = np.array([1.0, 1.0, 0.0, 0.0])
    assert error(value, np.ones(4), together) == pytest.approx(np.sqrt(2.0 * 0.25**2))
    assert error(value, np.ones(4), apart) == pytest.approx(np.sqrt(4.0 * 0.125**2))
    assert error(value, np.array([1.0, 1.0, 0.0, 0.0]), together) == 0.0


@pytest.mark.parametrize(("instants", "n_clusters"), [(np.repeat(np.arange(10.0), 40), 10), (np.arange(400.0), 400)])
def test_clusters_are_instants_where_rows_share_them(instants: np.ndarray, n_clusters: int) -> None:
    n = len(instants)
    truth = pd.DataFrame({"observation_id": [f"o{i}" for i in range(n)], "phase": "compute", "attempt": 0, "timed": True})
    truth = truth.assign(t0=instants, host="h", weight=1.0, duration_s=np.where(instants % 10 == 0, 2.0, 1.0))
    answers = truth[["observation_id", "phase", "attempt"]].assign(q50=1.0, q90=1.5, q95=1.5, q99=3.0)
    found = clustered(truth, answers, ["host"], 200)
    assert n_clusters == clusters(truth).max() + 1
    assert found["cov90"] == pytest.approx(1.96 * 0.3 / np.sqrt(n_clusters), rel=1e-3)  # 0.9 come true, alike within a cluster
    assert found["floor90"] == pytest.approx(0.798 * 0.3 / np.sqrt(n_clusters), rel=1e-3)
    assert found["cov99"] == pytest.approx(0.0, abs=1e-12)
    assert found["group90"] == pytest.approx(found["cov90"])  # one group
    assert clustered(truth, answers, ["host"], 500)["floor90"] is clustered(truth, answers, ["host"], 500)["group90"] is None


def test_errors_of_groups_move_together_where_clusters_reach_into_several() -> None:
    hit, cluster = np.tile([1.0, 1.0, 1.0, 0.0], 2), np.tile(np.arange(4), 2)
    groups = [np.arange(4), np.arange(4, 8)]
    one = group_error(hit[:4], np.ones(4), cluster[:4], groups[:1])
    assert one == pytest.approx(error(hit[:4], np.ones(4), cluster[:4]))
    assert group_error(hit, np.ones(8), cluster, groups) == pytest.approx(one)
    assert group_error(hit, np.ones(8), np.arange(8), groups) == pytest.approx(one / np.sqrt(2.0))
    opposite = np.concatenate([hit[:4], 1.0 - 0.0 * hit[4:]])  # of the second nothing varies
    assert group_error(opposite, np.ones(8), cluster, groups) == pytest.approx(one / 2.0)
