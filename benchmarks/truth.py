"""`make truth`: the engine in worlds whose laws are known, each situation in each family, judged exactly.

Every line is one figure of a situation in a family: its mean over seeds with a 95 % interval, what it is to reach, and whether
the mean does. Seeds below 1,000 may be used in development, those from 1,000 on never are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from typing import Annotated

import numpy as np
import orjson
import typer
from rich.progress import Progress
from scipy.stats import t as student

from benchmarks import truth_judge, truth_plans
from benchmarks.truth_worlds import FAMILIES

SEEDS = 20
SITUATIONS = (*truth_judge.SITUATIONS, *truth_plans.SITUATIONS)
WIDTHS = (12, 7, 11, 6, 13, 9, 4, 4)
Case = tuple[str, str, int]
Found = tuple[dict[str, float], float]


@dataclass(frozen=True)
class Line:
    """A figure over `seeds` worlds: its mean, a 95 % interval of it (both ends the mean for one seed), and the range to reach."""

    situation: str
    family: str
    figure: str
    mean: float
    low: float
    high: float
    reach: tuple[float, float]
    held: bool
    seeds: int
    seconds: float


def main(
    situation: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(SITUATIONS)}; all if none is named.")] = None,
    family: Annotated[list[str] | None, typer.Option(help=f"Any of {', '.join(FAMILIES)}; all if none is named.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help=f"Seeds; 0 to {SEEDS - 1} if none is given.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure and print; exit code 1 where a figure is not reached."""
    situations, families = _among(situation, SITUATIONS, "situation"), _among(family, FAMILIES, "family")
    kinds = [kind for kind in product(situations, families) if _there_is(*kind)]
    cases = [(*kind, number) for kind in kinds for number in seed or range(SEEDS)]
    found = dict(zip(cases, _measured(cases, jobs), strict=True))
    lines = [line for kind in kinds for line in lines_of(*kind, [found[case] for case in cases if case[:2] == kind])]
    typer.echo(orjson.dumps([asdict(line) for line in lines]).decode() if json else "\n".join(table(lines)))
    if not all(line.held for line in lines):
        raise typer.Exit(1)


def _among(named: Sequence[str] | None, known: Iterable[str], option: str) -> list[str]:
    """The names asked for, all if none is."""
    if unknown := set(named or ()) - set(known):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: use {', '.join(known)}", param_hint=f"--{option}")
    return list(named or known)


def _there_is(situation: str, family: str) -> bool:
    """Whether a situation is there in a family: of a plan whose host has a hidden pace the true chance is no one number."""
    return situation not in truth_plans.SITUATIONS or family in truth_plans.FAMILIES


def one(case: Case) -> Found:
    """Figures of a world, and the processor seconds it took."""
    started_s = time.process_time()
    judged = truth_plans.judged if case[0] in truth_plans.SITUATIONS else truth_judge.judged
    return judged(*case), time.process_time() - started_s


def _measured(cases: Sequence[Case], jobs: int) -> Iterator[Found]:
    """Figures of each case in order, with a bar on the error stream."""
    with Progress(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("worlds", total=len(cases))
        if jobs == 1:
            for case in cases:
                yield one(case)
                bar.advance(task)
            return
        with ProcessPoolExecutor(jobs) as pool:
            for found in pool.map(one, cases):
                yield found
                bar.advance(task)


def lines_of(situation: str, family: str, found: Sequence[Found]) -> list[Line]:
    """A line for every figure of a situation in a family; a world that lacks a figure does not count for it."""
    seconds = sum(s for _, s in found)
    made = []
    for figure in dict.fromkeys(name for figures, _ in found for name in figures):
        values = np.array([figures[figure] for figures, _ in found if figure in figures])
        mean, n = float(values.mean()), len(values)
        half = float(student.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
        plans = situation in truth_plans.SITUATIONS
        low, high = truth_plans.reach(figure) if plans else truth_judge.reach(situation, figure)
        held = bool(low <= mean <= high)
        made.append(Line(situation, family, figure, mean, mean - half, mean + half, (low, high), held, n, seconds))
    return made


def table(lines: Sequence[Line]) -> list[str]:
    """Lines as text a person can read; seconds are those of all the worlds of a situation in a family."""
    names = ("situation", "family", "figure", "mean", "95 % interval", "reach", "held", "s")
    return [_row(names)] + [
        _row(
            (
                line.situation,
                line.family,
                line.figure,
                f"{line.mean:.3f}",
                f"{line.low:.3f}-{line.high:.3f}",
                f"{line.reach[0]:.3g}-{line.reach[1]:.3g}",
                "yes" if line.held else "no",
                f"{line.seconds:.0f}",
            )
        )
        for line in lines
    ]


def _row(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


if __name__ == "__main__":
    typer.run(main)
