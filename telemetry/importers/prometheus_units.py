"""Whether a histogram measures a time, in which unit, and what the phase it measures is called."""

from __future__ import annotations

import re
from dataclasses import dataclass

from telemetry.importers.decimals import unit_of

_HELP_UNIT = re.compile(r"(?:\bin |\()(nanoseconds|microseconds|milliseconds|seconds|ns|us|\u00b5s|ms|s)\b", re.IGNORECASE)
_TIME_WORDS = {"latency", "duration", "time", "delay", "wait", "elapsed"}
_KIND_WORDS = {"total", "histogram", "hist"}


@dataclass(frozen=True)
class Timed:
    """A histogram of times: phase name, unit (short name), and whether the unit is only assumed."""

    phase: str
    unit: str
    assumed: bool = False


def timed(family: str, declared: str | None, help_text: str, told: str | None) -> Timed | None:
    """What a family measures if it is a time, else None.

    The unit is the one the user told, else that of the name's last word, of `# UNIT` (`declared`), of the help text; a
    name that speaks of a time and gives none is in seconds, the unit the format asks for, and marked as assumed.
    """
    words = [word for word in family.rpartition(":")[2].split("_") if word]
    while len(words) > 1 and words[-1] in _KIND_WORDS:  # the type says what it is, not this
        words.pop()
    named = unit_of(words[-1]) if words else None
    if named is not None and (len(words) < 2 or words[-2] == "per"):
        return None  # a rate, or nothing but a unit
    phase = "_".join(words[:-1] if named else words)
    by_help = _HELP_UNIT.search(help_text)
    stated = named or unit_of(declared or "")
    speaks_of_time = not _TIME_WORDS.isdisjoint(words)
    if stated is None and speaks_of_time and by_help:
        stated = unit_of(by_help.group(1))
    if stated is None and not speaks_of_time:
        return None
    return Timed(phase, told or stated or "s", assumed=told is None and stated is None)
