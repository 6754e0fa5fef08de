"""Cold is called cold only when it is proved."""

import mmap
import os
from pathlib import Path

import pytest

from calibrate.hosts.pagecache import evict, fill, resident_fraction

SIZE_BYTES = 4 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(SIZE_BYTES))
    if not evict(path):
        pytest.skip("this file system does not drop pages (tmpfs, or no posix_fadvise)")
    return path


def test_dropped_file_has_no_page_and_a_read_one_has_all(file: Path) -> None:
    assert resident_fraction(file) == 0.0
    assert fill(file)
    assert resident_fraction(file) == 1.0
    assert evict(file)
    assert resident_fraction(file) == 0.0


def test_reading_half_of_it_leaves_it_neither_cold_nor_cached(file: Path) -> None:
    with file.open("rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(SIZE_BYTES // 2 // mmap.PAGESIZE):
            opened.read(mmap.PAGESIZE)
    assert 0.0 < resident_fraction(file) < 1.0


def test_asking_brings_no_page_in(file: Path) -> None:
    resident_fraction(file)
    assert resident_fraction(file) == 0.0


def test_drop_under_a_living_mapping_is_not_called_cold(file: Path) -> None:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) >= 0
        assert not evict(file)
    assert evict(file)


def test_dirty_file_is_written_before_it_is_dropped(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"changed")
    assert evict(file)
    assert file.read_bytes()[:7] == b"changed"


def test_nothing_is_proved_on_tmpfs() -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("no tmpfs here")
    path = shared / f"pagecache-{os.getpid()}"
    path.write_bytes(bytes(SIZE_BYTES))
    try:
        assert not evict(path)
    finally:
        path.unlink()


def test_empty_file_has_no_pages_to_tell_of(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert resident_fraction(path) is None
    assert not evict(path)
