"""A file of our own that no name leads to: however its process ends, nothing of it stays on disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OPEN_FILES = Path("/proc/self/fd")


@contextmanager
def scratch_file(folder: Path, content: bytes) -> Iterator[Path]:
    """A path, good in this process only, to a file in `folder` with that content, synced to disk.

    Where the system has no path to a file without a name, it has one, and only a killed process would leave it.
    """
    nameless = OPEN_FILES.is_dir()
    make = tempfile.TemporaryFile if nameless else tempfile.NamedTemporaryFile
    with make(dir=folder, prefix="probe-") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        yield OPEN_FILES / str(file.fileno()) if nameless else Path(str(file.name))
