"""Exposure and events on the grid, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from predictors.counts import edges_of, events, exposure, marks

EDGES = np.array([0.0, 1.0, 2.0])  # columns: zero, up to 0, (0, 1], (1, 2], past 2
START = -np.inf


def risk(z_entry: float, z_exit: float, *, event: bool) -> list[float]:
    m = marks(np.array([z_entry]), np.array([z_exit]), np.array([event]), EDGES)
    return exposure(m, np.ones(1), np.zeros(1, dtype=np.int64), 1, 5)[0].tolist()


@pytest.mark.parametrize(
    ("z_entry", "z_exit", "event", "expected"),
    [
        (START, START, True, [1, 0, 0, 0, 0]),  # took no time: at risk of the atom only
        (START, 1.5, True, [1, 1, 1, 1, 0]),  # an event is at risk in all of its own column
        (START, 1.25, False, [1, 1, 1, 0.25, 0]),  # a censored row in the share of it that it passed
        (START, 1.0, False, [1, 1, 1, 0, 0]),
        (0.25, 1.5, True, [0, 0, 0.75, 1, 0]),  # delayed entry takes away what lay before
        (1.25, 1.5, True, [0, 0, 0, 1, 0]),
        (START, 4.5, True, [1, 1, 1, 1, 2.5]),  # in the open column exposure is a length
        (2.5, 4.5, False, [0, 0, 0, 0, 2.0]),
    ],
)
def test_exposure(z_entry: float, z_exit: float, event: bool, expected: list[float]) -> None:
    assert expected == risk(z_entry, z_exit, event=event)


def test_events_fall_in_their_column_and_add_up_by_group() -> None:
    z = np.array([START, -3.0, 0.5, 0.5, 9.0])
    m = marks(np.full(5, START), z, np.ones(5, dtype=bool), EDGES)
    found = events(m, np.array([1.0, 1.0, 1.0, 0.5, 1.0]), np.array([0, 0, 1, 1, 0]), 2, 5)
    assert [[1, 1, 0, 0, 1], [0, 0, 1.5, 0, 0]] == found.tolist()


def test_edges_stay_few_when_every_duration_is_unique() -> None:
    z = np.random.default_rng(0).normal(size=300_000)
    assert len(edges_of(z, np.zeros(0))) <= 80
    assert np.all(np.diff(edges_of(z, np.zeros(0))) > 0.0)


def test_edges_without_a_single_outcome_span_a_normal_law() -> None:
    assert (-4.0, 3.0) == (edges_of(np.zeros(0), np.zeros(0))[0], edges_of(np.zeros(0), np.zeros(0))[-1])
