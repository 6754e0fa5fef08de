"""Everything the demo tells at its end, gathered from the last snapshot; the same figures as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from service.demo.plancard import Deadlines, Starts, deadlines, scored_plans, starts
from service.demo.run import Made
from service.demo.scorecard import ResidualCell, Scorecard, card, past, residual_cells, scored_rows
from service.demo.walk import Step, walk
from service.replay import Replayed, replay
from telemetry.store.reader import open_reader


@dataclass(frozen=True)
class Figures:
    """The demo's findings."""

    steps: list[Step]
    card: Scorecard
    residuals: list[ResidualCell]
    deadlines: Deadlines | None
    starts: Starts | None
    replayed: Replayed
    rows: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The figures as plain values; levels become text, since JSON knows no other keys."""
        told = asdict(self)
        for cell in told["card"]["cells"]:
            cell["exceeded"] = {f"p{100 * level:g}": found for level, found in cell["exceeded"].items()}
        told["replayed"]["identical"] = self.replayed.identical
        return told


def figures(made: Made, progress: Callable[[int], None]) -> Figures:
    """Read, score and replay the snapshot; `progress` is told how many answers were replayed."""
    with open_reader(made.snapshot) as reader:
        newest = int(reader.rows("SELECT max(known_from) FROM commits")[0][0])
        plans = scored_plans(reader, newest)
        tables = (
            "events",
            "attempts",
            "observations",
            "quarantine",
            "predictions",
            "outcomes",
            "plan_answers",
            "plan_outcomes",
            "models",
        )
        return Figures(
            steps=walk(reader),
            card=card(scored_rows(reader), past(reader)),
            residuals=residual_cells(scored_rows(reader, residual=True), made.asked.fractions),
            deadlines=deadlines(plans),
            starts=starts(plans),
            replayed=replay(reader, newest, progress),
            rows={name: int(reader.rows(f"SELECT count(*) FROM {name}")[0][0]) for name in tables},  # noqa: S608  names of ours
        )
