"""Traces of arrivals: when requests came and how many tokens they had, as the Azure LLM inference traces give them.

They say nothing of how long anything took, so they make no row. Every record is read all the same, so that what is damaged
is told. Other orders and spellings of the three columns are taken; any further column makes it another format.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from telemetry.errors import BadField
from telemetry.importers.contract import Found, Importer, Options, Refused
from telemetry.importers.decimals import count, number
from telemetry.importers.instants import written
from telemetry.importers.tabular import first_line, head_lines, header, records

_TIME = frozenset({"timestamp", "arrivaltime", "arrivedat"})
_TOKENS_IN = frozenset({"contexttokens", "inputtokens", "prompttokens", "numprefilltokens"})
_TOKENS_OUT = frozenset({"generatedtokens", "outputtokens", "completiontokens", "numdecodetokens"})
_DELIMITERS = ",;\t"


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001  the name says nothing
    """Whether the columns are a time and two counts of tokens, and nothing else."""
    line = next((text for text in head_lines(head) if text.strip()), "")
    return _places(header(line, _DELIMITERS)[1]) is not None


def read(path: Path, options: Options) -> Found:  # noqa: ARG001  nothing here depends on them
    """No rows; how many records there are, and that they hold nothing to learn from."""
    places: tuple[int, int, int] | None = None
    refused: list[Refused] = []
    n_read = 0
    for line, cells in records(path, header(first_line(path), _DELIMITERS)[0]):
        if isinstance(cells, Refused):
            refused.append(cells)
        elif places is None:
            places = _places(cells)
            if places is None:
                return Found((), 0, (Refused(line, "header", "a time and two counts of tokens were expected"),))
        else:
            n_read += 1
            problem = _problem(cells, places)
            if problem:
                refused.append(Refused(line, "record", problem))
    return Found((), n_read, tuple(refused), ("arrivals and counts of tokens, no durations: nothing to learn from",))


def _places(columns: Sequence[str]) -> tuple[int, int, int] | None:
    """Where time, tokens in and tokens out stand; None unless these are the columns."""
    names = ["".join(filter(str.isalnum, cell)).lower() for cell in columns]
    found = [[place for place, cell in enumerate(names) if cell in known] for known in (_TIME, _TOKENS_IN, _TOKENS_OUT)]
    if len(names) != 3 or any(len(where) != 1 for where in found):
        return None
    return found[0][0], found[1][0], found[2][0]


def _problem(cells: Sequence[str], places: tuple[int, int, int]) -> str | None:
    """Why a record can't be read; None if it can."""
    if len(cells) != len(places):
        return f"{len(cells)} cells, the header has {len(places)}"
    if number(cells[places[0]]) is None:
        try:
            written("time", cells[places[0]])
        except BadField as error:
            return str(error)
    wrong = [cells[place] for place in places[1:] if count(cells[place]) is None]
    return f"{wrong[0][:80]!r} is no count of tokens" if wrong else None


ARRIVALS = Importer("arrivals", recognises, read, by_line=True)
