"""The rule cancels the share asked for and keeps the truth aside; the command says what was held."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
import typer
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks import truth
from benchmarks.truth_cancelled import Replayed, cancelled, first, line
from benchmarks.truth_worlds import Situation, world
from telemetry.words import Ended

ROWS = world("heavy", Situation(rows=1000, judged_from=500), 8).rows


@pytest.mark.parametrize("share", [0.20, 0.33, 0.49])
def test_the_multiple_chosen_on_the_first_rows_cancels_the_share(share: float) -> None:
    told, multiple = cancelled(ROWS, share)
    gone = np.array([ended == Ended.CANCELLED for ended in told.ended])
    assert_allclose(share, gone[:400].mean(), atol=0.005)
    assert_allclose(share, gone[400:].mean(), atol=0.06)
    assert multiple is not None
    assert multiple > 0.0
    assert np.all(told.duration_s[gone] < ROWS.duration_s[gone])
    assert_array_equal(ROWS.duration_s[~gone], told.duration_s[~gone])
    assert_array_equal(told.begun_s + told.duration_s, told.known_s)


def test_who_is_cancelled_depends_on_the_name_of_the_row_alone() -> None:
    assert cancelled(ROWS, 0.33)[0].ended == cancelled(ROWS, 0.33)[0].ended
    more = cancelled(ROWS, 0.49)[0].ended
    assert all(
        more[row] == Ended.CANCELLED for row, ended in enumerate(cancelled(ROWS, 0.2)[0].ended) if ended != Ended.COMPLETED
    )


def test_none_cancelled_is_the_set_as_it_is() -> None:
    assert (ROWS, None) == cancelled(ROWS, 0.0)
    assert 10 == len(first(ROWS, 10)) == len(first(ROWS, 10).contexts)


def test_a_line_tells_the_share_the_multiple_and_the_ratio() -> None:
    told = line(Replayed("some_set", 0.33, 1.5, 0.881, 0.87, 0.021, 1.05))
    assert all(word in told for word in ("some_set", "33%", "1.50 medians", "0.881", "0.87", "1.050"))
    assert_allclose(0.02, Replayed("some_set", 0.33, 1.5, 0.881, 0.87, 0.021, 1.05).uncensored)


def test_the_truth_is_printed_and_a_figure_not_reached_shows_in_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {1: 0.89, 2: 0.91, 3: 0.5}
    monkeypatch.setattr(truth, "one", lambda case: ({"p90": answers[case[2]]}, 1.0))
    truth.main(situation=["steady"], family=["heavy"], seed=[1, 2], jobs=1, json=True)
    [found] = orjson.loads(capsys.readouterr().out)
    assert (0.9, True, 2) == (pytest.approx(found["mean"]), found["held"], found["seeds"])
    with pytest.raises(typer.Exit) as stopped:
        truth.main(situation=["steady"], family=["heavy"], seed=[3], jobs=1, json=False)
    assert 1 == stopped.value.exit_code
    assert "no" in capsys.readouterr().out
