"""The spool: a folder of append-only segments of JSON lines which outlives the processes that write it.

One `write` on an O_APPEND descriptor per record: once it has returned, the record survives SIGKILL of its writer (though
not a power cut). A writer holds an flock on its segment, so that anyone can tell a segment still written from one left behind.

    <wall ns>-<pid>-<number>.jsonl   segments, oldest first by name; lines {"attempt": {...}} or {"event": {...}}
    shipped.json                     bytes acknowledged by the API, by segment; written by the shipper alone
    dropped.json                     records given up for lack of room, since the folder was made
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

SHIPPED, DROPPED, LOCK = "shipped.json", "dropped.json", "spool.lock"


class Spool:
    """This process's end of a spool folder.

    folder: made if absent. max_bytes: bound on all segments of the folder together; past it the oldest that nobody writes
    are dropped and their unacknowledged records counted. segment_bytes: size at which a segment is closed.
    """

    def __init__(self, folder: Path, max_bytes: int = 256 * 2**20, segment_bytes: int = 4 * 2**20) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.segment_bytes = segment_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = -1
        self._written_bytes = 0
        self._number = 0
        self._not_written = 0
        self._rotating = threading.Lock()
        self._open_segment()

    def append(self, record: bytes) -> bool:
        """Write one line, which ends in a newline; False if the disk did not take it. Never raises, never waits for a lock."""
        try:
            taken = os.write(self._fd, record)
        except OSError:
            taken = 0
        if taken < len(record):
            self._not_written += 1
            if taken:  # a torn line must not swallow the next one
                with contextlib.suppress(OSError):
                    os.write(self._fd, b"\n")
        self._written_bytes += taken
        if self._written_bytes >= self.segment_bytes:
            self._rotate()
        return taken == len(record)

    def follow_fork(self) -> None:
        """In a forked child: leave the parent's segment to the parent."""
        self._rotating = threading.Lock()
        self._not_written = 0
        with contextlib.suppress(OSError):
            self._open_segment()

    def close(self) -> None:
        """Let go of the segment. Further records are counted as not written."""
        if self._fd >= 0:
            self._note_losses()
            os.close(self._fd)
            self._fd = -1

    @property
    def dropped(self) -> int:
        """Records lost for lack of room: those of the whole folder, and this process's latest."""
        return dropped(self.folder) + self._not_written

    def _open_segment(self) -> None:
        """Make a segment and put it in place of the present one under the same descriptor number.

        With dup2 a thread that is just writing reaches the old file or the new one, never a closed or a foreign one.
        The lock is taken before the name appears: nobody ever sees this segment unlocked while we live.
        """
        name = f"{time.time_ns():020d}-{os.getpid()}-{self._number}.jsonl"
        self._number += 1
        hidden = self.folder / f".{name}"
        made = os.open(hidden, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(made, fcntl.LOCK_EX)
        hidden.rename(self.folder / name)
        self._written_bytes = 0
        if self._fd < 0:
            self._fd = made
        else:
            os.dup2(made, self._fd, inheritable=False)
            os.close(made)

    def _rotate(self) -> None:
        """Go on in a new segment and hold the folder's bound; if another thread is at it, leave it to that one."""
        if not self._rotating.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(OSError):  # a full disk: the present segment goes on
                self._open_segment()
            self._note_losses()
        finally:
            self._rotating.release()

    def _note_losses(self) -> None:
        """Drop what is past the bound, and write down everything lost so far."""
        with contextlib.suppress(OSError), _exclusive(self.folder):
            lost, self._not_written = self._not_written, 0
            lost += _drop_past(self.folder, self.max_bytes)
            if lost:
                replace_json(self.folder / DROPPED, {"records": dropped(self.folder) + lost})


def segments(folder: Path) -> list[Path]:
    """Segments of a folder, oldest first."""
    return sorted(path for path in folder.glob("*.jsonl") if path.name[0].isdigit())


def sizes_bytes(folder: Path) -> dict[Path, int]:
    """The size of each segment, oldest first; one that is swept while they are listed is left out: nobody wants it any more."""
    sizes: dict[Path, int] = {}
    for path in segments(folder):
        with contextlib.suppress(FileNotFoundError):
            sizes[path] = path.stat().st_size
    return sizes


def is_written(segment: Path) -> bool:
    """Whether some process still writes this segment; False too if it is gone."""
    try:
        descriptor = os.open(segment, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def shipped(folder: Path) -> dict[str, int]:
    """Bytes acknowledged, by segment name."""
    return {name: int(size) for name, size in _read_json(folder / SHIPPED).items()}


def dropped(folder: Path) -> int:
    """Records given up for lack of room that were written down so far."""
    return int(_read_json(folder / DROPPED).get("records", 0))


def replace_json(path: Path, value: dict[str, int]) -> None:
    """Replace a small JSON file whole: readers see the old one or the new one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(value))
    fresh.replace(path)


def _read_json(path: Path) -> dict[str, int]:
    """A small JSON object, empty if it was never written."""
    try:
        found: dict[str, int] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found


def _drop_past(folder: Path, max_bytes: int) -> int:
    """Delete the oldest segments nobody writes until the rest fits; the number of records that were not acknowledged."""
    sizes = sizes_bytes(folder)
    acknowledged = shipped(folder)
    excess_bytes, lost = sum(sizes.values()) - max_bytes, 0
    for path, size_bytes in sizes.items():
        if excess_bytes <= 0:
            break
        with contextlib.suppress(FileNotFoundError):  # the shipper swept it meanwhile: room, and nothing lost
            if is_written(path):
                continue
            unsent = path.read_bytes()[acknowledged.get(path.name, 0) :].count(b"\n")
            path.unlink()
            lost += unsent
        excess_bytes -= size_bytes
    return lost


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; processes that trim take turns."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
