"""Run the notebooks from top to bottom: `python docs/run_notebooks.py [NAME...]`.

What they showed is kept in `.notebooks`, for the site; the notebooks themselves are kept without results, which would grow old.
Some read the measured data in `../shared`: without it they are left out and named, or with PHASECAST_REQUIRE_SHARED=1 the run
fails.
"""

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
SHOWN = ROOT / ".notebooks"
CELL_S = 240
"""Most that one cell may take, s."""


def run(path: Path) -> None:
    """Run one notebook and keep what it showed; raises CellExecutionError where a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=CELL_S, resources={"metadata": {"path": str(path.parent)}}).execute()
    SHOWN.mkdir(exist_ok=True)
    nbformat.write(notebook, SHOWN / path.name)


def main(names: list[str]) -> int:
    """Run those named, or all; returns the exit code."""
    there, must = (ROOT.parent / "shared").is_dir(), os.environ.get("PHASECAST_REQUIRE_SHARED") == "1"
    began_s = time.perf_counter()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if names and path.name not in names:
            continue
        if not there and "../shared/" in path.read_text(encoding="utf-8"):
            print(f"{path.name}: left out, the shared folder is not beside this clone")
            if must:
                return 1
            continue
        started_s = time.perf_counter()
        run(path)
        print(f"{path.name}: {time.perf_counter() - started_s:.0f} s", flush=True)
    print(f"together {time.perf_counter() - began_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
