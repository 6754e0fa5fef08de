"""The page cache of one file of our own: drop it, fill it, and prove by mincore which of the two holds.

Nothing here touches other files or the system's cache as a whole.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_CHUNK_BYTES = 1 << 20


def resident_fraction(path: Path) -> float | None:
    """Share of the file's pages in the page cache, 0 to 1; None where the kernel does not tell (or the file is empty)."""
    size_bytes = path.stat().st_size
    mincore = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)
    if size_bytes == 0 or mincore is None:
        return None
    n_pages = -(-size_bytes // mmap.PAGESIZE)
    pages = (ctypes.c_ubyte * n_pages)()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_COPY) as mapped:
        # A private mapping that is never touched brings in no page; ctypes wants a writable one to give its address.
        anchor = ctypes.c_char.from_buffer(mapped)
        failed = mincore(ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(size_bytes), pages)
        del anchor
    return None if failed else sum(page & 1 for page in pages) / n_pages


def evict(path: Path) -> bool:
    """Ask for the file's pages to be dropped; True only if it is proved that none is left.

    Dirty pages are written first. The kernel keeps pages that any process has mapped, and tmpfs keeps all.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    with path.open("rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_fraction(path) == 0.0


def fill(path: Path) -> bool:
    """Read the file through; True only if it is proved that every page is then in the page cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(_CHUNK_BYTES):
            pass
    return resident_fraction(path) == 1.0
