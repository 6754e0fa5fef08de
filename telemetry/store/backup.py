"""Verified backups: a snapshot with its model files and their hashes, opened and read once before it counts.

A backup is a folder: `store.duckdb`, `models/`, and `manifest.json`, which is written last, so that what was interrupted is
no backup. Only snapshots are hashed: a second descriptor on a file that is served would drop its lock.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from telemetry.errors import BadField, DamagedStore, NewerStore
from telemetry.store import migrations
from telemetry.store.export import MANIFEST, sha256_of
from telemetry.store.lock import Lock
from telemetry.store.opening import connect, told

STORE, MODELS = "store.duckdb", "models"
_MANIFEST_BYTES = 64 * 2**20
_FIX = "it is not what was backed up; take another backup"


@dataclass(frozen=True)
class Kept:
    """A file of the backup, by its path within the folder."""

    file: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a backup holds: the store as of `commit`, rows per table (count), and every file.

    `missing` are model files that the store names and that were not there any more; the service does without them.
    """

    commit: int
    made_ns: int
    schema_version: int
    engine_version: str
    rows: dict[str, int]
    files: tuple[Kept, ...]
    missing: tuple[str, ...] = ()


def backup(take: Callable[[Path], int], models: Path, folder: Path, made_ns: int) -> Manifest:
    """Make a backup in the new folder `folder`; `take` writes a snapshot to the path given and returns its commit.

    `models` is where the store's model files lie. Raises BadField, and DamagedStore where the copy can't be read in full.
    """
    if folder.exists():
        raise BadField("folder", str(folder), "it exists; name a new folder")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / MODELS).mkdir(parents=True)
    try:
        commit = take(partial / STORE)
        copied, missing = _copy_models(partial, models)
        version, rows, newest = _read_through(partial / STORE)
        if newest != commit:
            raise DamagedStore("backup", f"a copy as of commit {newest} instead of {commit}", "make it again")
        files = tuple(_kept(partial, name) for name in (STORE, *copied))
        made = Manifest(commit, made_ns, version, duckdb.__version__, rows, files, tuple(missing))
        (partial / MANIFEST).write_text(json.dumps(asdict(made), indent=2) + "\n")
        for name in (MANIFEST, MODELS, "."):
            migrations.sync(partial / name)
        partial.rename(folder)
        migrations.sync(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return made


def verify(folder: Path) -> Manifest:
    """The manifest of a backup whose every file is what it was. Raises DamagedStore naming what is not."""
    made = _manifest(folder)
    for kept in made.files:
        path = folder / kept.file
        if not path.is_file():
            raise DamagedStore("backup", f"no {kept.file} in {folder}", _FIX)
        if (size := path.stat().st_size) != kept.size_bytes:
            raise DamagedStore("backup", f"{size} bytes instead of {kept.size_bytes} in {path}", _FIX)
        if sha256_of(path) != kept.sha256:
            raise DamagedStore("backup", f"another SHA-256 of {path}", _FIX)
    return made


def restore(folder: Path, target: Path, models: Path) -> Manifest:
    """Put a verified backup where no store is: the file at `target`, its models in the folder `models`.

    A high-water mark that is still there stays, so that numbers given out after the backup are not given out again. Raises
    BadField where something is in the way, StoreHeld, NewerStore, and DamagedStore, all before anything is at `target`.
    """
    made = verify(folder)
    if made.schema_version > migrations.STEPS[-1].to:
        fix = f"this program knows versions up to {migrations.STEPS[-1].to}; update it"
        raise NewerStore("backup", f"schema version {made.schema_version}", fix)
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = Lock.take(target)
    partial = target.with_name(target.name + ".restoring")
    try:
        for there in (target, target.with_name(target.name + ".wal")):
            if there.exists():
                raise BadField("store", str(there), "it exists; move it away, or restore to another --store")
        shutil.copyfile(folder / STORE, partial)
        _require_same(partial, made)
        for kept in made.files[1:]:
            models.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / kept.file, models / Path(kept.file).name)
        migrations.sync(partial)
        partial.rename(target)
        migrations.sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)
        lock.release()
    return made


def _require_same(copy: Path, made: Manifest) -> None:
    """Open the copy and read all of it; DamagedStore where it is not what the manifest says."""
    found = _read_through(copy)
    if sha256_of(copy) != made.files[0].sha256 or found != (made.schema_version, made.rows, made.commit):
        raise DamagedStore("backup", f"{copy} after copying", "the disk does not keep what is written to it; try another one")


def _read_through(path: Path) -> tuple[int, dict[str, int], int]:
    """Schema version, rows per table and newest commit of a closed file, every value of which was read on the way."""
    try:
        with connect(path, read_only=True) as connection:
            version = migrations.schema_version(connection)
            names = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY table_name").fetchall()
            rows = {}
            for (name,) in names:
                quoted = '"{}"'.format(name.replace('"', '""'))
                # Hashing whole rows makes the engine read every block, and check its checksum.
                found = connection.execute(f"SELECT count(*), bit_xor(hash(t)) FROM {quoted} t").fetchall()  # noqa: S608
                rows[name] = int(found[0][0])
            [(commit,)] = connection.execute("SELECT coalesce(max(known_from), 0) FROM commits").fetchall()
    except duckdb.Error as error:
        raise told(error, path) from error
    return version or 0, rows, int(commit)


def _copy_models(partial: Path, models: Path) -> tuple[list[str], list[str]]:
    """Copy the model files that the snapshot names; those copied and those that are not there."""
    with connect(partial / STORE, read_only=True) as connection:
        names = [name for (name,) in connection.execute("SELECT DISTINCT file_name FROM models ORDER BY ALL").fetchall()]
    there = [name for name in names if (models / name).is_file()]
    for name in there:
        shutil.copyfile(models / name, partial / MODELS / name)
    return [f"{MODELS}/{name}" for name in there], [name for name in names if name not in there]


def _kept(folder: Path, name: str) -> Kept:
    path = folder / name
    migrations.sync(path)
    return Kept(name, path.stat().st_size, sha256_of(path))


def _manifest(folder: Path) -> Manifest:
    """The manifest read back; names that lead out of the folder are refused."""
    path = folder / MANIFEST
    if not path.is_file():
        raise BadField("folder", str(folder), f"no {MANIFEST} there: it is no backup, or one that was interrupted")
    if path.stat().st_size > _MANIFEST_BYTES:
        raise DamagedStore("backup", f"{path} of {path.stat().st_size} bytes", _FIX)
    try:
        made = _parsed(json.loads(path.read_bytes()))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedStore("backup", f"{path}: {error}", _FIX) from error
    for kept in made.files:
        if kept.file != STORE and kept.file != f"{MODELS}/{Path(kept.file).name}":
            raise DamagedStore("backup", f"{kept.file!r} in {path}", _FIX)
    if not made.files or made.files[0].file != STORE:
        raise DamagedStore("backup", f"no {STORE} in {path}", _FIX)
    return made


def _parsed(found: dict[str, Any]) -> Manifest:
    files = tuple(Kept(str(one["file"]), int(one["size_bytes"]), str(one["sha256"])) for one in found["files"])
    rows = {str(name): int(count) for name, count in found["rows"].items()}
    numbers = int(found["commit"]), int(found["made_ns"]), int(found["schema_version"])
    return Manifest(*numbers, str(found["engine_version"]), rows, files, tuple(map(str, found["missing"])))
