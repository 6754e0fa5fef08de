"""Every baseline that can be named is held to every law, learns online what a fit would have learned, and is imported late."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from predictors import baselines, laws
from predictors.baselines import boosted_quantiles, network
from predictors.baselines.registry import NAMES
from predictors.contexts import Context
from predictors.distribution import GRID, Distribution
from predictors.frames import Frame
from predictors.model import Change
from telemetry.errors import NoEvidence
from telemetry.words import Ended

PAIRS = (
    [
        Context(host="north", family="encoder", state="cold", size_in=64.0, batch=4.0),
        Context(host="south", family="encoder", state="cached", size_in=16.0, batch=1.0),
        Context(host="north", family="decoder", state="cached", size_in=64.0),
        Context(host="never seen", family="neither"),
        Context(host="north", family="encoder", state="cold", size_in=64.0, batch=4.0),
    ],
    ["setup", "setup", "setup", "setup", "queue"],
)
ONLINE = ("median_of_nine", "moving_average", "configuration_ecdf", "kaplan_meier")
NO_TORCH = importlib.util.find_spec("torch") is None
NAMED = [
    pytest.param(name, marks=[pytest.mark.torch, pytest.mark.skipif(NO_TORCH, reason="no torch")] if name == "network" else [])
    for name in NAMES
]


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Fewer trees and steps: the laws hold for any number of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosted_quantiles, "TREES", 12)
        patch.setattr(network, "STEPS", 60)
        yield


def recorded(n: int = 240) -> Frame:
    """Setups that complete, fail, are cancelled, run, and enter late; queues most of which take no time at all."""
    rng = np.random.default_rng(11)
    context, phase = rng.integers(0, 3, n), rng.integers(0, 2, n)
    time_s = np.exp(np.array([1.0, -2.0, -1.0])[context] + 0.3 * rng.normal(size=n))
    time_s = np.where(rng.random(n) < 0.05, time_s * 8.0, time_s)
    time_s = np.where((phase == 1) & (rng.random(n) < 0.7), 0.0, time_s)
    fate = rng.random(n)
    return Frame(
        contexts=tuple(PAIRS[0][:3]),
        phases=("setup", "queue"),
        context=context,
        phase=phase,
        entry_s=np.where(rng.random(n) < 0.1, 0.3 * time_s, 0.0),
        duration_s=time_s,
        completed=(fate < 0.7) | (time_s == 0.0),
        failed=(fate >= 0.7) & (fate < 0.8) & (time_s > 0.0),
        running=(fate >= 0.9) & (time_s > 0.0),
        weight=np.where(rng.random(n) < 0.2, 0.5, 1.0),
        known_from=np.arange(1, n + 1),
        cancelled=(fate >= 0.8) & (fate < 0.9) & (time_s > 0.0),
    )


def part(frame: Frame, rows: slice) -> Frame:
    """Some rows of a frame."""
    arrays = {
        name: getattr(frame, name)[rows]
        for name in ("context", "phase", "entry_s", "duration_s", "completed", "failed", "running", "weight", "known_from")
    }
    return Frame(frame.contexts, frame.phases, **arrays)


def changes(frame: Frame, rows: range, sign: int = 1) -> list[Change]:
    """Rows of a frame as they become known, or are taken back."""
    made = []
    for i in rows:
        kinds = (frame.completed[i], frame.failed[i], frame.running[i], True)
        ended = (Ended.COMPLETED, Ended.FAILED, Ended.RUNNING, Ended.CANCELLED)[kinds.index(True)]
        context, phase = frame.contexts[frame.context[i]], frame.phases[frame.phase[i]]
        times = float(frame.entry_s[i]), float(frame.duration_s[i])
        made.append(Change(sign, i + 1, phase, context, *times, ended, float(frame.weight[i]), i + 1))
    return made


@pytest.fixture(scope="module")
def answers() -> Callable[[str], Distribution]:
    """The answer of a baseline fitted once."""
    made: dict[str, Distribution] = {}

    def answer(name: str) -> Distribution:
        if name not in made:
            made[name] = NAMES[name].fit(recorded(), 240).predict(*PAIRS)
        return made[name]

    return answer


@pytest.mark.parametrize("law", laws.DISTRIBUTION_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", NAMED)
def test_answers_obey(name: str, law: Callable[[Distribution], None], answers: Callable[[str], Distribution]) -> None:
    law(answers(name))


@pytest.mark.parametrize("law", laws.MODEL_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", NAMED)
def test_models_obey(name: str, law: Callable[[laws.Fit, Frame, laws.Pairs], None]) -> None:
    law(lambda frame: NAMES[name].fit(frame, 240), recorded(), PAIRS)


@pytest.mark.parametrize("name", NAMED)
def test_what_is_known_is_told(name: str) -> None:
    frame = recorded()
    model = NAMES[name].fit(frame, 240)
    n_setups = int((frame.completed & (frame.phase == 0)).sum())
    assert (n_setups, ("queue", "setup"), 240) == (model.outcomes("setup"), model.phases, model.fit_commit)
    assert (True, False) == (model.knows("setup"), model.knows("service"))
    assert model.incidence(PAIRS[0][0], "setup") is None
    with pytest.raises(NoEvidence, match="service"):
        model.predict(PAIRS[0][:2], ["setup", "service"])
    with pytest.raises(NoEvidence, match="service"):
        model.incidence(PAIRS[0][0], "service")
    support = model.predict(*PAIRS).support
    assert ["configuration", "configuration", "configuration", "phase"] == [found.level for found in support[:4]]
    assert [True, True, True, False] == [found.matched for found in support[:4]]
    assert float(frame.duration_s[frame.phase == 0].max()) == support[0].largest_s


@pytest.mark.parametrize("name", NAMED)
def test_phases_never_completed_or_never_lasting_break_nothing(name: str) -> None:
    # Setups run alone: nothing to answer from. Queues took no time, ever: the answer is none. A drain never varied.
    n = 90
    phase = np.arange(n) % 3
    frame = Frame(
        contexts=(PAIRS[0][0],),
        phases=("setup", "queue", "drain"),
        context=np.zeros(n, dtype=np.int64),
        phase=phase,
        entry_s=np.zeros(n),
        duration_s=np.array([5.0, 0.0, 0.25])[phase],
        completed=phase > 0,
        failed=np.zeros(n, dtype=bool),
        running=phase == 0,
        weight=np.ones(n),
        known_from=np.arange(1, n + 1),
    )
    model = NAMES[name].fit(frame, n)
    assert ("drain", "queue") == model.phases
    answer = model.predict([PAIRS[0][0]] * 2, ["queue", "drain"])
    assert_array_equal(np.zeros(len(GRID)), answer.quantile(GRID)[0])
    assert_allclose(0.25, answer.quantile([0.1, 0.5, 0.9])[1], rtol=0.02)
    for law in laws.DISTRIBUTION_LAWS:
        law(answer)


@pytest.mark.parametrize("name", NAMED)
def test_a_frame_of_nothing_gives_a_model_that_knows_nothing(name: str) -> None:
    model = NAMES[name].fit(part(recorded(), slice(0)), 0)
    assert () == model.phases
    with pytest.raises(NoEvidence):
        model.predict(*PAIRS)


@given(st.integers(20, 240), st.integers(1, 60))
@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize("name", ONLINE)
def test_learning_row_by_row_is_learning_at_once(name: str, n: int, step: int) -> None:
    frame = recorded()
    model = NAMES[name].fit(part(frame, slice(20)), 20)
    for start in range(20, n, step):
        upto = min(start + step, n)
        model = model.after(changes(frame, range(start, upto)), upto)
    whole = NAMES[name].fit(part(frame, slice(n)), n)
    assert n == model.commit
    assert whole.outcomes("setup") == model.outcomes("setup")
    assert_array_equal(whole.predict(*PAIRS).quantile(GRID), model.predict(*PAIRS).quantile(GRID))
    assert [s.n for s in whole.predict(*PAIRS).support] == [s.n for s in model.predict(*PAIRS).support]
    elapsed_s = np.zeros(len(PAIRS[0]))
    assert_array_equal(whole.p_complete(*PAIRS, elapsed_s), model.p_complete(*PAIRS, elapsed_s))


@pytest.mark.parametrize("name", ["configuration_ecdf", "kaplan_meier"])
def test_what_was_taken_back_was_never_there(name: str) -> None:
    frame = recorded()
    before = NAMES[name].fit(part(frame, slice(200)), 200)
    more = changes(frame, range(200, 240))
    after = before.after(more, 240).after(changes(frame, range(200, 240), -1), 241)
    assert before.outcomes("setup") == after.outcomes("setup")
    assert_array_equal(before.predict(*PAIRS).quantile(GRID), after.predict(*PAIRS).quantile(GRID))


@pytest.mark.parametrize("name", [p for p in NAMED if p.values[0] not in ONLINE])
def test_regressions_stand_still_between_fits(name: str) -> None:
    frame = recorded()
    model = NAMES[name].fit(part(frame, slice(200)), 200)
    later = model.after(changes(frame, range(200, 240)), 240)
    assert (240, 200, model.outcomes("setup")) == (later.commit, later.fit_commit, later.outcomes("setup"))
    assert_array_equal(model.predict(*PAIRS).quantile(GRID), later.predict(*PAIRS).quantile(GRID))


def test_every_baseline_is_named() -> None:
    modules = [importlib.import_module(f"predictors.baselines.{m.name}") for m in pkgutil.iter_modules(baselines.__path__)]
    own = {module.__name__.rsplit(".", 1)[1] for module in modules if getattr(module, "fit", None)}
    assert own == set(NAMES)
    assert all(named.about and "\n" not in named.about for named in NAMES.values())


def test_naming_baselines_imports_none_of_their_libraries() -> None:
    heavy = {"sklearn", "mapie", "lifelines", "pandas", "torch"}
    program = f"import sys, predictors.baselines.registry; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]\n" == ran.stdout
