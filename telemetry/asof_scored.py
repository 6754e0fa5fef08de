"""The store as it was known at a commit, continued: answers scored, and every figure of a report as a query of its own.

The statements are files in `figures`: `make_*.sql` make temporary tables, step by step; each other file is one figure. With the
commit and the number of answers written into them they are the very text that runs here, and anybody may run them in any DuckDB
client on a snapshot and get the same figures.
"""

from __future__ import annotations

from functools import cached_property
from importlib import resources
from string import Template

import pyarrow as pa

from telemetry.store.reader import Reader

STRATA = ("host", "device", "family", "mode", "state", "size_class", "batch_class", "concurrency")
"""What answers are grouped by, one at a time within a phase; state and host also together."""
BINS = 20
"""Bins of the histogram of F(y)."""
PARTS = 24
"""Parts of equal counts into which the answers about a phase are cut in order of start."""
LEAST = 100
"""Answers from which a stratum has a censoring curve of its own."""
_LEVELS = (50, 90, 95, 99)
_STRAIGHT = frozenset({"plans", "support", "reasons", "drift"})
"""Figures that need none of the temporary tables."""
_FILES = resources.files("telemetry") / "figures"


class Scores:
    """Answers scored as of a commit, the `newest` by start of their phase; the temporary tables live as long as the reader.

    Raises StoreError where the engine refuses a statement.
    """

    def __init__(self, reader: Reader, commit: int, newest: int) -> None:
        self._reader, self.commit = reader, int(commit)
        self._values = {"commit": self.commit, "newest": int(newest), "parts": PARTS, "least": LEAST, **_PIECES}
        self._tables_made = False

    @cached_property
    def setup(self) -> list[str]:
        """Statements that make the temporary tables, in order."""
        names = sorted(file.name for file in _FILES.iterdir() if file.name.startswith("make_"))
        return [self._text(name) for name in names]

    def query(self, name: str) -> str:
        """The query of one figure, after `setup`."""
        return self._text(f"{name}.sql")

    def figure(self, name: str) -> pa.Table:
        """The rows of one figure, by the query of that name; columns as its first line says."""
        if name not in _STRAIGHT and not self._tables_made:
            for statement in self.setup:
                self._reader.rows(statement)
            self._tables_made = True
        return self._reader.arrow(self.query(name))

    def _text(self, file: str) -> str:
        return Template((_FILES / file).read_text(encoding="utf-8")).substitute(self._values).strip()


_CONCURRENCY = """CASE WHEN c[8] IS NULL THEN '' WHEN c[8]::DOUBLE < 1 THEN '0' WHEN c[8]::DOUBLE < 2 THEN '1'
            WHEN c[8]::DOUBLE < 4 THEN '2 to below 4' ELSE '4 and more' END"""


def _class_of(place: int) -> str:
    """Powers of two between which a number lies, in words; an empty text where it is not known."""
    value = f"c[{place}]::DOUBLE"
    low = f"2 ** floor(log2({value}))"
    return (
        f"CASE WHEN c[{place}] IS NULL THEN '' WHEN {value} < 1 THEN 'below 1'\n"
        f"            ELSE printf('%.0f to below %.0f', {low}, 2 * {low}) END"
    )


def _pieces() -> dict[str, str]:
    """What would be the same line many times over, by its name in the files."""
    words = ("host", "device", "family", "mode", "state")
    paths = ", ".join(f"'$.{name}'" for name in (*words, "size_in", "batch", "corunners"))
    named = [f"coalesce(c[{place}], '') AS {name}" for place, name in enumerate(words, 1)]
    classes = [
        f"{_class_of(6)} AS size_class",
        f"{_class_of(7)} AS batch_class",
        f"{_CONCURRENCY} AS concurrency",
    ]
    sets = ["while_running", "while_running, phase", "while_running, phase, state, host"]
    sets += [f"while_running, phase, {name}" for name in STRATA]
    return {
        "names": ", ".join(STRATA),
        "context": f"context->>[{paths}]",
        "strata": ",\n        ".join([", ".join(named), *classes]),
        "sets": ", ".join(f"({one})" for one in sets),
        "centred": f"[{', '.join(str((2 * place - 100) / 100) for place in range(1, 100))}]",
        "below": " + ".join(f"(q[{place}] < actual_s)::INT" for place in range(5, 100, 5)),
        "upto": " + ".join(f"(q[{place}] <= actual_s)::INT" for place in range(5, 100, 5)),
        "bare": ",\n    ".join(map(_counted, _LEVELS)),
        "counts": ",\n    ".join(f"{_counted(level)},\n    {_weighed(level)}" for level in _LEVELS),
        "pinballs": ",\n    ".join(map(_pinball, _LEVELS)),
        "sums": ",\n    ".join(map(_summed, _LEVELS)),
        "means": ", ".join(f"sum(pinball_{level}) / sum(weight) AS pinball_{level}" for level in _LEVELS),
    }


def _counted(level: int) -> str:
    return (
        f"count(*) FILTER (WHERE miss_{level} AND NOT failed) AS misses_{level}, "
        f"count(*) FILTER (WHERE completed OR miss_{level} AND NOT failed) AS resolved_{level}"
    )


def _weighed(level: int) -> str:
    weight = f"sum(weight_{level}::DECIMAL(38, 9)) FILTER"
    return (
        f"{weight} (WHERE miss_{level} AND NOT failed) AS missed_{level}, "
        f"{weight} (WHERE completed OR miss_{level} AND NOT failed) AS weighed_{level}"
    )


def _pinball(level: int) -> str:
    off = f"(log_s - ln(greatest(p{level}_s, 1e-6)))"
    loss = f"greatest({level / 100} * {off}, {level / 100} * {off} - {off})"
    return f"sum((weight * {loss})::DECIMAL(38, 9)) FILTER (WHERE completed) AS pinball_{level}"


def _summed(level: int) -> str:
    sums = [f"sum({word}_{level})::BIGINT AS {word}_{level}" for word in ("misses", "resolved")]
    return ", ".join([*sums, f"coalesce(sum(missed_{level}), 0) / sum(weighed_{level}) AS weighted_{level}"])


_PIECES = _pieces()
