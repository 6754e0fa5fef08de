"""The rules of the house that no linter knows: sizes, names, and that each import contract catches its breach."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("telemetry", "predictors", "calibrate", "service")
SOURCES = sorted(path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py"))
CONTRACTS = [
    contract["name"] for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
]
BREACHES = {
    "data flows one way": {"telemetry/words.py": "import predictors.contexts"},
    "no cycles among siblings": {"predictors/contexts.py": "import predictors.hazards"},
    "only the store speaks to DuckDB": {"service/engine.py": "import duckdb"},
    "the recorder is standard library only": {"telemetry/recorder/ids.py": "import numpy"},
    "host probes know nothing of models, HTTP or the store": {"calibrate/hosts/run.py": "import predictors.contexts"},
    "learning and answering know nothing of HTTP": {"service/engine.py": "import fastapi"},
}


def test_no_file_grows_past_four_hundred_lines() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in SOURCES}
    assert {} == {path: length for path, length in lengths.items() if length > 400}


def test_no_file_is_named_after_nothing() -> None:
    assert set() == {"utils.py", "common.py", "helpers.py"} & {path.name for path in SOURCES}


def test_package_files_are_a_docstring_only() -> None:
    for path in SOURCES:
        if path.name == "__init__.py":
            body = ast.parse(path.read_text()).body
            assert [ast.Expr] == [type(statement) for statement in body], path
            assert isinstance(body[0].value, ast.Constant), path


def test_every_folder_of_code_is_a_package_and_typed() -> None:
    for path in SOURCES:
        if path.parts[len(ROOT.parts)] in PACKAGES:
            assert (path.parent / "__init__.py").is_file(), path
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file()


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in SOURCES if path.name.startswith("test_")]
    assert sorted(set(names)) == sorted(names)


@pytest.fixture
def judged(tmp_path: Path) -> Callable[[dict[str, str]], str]:
    """Judge a copy of the packages, with a line added to some files, by the contracts of pyproject.toml."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]

    def judge(added: dict[str, str]) -> str:
        for name, line in added.items():
            with (tmp_path / name).open("a") as file:
                file.write(f"\n{line}\n")
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    return judge


def test_the_house_as_it_stands_keeps_every_contract(judged: Callable[[dict[str, str]], str]) -> None:
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in judged({})


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_breach_is_caught_by_its_own_contract(contract: str, judged: Callable[[dict[str, str]], str]) -> None:
    assert f"{contract} BROKEN" in judged(BREACHES[contract])
