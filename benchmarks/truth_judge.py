"""What was answered in a world of known laws, judged by them: F_true(answered quantile | what the world holds), never by draws.

Figures of one world are means over its answers, or the median of their ratio to the true quantile.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.truth_worlds import AGES, HOSTS, Situation, World, new_shape, typical_s, world
from predictors.distribution import GRID
from service.backtest import Answer, Replay
from service.learners import DEFAULT, learner

SITUATIONS = {
    "steady": Situation(rows=2_200, judged_from=1_200),
    "slow host": Situation(rows=2_400, judged_from=1_200, slow_hosts=("elm",), slower=2.0, from_row=1_200),
    "all slower": Situation(rows=2_500, judged_from=1_200, slow_hosts=HOSTS, slower=1.5, from_row=1_200),
    "cancelled 20": Situation(rows=2_200, judged_from=1_200, cancelled=0.20),
    "cancelled 33": Situation(rows=2_200, judged_from=1_200, cancelled=0.33),
    "cancelled 49": Situation(rows=2_200, judged_from=1_200, cancelled=0.49),
    "crowd": Situation(rows=1_500, judged_from=1_500, crowd=50),
    "residual": Situation(rows=2_000, judged_from=1_200, aged=True),
    "new host": Situation(rows=1_200, judged_from=1_200, measured=60),
}
"""Rows before judged_from are for learning: steady is what is learned, not the learning."""
P90 = {
    "steady": (0.88, 0.92),
    "slow host": (0.87, 0.95),
    "all slower": (0.87, 0.95),
    "cancelled 20": (0.88, 0.95),
    "cancelled 33": (0.87, 0.95),
    "cancelled 49": (0.85, 0.95),
    "new host": (0.85, 0.95),
}
"""Coverage of p90 to reach."""
AFTER_SLOW, AFTER_SHIFT = 50, (200, 1_200)
"""Runs ended on the slow host from which its answers count; outcomes since the shift between which answers count."""
Judge = Callable[[World, Situation, list[Answer]], dict[str, float]]


def judged(situation: str, family: str, seed: int, model: str = DEFAULT) -> dict[str, float]:
    """Figures of one world by name."""
    asked = SITUATIONS[situation]
    made = world(family, asked, seed)
    answers = list(Replay(made.rows, learner(model, made.rates), made.queries).answers())
    if asked.measured:
        return _placed(made, family, asked.measured, answers)
    if asked.crowd:
        return _crowd(made, answers)
    return _aged(made, answers) if asked.aged else _covered(made, asked, answers)


def _level(answer: Answer, p: float) -> float:
    """The answered quantile in s."""
    assert answer.made is not None, "judged rows begin long after the first outcome"
    return float(answer.made.quantiles_s[int(np.argmin(np.abs(GRID - p)))])


def _covered(made: World, asked: Situation, answers: list[Answer]) -> dict[str, float]:
    """Coverage of p90, and its median ratio to the true one, of the rows that count."""
    rows = _counted(made, asked)
    found = {answer.row: _level(answer, 0.9) for answer in answers if answer.row in rows}
    ratio = [t_s / made.quantile(row, 0.9) for row, t_s in found.items()]
    return {"p90": float(np.mean([made.cdf(row, t_s) for row, t_s in found.items()])), "ratio": float(np.median(ratio))}


def _counted(made: World, asked: Situation) -> set[int]:
    """Rows that count: all from judged_from on, or those with enough outcomes since the slow-down."""
    rows = np.arange(asked.judged_from, asked.rows)
    if not asked.slow_hosts:
        return set(rows.tolist())
    host = np.array([context.host for context in made.rows.contexts])
    since = np.isin(host, asked.slow_hosts) & (np.arange(asked.rows) >= asked.from_row)
    ended = np.sort(made.rows.known_s[since])
    known = np.searchsorted(ended, made.rows.begun_s[rows], side="right")
    low, high = AFTER_SHIFT if len(asked.slow_hosts) > 1 else (AFTER_SLOW, len(ended))
    return set(rows[since[rows] & (known >= low) & (known <= high)].tolist())


def _crowd(made: World, answers: list[Answer]) -> dict[str, float]:
    """p90 on the new host when the first of the crowd have finished, over that when all have; and both over the true one."""
    early, late = (_level(answer, 0.9) for answer in answers[-2:])
    true = made.quantile(len(made.rows) - 1, 0.9)
    return {"early/late": early / late, "ratio": early / true, "late ratio": late / true}


def _placed(made: World, family: str, count: int, answers: list[Answer]) -> dict[str, float]:
    """p90 and p50 on a host known by its probes alone, against its law; and how much wider one without a profile is answered."""
    told, untold = answers[-2 * count : -count], answers[-count:]
    shape = new_shape(family)
    scale = made.scale[[answer.row for answer in told]]
    p50, p90 = (np.array([_level(answer, p) for answer in told]) for p in (0.5, 0.9))
    true50, true90 = (scale * shape.quantile(np.array(p)) for p in (0.5, 0.9))
    wide = [_level(answer, 0.9) / _level(answer, 0.5) for answer in untold]
    return {
        "p90": float(np.mean(shape.cdf(p90 / scale))),
        "ratio": float(np.median(p90 / true90)),
        "error": float(np.median(np.abs(p50 / true50 - 1.0))),
        "wider": float(np.median(wide / (p90 / p50))),
    }


def _aged(made: World, answers: list[Answer]) -> dict[str, float]:
    """Coverage of p50 and p90 of remaining times, at each age."""
    found: dict[str, list[float]] = {}
    for answer in answers:
        if answer.elapsed_s is None:
            continue
        age = min(AGES, key=lambda share: abs(share * typical_s(made, answer.row) - (answer.elapsed_s or 0.0)))
        gone = made.cdf(answer.row, answer.elapsed_s)
        for p in (0.5, 0.9):
            by = made.cdf(answer.row, answer.elapsed_s + _level(answer, p))
            found.setdefault(f"p{p * 100:.0f} at {age:g}", []).append((by - gone) / (1.0 - gone))
    return {name: float(np.mean(shares)) for name, shares in found.items()}


def reach(situation: str, figure: str) -> tuple[float, float]:
    """The range a figure is to lie in."""
    if figure.endswith("ratio"):
        return (0.9, 1.6) if situation.startswith("cancelled") or situation in {"crowd", "new host"} else (0.9, 1.25)
    if figure == "error":
        return 0.0, 0.12
    if figure == "wider":
        return 1.0, np.inf
    if figure == "early/late":
        return 0.9, 1.1
    if situation == "residual":
        level = int(figure[1:3]) / 100
        return level - 0.03, level + 0.03
    return P90[situation]
