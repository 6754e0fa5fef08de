"""Lengths in whole pieces: the law, what is learned, and what tokens so far tell on a recorded column of tokens."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors import discrete, laws
from predictors.contexts import Context
from predictors.discrete import EDGES, KNOTS, Lengths, WholeNumbers
from predictors.distribution import Distribution
from predictors.families import given as supports
from predictors.scores import LEVELS, pinball
from telemetry.errors import BadField, NoEvidence

HERE, THERE = Context(family="llm", model="a"), Context(family="llm", model="b")
FOREVER = (None,) * 6


def learned(length: list[float] | np.ndarray, finished: np.ndarray | None = None, context: Context = HERE) -> Lengths:
    n = np.asarray(length, dtype=np.float64)
    return discrete.fit("output_tokens", [context] * len(n), n, np.ones(len(n), bool) if finished is None else finished, FOREVER)


def crps(actual: np.ndarray, quantiles: np.ndarray) -> float:
    return float(2.0 * pinball(actual[:, None], quantiles, LEVELS).mean())


def test_columns_are_single_numbers_first_and_then_sixteen_to_a_doubling() -> None:
    np.testing.assert_array_equal(np.arange(1.0, 17.0), EDGES[:16])
    assert (131072.0, True) == (EDGES[-1], bool(np.all(np.diff(EDGES) >= 1.0)))
    assert 1.06 > (EDGES[60:] / EDGES[59:-1]).max()


def test_the_law_steps_at_whole_numbers_only() -> None:
    law = learned([1.0, 2.0, 3.0, 40.0]).whole([HERE])
    np.testing.assert_array_equal(law.sf([2.0, 2.5, 2.999]), [[law.sf(2.0)[0, 0]] * 3])
    assert law.sf(3.0)[0, 0] < law.sf(2.999)[0, 0]
    q = law.quantile(np.linspace(0.0, 0.999, 400))[0]
    np.testing.assert_array_equal(np.floor(q), q)


@pytest.mark.parametrize("law", laws.DISTRIBUTION_LAWS, ids=lambda law: law.__name__)
def test_learned_lengths_obey_the_laws(law: Callable[[Distribution], None]) -> None:
    rng = np.random.default_rng(3)
    length = np.floor(np.exp(rng.normal(3.0, 1.5, 300)))
    law(learned(length, rng.random(300) < 0.8).whole([HERE, THERE, HERE]))


def test_many_lengths_are_answered_as_they_were_seen() -> None:
    # The root's prior counts two of 3,002: what is answered lies within a thousandth of what was seen.
    seen = np.repeat([0.0, 1.0, 2.0, 8.0], [600, 900, 300, 1200])
    found = learned(seen).whole([HERE]).cdf([0.0, 1.0, 2.0, 7.0, 8.0])[0]
    np.testing.assert_allclose([0.2, 0.5, 0.6, 0.6, 1.0], found, atol=2e-3)


def test_what_is_left_is_the_law_of_those_that_went_on() -> None:
    model = learned(np.repeat([4.0, 10.0, 12.0], [500, 300, 200]))
    found = model.remaining([HERE, HERE], np.array([4.0, 10.0])).cdf([2.0, 6.0, 8.0])
    np.testing.assert_allclose([[0.0, 0.6, 1.0], [1.0, 1.0, 1.0]], found, atol=0.01)


def test_one_that_goes_on_makes_at_least_one_more() -> None:
    left = learned(np.arange(1.0, 200.0)).remaining([HERE], np.array([50.0]))
    assert 1.0 == left.quantile(1e-6)[0, 0]
    assert 0.0 == left.cdf(0.0)[0, 0]


def test_attempts_cut_off_are_longer_than_where_they_were_cut() -> None:
    # Half are cut at 10: the others say that half of those that pass 10 reach 20, all else ends at 20 or 30.
    length = np.repeat([10.0, 20.0, 30.0], [400, 200, 200])
    found = learned(length, np.repeat([False, True, True], [400, 200, 200])).whole([HERE]).cdf([10.0, 19.0, 20.0, 30.0])[0]
    np.testing.assert_allclose([0.0, 0.0, 0.5, 1.0], found, atol=0.01)


def test_past_everything_seen_a_tail_goes_on_falling_by_a_power() -> None:
    law = learned(np.full(50, 10.0)).whole([HERE])
    s = law.sf([1e3, 1e4, 1e5, 1e6, 1e9])[0]
    assert np.all(np.diff(s) < 0.0)
    np.testing.assert_allclose(1e-2, s[1:4] / s[:3], rtol=0.1)
    assert s[-1] > 0.0


def test_strata_shrink_to_their_parent_and_a_new_one_is_the_parent() -> None:
    rng = np.random.default_rng(4)
    context = [HERE, THERE] * 500
    length = np.floor(np.exp(rng.normal(np.tile([2.0, 5.0], 500), 0.5)))
    model = discrete.fit("output_tokens", context, length, np.ones(1000, dtype=bool), FOREVER)
    here, there, new = model.whole([HERE, THERE, Context(family="llm", model="c")]).quantile(0.5)[:, 0]
    assert (pytest.approx(7.0, abs=1.0), pytest.approx(148.0, abs=12.0)) == (here, there)
    assert here < new < there
    levels = [s.level for s in model.whole([HERE, Context(family="llm", model="c"), Context()]).support]
    assert ["configuration", "host", "state"] == levels


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_lengths_taken_in_one_by_one_count_as_those_of_a_fit(rows: list[tuple[int, bool, bool]]) -> None:
    half_life = (None, None, None, None, 5.0, 3.0)
    first = discrete.fit("output_tokens", [HERE], np.array([7.0]), np.array([True]), half_life)
    contexts = [HERE] + [HERE if here else THERE for _, _, here in rows]
    length, finished = np.array([7.0] + [float(n) for n, _, _ in rows]), np.array([True] + [done for _, done, _ in rows])
    folded = first
    for context, n, done in zip(contexts[1:], length[1:].tolist(), finished[1:].tolist(), strict=True):
        folded = folded.after(context, n, finished=done)
    at_once = discrete.fit("output_tokens", contexts, length, finished, half_life)
    assert at_once.nodes.keys() == folded.nodes.keys()
    assert at_once.longest == folded.longest
    for key, node in at_once.nodes.items():
        np.testing.assert_allclose(node.events, folded.nodes[key].events, atol=1e-12)
        np.testing.assert_allclose(node.at_risk, folded.nodes[key].at_risk, atol=1e-12)
        assert (node.n, pytest.approx(node.n_eff)) == (folded.nodes[key].n, folded.nodes[key].n_eff)


def test_learning_leaves_what_was_known_as_it_was() -> None:
    model = learned(np.arange(1.0, 50.0))
    before = model.whole([HERE]).hazard.tobytes()
    model.after(HERE, 3.0, finished=True)
    assert before == model.whole([HERE]).hazard.tobytes()


def test_nothing_finished_is_no_evidence() -> None:
    with pytest.raises(NoEvidence, match="output_tokens"):
        learned([5.0], np.array([False])).whole([HERE])
    with pytest.raises(NoEvidence, match="output_tokens"):
        learned([]).whole([HERE])


@pytest.mark.parametrize("bad", [-1.0, 2.5, np.nan, np.inf])
def test_a_length_is_a_whole_number(bad: float) -> None:
    with pytest.raises(BadField, match="length"):
        learned([3.0, bad])
    with pytest.raises(BadField, match="length"):
        learned([3.0]).after(HERE, bad, finished=True)
    with pytest.raises(BadField, match="so_far"):
        learned([3.0]).remaining([HERE], np.array([bad]))


def test_a_line_without_hazard_at_zero_has_no_atom() -> None:
    flat = WholeNumbers(np.log1p(KNOTS)[None, :], supports(1))
    np.testing.assert_allclose([[1.0, 0.5, 0.25]], flat.sf([0.0, 1.0, 3.0]))
    np.testing.assert_array_equal([[0.0, 1.0, 3.0, 4.0]], flat.quantile([0.0, 0.5, 0.75, 0.7500001]))


@pytest.fixture(scope="module")
def split(shared_dir: Path) -> tuple[Lengths, list[Context], np.ndarray]:
    """The token column of a recorded serving trace, in order of time: the first 60 % learned, the rest to be judged."""
    with (shared_dir / "examples" / "F18-azure-llm-code-first500.csv").open(newline="") as file:
        tokens = np.array([[float(row["ContextTokens"]), float(row["GeneratedTokens"])] for row in csv.DictReader(file)])
    context = [Context(family="llm", size_in=float(n)) for n in tokens[:, 0]]
    cut = int(0.6 * len(tokens))
    model = discrete.fit("output_tokens", context[:cut], tokens[:cut, 1], np.ones(cut, dtype=bool))
    return model, context[cut:], tokens[cut:, 1]


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_tokens_so_far_beat_the_unconditional_law(split: tuple[Lengths, list[Context], np.ndarray], share: float) -> None:
    model, context, length = split
    so_far = np.floor(share * length)
    unconditional = model.whole(context).quantile(LEVELS)
    conditional = model.remaining(context, so_far).quantile(LEVELS)
    # As a forecast of the whole length, and as one of what is left.
    assert crps(length - so_far, conditional) < 0.8 * crps(length, unconditional)
    assert crps(length - so_far, conditional) < crps(length - so_far, unconditional)


@pytest.mark.parametrize("level", [0.25, 0.5, 0.75, 0.9])
def test_those_that_went_on_past_a_number_are_foretold_best_by_having_done_so(
    split: tuple[Lengths, list[Context], np.ndarray], level: float
) -> None:
    # A share of the final length is chosen by what is asked for; a number of tokens is all that a scheduler sees.
    model, context, length = split
    so_far = float(np.floor(model.whole(context[:1]).quantile(level)[0, 0]))
    on = np.flatnonzero(length > so_far)
    asked = [context[i] for i in on]
    conditional = model.remaining(asked, np.full(len(on), so_far)).quantile(LEVELS)
    unconditional = model.whole(asked).quantile(LEVELS)
    left = length[on] - so_far
    assert crps(left, conditional) < crps(left, np.maximum(unconditional - so_far, 0.0))
    assert crps(left, conditional) < crps(length[on], unconditional)


def test_the_ninetieth_percentile_holds(split: tuple[Lengths, list[Context], np.ndarray]) -> None:
    model, context, length = split
    assert 0.9 == pytest.approx(np.mean(length <= model.whole(context).quantile(0.9)[:, 0]), abs=0.05)
