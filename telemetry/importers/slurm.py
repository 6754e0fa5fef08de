"""What Slurm's accounting prints: the shape of its tables, its words for states, and its ways to write lengths and times."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from telemetry.errors import BadField
from telemetry.importers.instants import Instant, counted, written
from telemetry.words import CancelReason, Ended

_HEADER = re.compile(r"\s*([A-Za-z]\w*)(\W+)[A-Za-z]\w*", re.ASCII)
_ABSENT = frozenset({"", "unknown", "none", "n/a", "none assigned", "invalid"})
_LENGTH = re.compile(r"(?:(\d{1,6})-)?(\d{1,7}):(\d\d)(?::(\d\d))?(\.\d{1,9})?", re.ASCII)
_ENDINGS = {
    Ended.COMPLETED: "COMPLETED",
    Ended.FAILED: "FAILED NODE_FAIL BOOT_FAIL OUT_OF_MEMORY LAUNCH_FAILED RECONFIG_FAIL SPECIAL_EXIT",
    Ended.TIMED_OUT: "TIMEOUT DEADLINE",
    Ended.CANCELLED: "CANCELLED PREEMPTED REVOKED REQUEUED",
    Ended.RUNNING: "RUNNING COMPLETING SUSPENDED STOPPED RESIZING SIGNALING CONFIGURING STAGE_OUT",
    None: "PENDING REQUEUE_HOLD REQUEUE_FED RESV_DEL_HOLD",
}
_STATES = {word: ended for ended, words in _ENDINGS.items() for word in words.split()}
_SHORT = (
    "CD=COMPLETED F=FAILED NF=NODE_FAIL BF=BOOT_FAIL OOM=OUT_OF_MEMORY SE=SPECIAL_EXIT TO=TIMEOUT DL=DEADLINE CA=CANCELLED "
    "PR=PREEMPTED RV=REVOKED RQ=REQUEUED R=RUNNING CG=COMPLETING S=SUSPENDED ST=STOPPED RS=RESIZING SI=SIGNALING "
    "CF=CONFIGURING SO=STAGE_OUT PD=PENDING RH=REQUEUE_HOLD RF=REQUEUE_FED RD=RESV_DEL_HOLD"
)
_LETTERS = {short: word for short, _, word in (pair.partition("=") for pair in _SHORT.split())}


@dataclass(frozen=True)
class Shape:
    """How the records of a table are cut: by a delimiter, or where that is None at the columns `spans` of the text."""

    names: tuple[str, ...]
    delimiter: str | None
    spans: tuple[tuple[int, int], ...] = ()

    def cells(self, line: str) -> list[str]:
        """The cells of a record. BadField where their number isn't that of the header."""
        if self.delimiter is None:
            return [line[start:end].strip() for start, end in self.spans]
        found = next(csv.reader([line])) if self.delimiter == "," and '"' in line else line.split(self.delimiter)
        if len(found) == len(self.names) + 1 and not found[-1]:
            found.pop()  # -p ends each line with a delimiter
        if len(found) != len(self.names):
            told = f"the header has {len(self.names)}; a cell may hold the delimiter: print with --delimiter"
            raise BadField("line", f"{len(found)} cells", told)
        return [cell.strip() for cell in found]


def shape(first: Sequence[str]) -> Shape | None:
    """The shape of a table by its first two lines, names in lower case; None where it is none of accounting."""
    found = _HEADER.match(first[0]) if first else None
    if found is None:
        return None
    delimiter = found[2] if found[2].strip() or found[2] == "\t" else None
    spans = _spans(first[1] if delimiter is None and len(first) > 1 else "")
    if delimiter is None:
        names = [first[0][start:end].strip().lower() for start, end in spans]
    else:
        names = [cell.strip().lower() for cell in first[0].removesuffix(delimiter).split(delimiter)]
    is_accounting = "state" in names and not {"jobid", "jobidraw"}.isdisjoint(names)
    return Shape(tuple(names), delimiter, spans) if is_accounting else None


def _spans(rule: str) -> tuple[tuple[int, int], ...]:
    """Columns that a line of dashes under the header marks."""
    return tuple(found.span() for found in re.finditer(r"-+", rule)) if set(rule.strip()) == {"-", " "} else ()


def absent(text: str) -> bool:
    """Whether a cell says that its value is not known."""
    return text.strip().lower() in _ABSENT


def state(text: str) -> tuple[str, Ended | None]:
    """The full word of a state, and how a job in it ended; None for one that waits. BadField for a word that is none."""
    word, _, _ = text.strip().upper().partition(" ")
    word = _LETTERS.get(word, word)
    if word.endswith("+"):
        whole = [known for known in _STATES if known.startswith(word[:-1])]
        word = whole[0] if len(whole) == 1 else word
    if word not in _STATES:
        raise BadField("State", text[:80], f"states are {', '.join(_STATES)}")
    return word, _STATES[word]


def cancel_reason(text: str, word: str) -> CancelReason:
    """Why a job in this state was cancelled: by its user, by the scheduler or an administrator (user 0), or not told."""
    if word != "CANCELLED":
        return CancelReason.POLICY
    _, by, who = text.strip().lower().partition(" by ")
    if not by:
        return CancelReason.UNKNOWN
    return CancelReason.POLICY if who.strip() in {"0", "root"} else CancelReason.USER


def length_s(field: str, text: str) -> Decimal:
    """[D-]HH:MM:SS, D-HH:MM or MM:SS, each with a fraction or without, in s. BadField for other texts, and for 61 minutes."""
    found = _LENGTH.fullmatch(text.strip())
    if found is None:
        raise BadField(field, text[:80], "a length such as 5-00:00:00, 03:33:25 or 00:15.057 was expected")
    days, first, second, third, fraction = found.groups()
    if third is None and days is None:
        hours, minutes, whole_s = 0, int(first), int(second)
    else:
        hours, minutes, whole_s = int(first), int(second), int(third or 0)
    if whole_s > 59 or (third is not None or days is not None) * minutes > 59 or (days is not None and hours > 23):
        raise BadField(field, text[:80], "minutes and seconds go to 59, hours beside days to 23")
    return 86_400 * int(days or 0) + 3600 * hours + 60 * minutes + whole_s + Decimal(fraction or 0)


def time(field: str, text: str) -> Instant | None:
    """A time as Slurm prints it, or None where it is not known. BadField for other texts."""
    if absent(text) or text.strip() == "0":
        return None
    return counted(field, text, "s") if text.strip().isdecimal() else written(field, text)
