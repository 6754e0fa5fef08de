import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import BadField, DamagedStore, NewerStore, StoreHeld
from telemetry.ledger import ModelFile
from telemetry.store.backup import backup, restore, verify
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.highwater import Mark, MarkFile
from telemetry.store.migrations import STEPS
from telemetry.tables import Event


def event(event_id: str) -> Event:
    return Event(event_id=event_id, attempt_id="a", kind="heartbeat", wall_ns=1, source="s")


def model(name: str) -> ModelFile:
    described = {"family": "f", "settings": "{}", "n_observations": 1, "sha256": "0", "fitted_ns": 1, "fit_commit": 1}
    return ModelFile(model_id=name, file_name=f"{name}.npz", **described)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a store in use, with one model file there and one gone."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "models").mkdir()
    (folder / "models" / "m1.npz").write_bytes(b"arrays")
    with Store.open(folder / "s.duckdb") as store:
        store.write(Batch((event("e1"), event("e2"), model("m1"), model("gone"))))
        manifest = backup(store.snapshot, folder / "models", folder / "backup", made_ns=7)
        store.write(Batch((event("e3"),)))
    assert (1, 7, 2, ("gone.npz",)) == (manifest.commit, manifest.made_ns, manifest.rows["events"], manifest.missing)
    return folder / "backup"


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """That backup, to be damaged."""
    return shutil.copytree(made, tmp_path / "backup")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """Where to restore to; nothing may be there in the end but what a test puts there."""
    path = tmp_path / "new" / "s.duckdb"
    yield path
    assert not path.with_name("s.duckdb.restoring").exists()


def rewrite(folder: Path, **changed: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def test_a_backup_is_whole_and_says_what_it_holds(made: Path) -> None:
    assert ["manifest.json", "models", "store.duckdb"] == sorted(p.name for p in made.iterdir())
    manifest = verify(made)
    assert ["store.duckdb", "models/m1.npz"] == [kept.file for kept in manifest.files]
    assert STEPS[-1].to == manifest.schema_version
    assert not made.with_name("backup.partial").exists()


def test_a_restored_store_is_what_was_backed_up_and_goes_on(made: Path, target: Path) -> None:
    assert verify(made) == restore(made, target, target.with_name("models"))
    assert b"arrays" == target.with_name("models").joinpath("m1.npz").read_bytes()
    with Store.open(target) as store:
        assert (1, 0) == (store.last_commit, store.opened.lost_commits)
        with store.reader() as reader:
            assert [("e1",), ("e2",)] == reader.rows("SELECT event_id FROM events ORDER BY 1")
        assert 2 == store.write(Batch((event("e4"),))).commit


def test_numbers_given_out_after_the_backup_are_not_given_out_again(made: Path, target: Path) -> None:
    target.parent.mkdir()
    marks = MarkFile(target)
    marks.write(Mark(9, 12))
    marks.close()
    restore(made, target, target.with_name("models"))
    with Store.open(target) as store:
        assert 8 == store.opened.lost_commits
        assert store.write(Batch((event("e4"),))).commit > 10


@pytest.mark.parametrize("name", ["store.duckdb", "models/m1.npz"])
def test_one_flipped_bit_is_found_and_nothing_restored(copy: Path, target: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(DamagedStore, match=f"another SHA-256 of .*{re.escape(name)}"):
        restore(copy, target, target.with_name("models"))
    assert not target.parent.exists()


def test_a_file_cut_short_or_gone_is_found(copy: Path, target: Path) -> None:
    (copy / "models" / "m1.npz").write_bytes(b"arra")
    with pytest.raises(DamagedStore, match="4 bytes instead of 6"):
        restore(copy, target, target.with_name("models"))
    (copy / "models" / "m1.npz").unlink()
    with pytest.raises(DamagedStore, match=r"no models/m1\.npz"):
        restore(copy, target, target.with_name("models"))


def test_an_interrupted_backup_is_none(copy: Path, target: Path) -> None:
    (copy / "manifest.json").unlink()
    with pytest.raises(BadField, match="interrupted"):
        restore(copy, target, target.with_name("models"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}', "[" * 100_000, "\xff"])
def test_a_manifest_that_is_none_is_refused(copy: Path, target: Path, text: str) -> None:
    (copy / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(DamagedStore, match="take another backup"):
        restore(copy, target, target.with_name("models"))


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "models/../../outside", "models/..", "other/file"])
def test_names_that_lead_out_of_the_folder_are_refused(copy: Path, target: Path, name: str) -> None:
    files = json.loads((copy / "manifest.json").read_text())["files"]
    rewrite(copy, files=[files[0], {**files[1], "file": name}])
    with pytest.raises(DamagedStore, match="backup"):
        restore(copy, target, target.with_name("models"))
    assert not target.parent.exists()


def test_a_backup_of_a_newer_program_is_refused(copy: Path, target: Path) -> None:  # D12
    rewrite(copy, schema_version=999)
    with pytest.raises(NewerStore, match=rf"999.*up to {STEPS[-1].to}"):
        restore(copy, target, target.with_name("models"))


def test_rows_other_than_the_manifest_says_are_found(copy: Path, target: Path) -> None:
    rewrite(copy, rows={"events": 3})
    with pytest.raises(DamagedStore, match="after copying"):
        restore(copy, target, target.with_name("models"))
    assert not target.exists()


@pytest.mark.parametrize("there", ["s.duckdb", "s.duckdb.wal"])
def test_what_is_there_is_never_written_over(made: Path, target: Path, there: str) -> None:
    target.parent.mkdir()
    target.with_name(there).write_bytes(b"mine")
    with pytest.raises(BadField, match="move it away"):
        restore(made, target, target.with_name("models"))
    assert b"mine" == target.with_name(there).read_bytes()


def test_a_store_in_use_is_not_restored_over(made: Path, target: Path) -> None:
    with Store.open(target), pytest.raises(StoreHeld):
        restore(made, target, target.with_name("models"))


def test_a_backup_never_goes_over_another(made: Path) -> None:
    with pytest.raises(BadField, match="name a new folder"):
        backup(lambda _: 1 // 0, made, made, made_ns=1)


def test_a_copy_that_cannot_be_read_is_no_backup(tmp_path: Path) -> None:
    def half(out: Path) -> int:
        out.write_bytes(b"not a database" * 1000)
        return 1

    with pytest.raises(DamagedStore):
        backup(half, tmp_path / "models", tmp_path / "backup", made_ns=1)
    assert [] == list(tmp_path.iterdir())


def test_a_copy_as_of_another_commit_than_told_is_no_backup(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store, pytest.raises(DamagedStore, match="as of commit 0 instead of 1"):
        backup(lambda out: store.snapshot(out) + 1, tmp_path / "models", tmp_path / "backup", made_ns=1)
