"""The demo's findings as a person reads them in a terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from predictors.scores import Interval
from service.demo.figures import Figures
from service.demo.plancard import Deadlines, Starts
from service.demo.questions import Asked
from service.demo.relay import Round
from service.demo.run import Made
from service.demo.scorecard import LEVELS_SHOWN, ResidualCell, Scorecard
from service.demo.supervisor import Finished
from service.demo.walk import Step
from service.replay import Replayed
from telemetry.tables import HostProfile

PAGE_WIDTH = 120
"""Width of tables where the output is no terminal, such as a log."""


def everything(console: Console, made: Made, found: Figures, store: Path) -> None:
    """All findings, in the order of the walk."""
    endings(console, made.finished, made.asked)
    console.print("Rows: " + ", ".join(f"{n} {name}" for name, n in found.rows.items()))
    steps(console, found.steps)
    scores(console, found.card)
    residuals(console, found.residuals, made.asked)
    deadlines(console, found.deadlines)
    starts(console, found.starts, made.rounds)
    replayed(console, found.replayed)
    afterwards(console, store, made.snapshot)


def backend_line(backend: str, *, use_torch: bool) -> str:
    """Which library does the work, and why not the other."""
    if backend == "torch":
        return "Work: a transformer encoder on torch."
    why = "torch is not installed" if use_torch else "asked for by --no-torch"
    return f"Work: the same encoder in NumPy ({why})."


def rates(console: Console, measured: HostProfile) -> None:
    """What the probes measured."""
    table = Table("rate", "median", "spread", "samples", "complaints", title=f"Profile of {measured.host}")
    for name, rate in json.loads(measured.rates).items():
        table.add_row(
            name, f"{rate['median']:.4g}", f"{100 * rate['spread']:.0f} %", str(rate["samples"]), "; ".join(rate["complaints"])
        )
    console.print(table)


def interval(found: Interval) -> str:
    """A share with its interval, in per cent."""
    return f"{100 * found.estimate:.1f} ({100 * found.low:.0f}-{100 * found.high:.0f})"


def endings(console: Console, finished: Sequence[Finished], asked: Asked) -> None:
    """How attempts ended, and what was asked."""
    counts = Counter((f.ended.value, _kind(f)) for f in finished)
    table = Table("ended", "why", "attempts", title="Attempts")
    for (ended, why), n in sorted(counts.items()):
        table.add_row(ended, why, str(n))
    console.print(table)
    latency = sorted(asked.latency_s)
    if latency:
        p50, p99 = latency[len(latency) // 2], latency[int(0.99 * (len(latency) - 1))]
        console.print(
            f"{asked.predicted} attempts predicted over HTTP before they started, {asked.not_yet_known} asked before "
            f"anything was known; answer in {1e3 * p50:.1f} ms (p50), {1e3 * p99:.1f} ms (p99) beside the work itself"
        )


def _kind(finished: Finished) -> str:
    """Why, without what differs from attempt to attempt."""
    planned = finished.upcoming.planned
    if planned.failure is not None and finished.ended.value == "failed":
        return planned.failure.value
    if planned.cancel is not None and finished.ended.value == "cancelled":
        return f"by {planned.cancel.value}"
    return (finished.reason or "").split(":")[0]


def steps(console: Console, walked: Sequence[Step]) -> None:
    """The walk of one datum."""
    table = Table("station", "what it looked like there", title="One datum's walk")
    for step in walked:
        table.add_row(step.station, step.shown)
    console.print(table)


def scores(console: Console, card: Scorecard) -> None:
    """Coverage per phase and state, and scores beside the rules of thumb."""
    exceeded = [f"above p{100 * p:g} %" for p in LEVELS_SHOWN]
    table = Table(
        "phase",
        "state",
        "n",
        "other endings",
        *exceeded,
        "crps_log",
        "empirical",
        "last nine",
        title="Coverage with 95 % intervals (50, 10 and 5 % are right), and scores (lower is better)",
    )
    for c in card.cells:
        shown = [interval(c.exceeded[p]) for p in LEVELS_SHOWN]
        marks = [f"{s:.4f}" for s in (c.crps_log, c.crps_log_ecdf, c.crps_log_last9)]
        table.add_row(c.phase, c.state, str(c.n), str(c.censored), *shown, *marks)
    console.print(table)
    for name, ratio in (
        ("the empirical distribution of the configuration", card.ratio_to_ecdf),
        ("the median of the last nine", card.ratio_to_last9),
    ):
        if ratio is None:
            console.print(f"crps_log against {name}: too few attempts to tell")
        else:
            told = f"{ratio.estimate:.3f}, 90 % interval {ratio.low:.3f} to {ratio.high:.3f} over {ratio.n} blocks"
            console.print(f"crps_log against {name}, last 40 % of attempts ({card.n_last} phases): {told}")


def residuals(console: Console, cells: Sequence[ResidualCell], asked: Asked) -> None:
    """Remaining times asked while attempts ran."""
    table = Table(
        "asked at", "n", "above p50 %", "above p90 %", "crps_log", title="Remaining service time, asked by id while it ran"
    )
    for c in cells:
        table.add_row(
            f"{100 * c.fraction:g} % of the median",
            str(c.n),
            interval(c.exceeded_p50),
            interval(c.exceeded_p90),
            f"{c.crps_log:.4f}",
        )
    console.print(table)
    missed = f"{asked.not_seen_running} questions came before the start was known or after the end"
    console.print(f"{asked.residuals} remaining times asked; {missed}")


def deadlines(console: Console, found: Deadlines | None) -> None:
    """Chances of meeting deadlines against what happened."""
    if found is None:
        console.print("No chance was answered of an attempt whose outcome is known.")
        return
    table = Table(
        "chance answered", "plans", "said on average %", "completed in time %", title="Deadlines asked before attempts started"
    )
    for b in found.bins:
        table.add_row(f"{100 * b.low:g} to {100 * b.high:g} %", str(b.met.n), f"{100 * b.said:.1f}", interval(b.met))
    console.print(table)
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in found.verdicts.items())
    console.print(
        f"{found.n} plans ({found.left_open} more left open by cancellation): {verdicts}; Brier score {found.brier:.4f}"
    )
    console.print(f"of the plans answered `holds` at 0.9, {interval(found.held)} % completed in time (n = {found.held.n})")
    console.print(
        f"completed within the answered 95 % quantile: {interval(found.within_p95)} %; within the sum of the two p95s: "
        f"{interval(found.within_sum)} %, a bound {100 * (found.sum_over_p95 - 1):.0f} % longer"
    )
    console.print(f"where that sum says yes, {interval(found.sum_says_yes)} % completed in time (n = {found.sum_says_yes.n})")


def starts(console: Console, found: Starts | None, rounds: Sequence[Round]) -> None:
    """Latest starts of loads against what happened."""
    if found is None:
        console.print(f"No latest start was answered in {len(rounds)} relay rounds.")
        return
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in found.verdicts.items())
    console.print(f"Latest starts of {found.n} real loads against a running predecessor ({len(rounds)} rounds): {verdicts}")
    console.print(
        f"ready in time: said {100 * found.said:.1f} %, was {interval(found.met)} %; "
        f"of those called safe at {100 * found.level:g} %: {interval(found.safe_met)} % (n = {found.safe_met.n})"
    )
    console.print(
        f"late by {1e3 * found.expected_late_s:.1f} ms expected, {1e3 * found.actual_late_s:.1f} ms in fact; "
        f"idle for {1e3 * found.expected_idle_s:.1f} ms expected, {1e3 * found.actual_idle_s:.1f} ms in fact (means)"
    )


def replayed(console: Console, found: Replayed) -> None:
    """Whether every served answer could be given again."""
    if found.identical:
        console.print(f"Replayed from the store: {found.answers} answers and {found.fits} fits, identical to the byte")
    else:
        console.print(f"[red]Replay differs in {len(found.different_answers)} answers and {len(found.different_fits)} fits[/red]")


def afterwards(console: Console, store: Path, snapshot: Path) -> None:
    """Where things lie and what to do next."""
    console.print(f"The store: {store}; a snapshot any DuckDB client opens: {snapshot}. Try:")
    console.print(
        "  SELECT phase, ended, count(*), round(median(duration_s), 4) AS median_s FROM observations\n"
        "  WHERE known_until IS NULL AND absence IS NULL GROUP BY ALL ORDER BY ALL;",
        highlight=False,
    )
    console.print(f"Keep serving it: .venv/bin/phasecast serve --store {store}", highlight=False)
