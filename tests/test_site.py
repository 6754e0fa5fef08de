"""The site's examples run, its pages name what there is, and notebooks are kept without results."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = {"start", "tables", "contributing", "changelog", "example", "commands", "calls"}
"""Pages that `docs/hooks.py` writes when the site is built."""


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("name", ["statistics.md", "system.md"])
def test_examples_of_a_page_give_what_it_shows(name: str) -> None:
    told = doctest.testfile(str(ROOT / "docs" / name), module_relative=False)
    assert 0 < told.attempted
    assert 0 == told.failed


def test_every_page_and_notebook_is_in_the_menu() -> None:
    named = set(re.findall(r"(\S+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in PAGES}
    assert named == pages | WRITTEN | {f"notebooks/{path.stem}" for path in NOTEBOOKS}


def test_modules_of_the_reference_exist() -> None:
    named = [name for path in PAGES for name in re.findall(r"^::: (\S+)$", path.read_text(), re.MULTILINE)]
    assert named
    assert [] == [name for name in named if not (ROOT / name.replace(".", "/")).with_suffix(".py").exists()]


def test_there_are_five_notebooks() -> None:
    assert ["01", "02", "03", "04", "05"] == [path.name[:2] for path in NOTEBOOKS]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_results_and_explains_more_than_it_does(notebook: Path) -> None:
    code, words = cells(notebook, "code"), cells(notebook, "markdown")
    assert [] == [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None]
    assert "# " == words[0]["source"][0][:2]
    assert len(words) * 3 >= len(code)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_ends_every_server_that_it_starts(notebook: Path) -> None:
    text = "".join(line for cell in cells(notebook, "code") for line in cell["source"])
    assert text.count("service.demo.serving") == text.count("server.terminate()")
