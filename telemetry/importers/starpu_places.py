"""The blocks of a StarPU performance model: which entry was measured where, told by the comment above each number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from telemetry.importers.contract import Refused
from telemetry.importers.starpu_history import Entry, Unreadable, read_entry

_COLUMNS = re.compile(r"hash size (?:flops )?mean \((.*?)\) dev \(.*?\) sum sum2 n")
_LEGEND = re.compile(r"(\w+) - (\d+)")
_IMPLEMENTATION = re.compile(r"_impl_?(\d+)")
_OLD_DEVICE = re.compile(r"(cpu|cuda|opencl|mic|scc)_\d+")
_NEXT = {
    "number of combinations": "combinations",
    "number of entries": "promised",
    "device id": "ids",
    "number of cores": "cores",
}


@dataclass(frozen=True)
class Place:
    """An entry with the device and implementation it was measured on, its line, and the unit its table states."""

    line: int
    device: str
    kind: str
    implementation: str
    unit: str
    entry: Entry

    def __str__(self) -> str:
        return f"{self.device} impl{self.implementation} {self.entry.footprint} (size {self.entry.size})"


@dataclass
class Contents:
    """What a file held, in its order, and what was wrong with it."""

    places: list[Place] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class _Block:
    """Where in the file we are: the devices of the combination, the implementation, and what the next number means.

    `left` entries of the table are still to come, None where it does not say how many it has.
    """

    legend: dict[str, str] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    cores: list[str] = field(default_factory=list)
    named: str = ""
    implementation: str = "0"
    promised: int | None = None
    left: int | None = None
    expects: str | None = None
    unit: str = "us"

    def device(self) -> str:
        """Devices of the combination as StarPU calls them, such as cuda0, or cpu0_cores4 for four cores at once."""
        if not self.kinds:
            return re.sub(r"_(?=\d)", "", _IMPLEMENTATION.split(self.named)[0])
        told = zip(self.kinds, self.ids, self.cores or ["1"] * len(self.ids), strict=False)
        return "+".join(
            f"{self.legend.get(kind, f'type{kind}_')}{number}{'' if cores == '1' else f'_cores{cores}'}"
            for kind, number, cores in told
        )

    def kind(self) -> str:
        """Kinds of its devices, which equal devices share."""
        return "+".join(self.legend.get(kind, kind) for kind in self.kinds) or self.device().rstrip("0123456789")


def read_places(text: str) -> Contents:
    """All entries. A comment says what the next number is; a table or file that ends short of what it promised is told."""
    found, block = Contents(), _Block()
    n_combinations = 0
    promised_combinations: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip()
        if words.startswith("#"):
            comment = " ".join(words.strip("#").split()).lower()
            if comment:  # else only a rule
                _finish(block, number, found)
                block = _after_comment(block, comment)
                n_combinations += comment == "number of types devices"
        elif words and block.expects == "entries":
            _add_entry(block, number, words, found)
        elif words:
            promised_combinations = words if block.expects == "combinations" else promised_combinations
            _after_number(block, words)
    _finish(block, None, found)
    if promised_combinations is not None and promised_combinations != str(n_combinations):
        found.notes.append(f"{promised_combinations} combinations are promised, {n_combinations} are there: edited or cut off")
    return found


def _add_entry(block: _Block, number: int, words: str, found: Contents) -> None:
    block.left = None if block.left is None else block.left - 1
    try:
        entry = read_entry(words.split())
    except Unreadable as problem:
        found.refused.append(Refused(number, "entry", str(problem)))
    else:
        found.places.append(Place(number, block.device(), block.kind(), block.implementation, block.unit, entry))


def _finish(block: _Block, number: int | None, found: Contents) -> None:
    """Tell of a table that ends before its entries are all there; `number` is the line after it, None at the file's end."""
    if block.left is not None and block.left > 0:
        what = "table" if number is not None else "end of file"
        found.refused.append(Refused(number, what, f"ends {block.left} entries short of those promised"))
    block.left = None


def _after_comment(block: _Block, comment: str) -> _Block:
    """The state after a comment: what the numbers that follow mean."""
    if comment == "number of types devices" or _OLD_DEVICE.fullmatch(comment):
        block = _Block(legend=block.legend)
    block.expects = _NEXT.get(comment)
    if comment.startswith("device type"):
        block.legend, block.expects = {code: name for name, code in _LEGEND.findall(comment)}, "kinds"
    elif comment.startswith("model for"):
        block.named, block.promised = comment.removeprefix("model for ").split(" ")[0], None
        implementation = _IMPLEMENTATION.search(comment)
        block.implementation = implementation.group(1) if implementation else "0"
    elif columns := _COLUMNS.fullmatch(comment):
        block.expects, block.unit, block.left = "entries", columns.group(1), block.promised
    return block


def _after_number(block: _Block, words: str) -> None:
    if block.expects in {"kinds", "ids", "cores"}:
        getattr(block, block.expects).append(words)
    elif block.expects == "promised":
        block.promised = int(words) if words.isascii() and words.isdigit() and len(words) < 10 else None
    block.expects = None
