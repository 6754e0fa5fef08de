"""`make accuracy`: the models on recorded timings of others, scored beside what people use instead, into docs/accuracy.md.

Answers come from the `backtest` command, figures from the scorer beside the data, peers' figures from its table. What was
measured of a set is kept under .accuracy/ with the commit it was measured at, and the page tells all that is kept.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import typer

from benchmarks import accuracy_page
from benchmarks.clustered import clustered
from benchmarks.unforeseen import unforeseen

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
KEPT, PAGE = ROOT / ".accuracy", ROOT / "docs" / "accuracy.md"
MODELS = ("calibrated", "aggregate", "hazards")
GROUPS = ["host", "family", "phase"]
LEAST_GROUP = 200
"""Rows of a group from which the scorer counts its error."""
REPLACED = ("lambda_coldstart", "azure_vm_noise")
"""Sets replayed once more with everything after an instant replaced."""


def main(sets: Annotated[list[str] | None, typer.Argument(help="Sets to measure; all if none is named.")] = None) -> None:
    """Measure model by model, and write the page after each set."""
    peers = orjson.loads((SHARED / "bench" / "peers.json").read_bytes())
    if unknown := set(sets or ()) - peers.keys():
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: use {', '.join(peers)}")
    KEPT.mkdir(exist_ok=True)
    for what in (*MODELS, "unforeseen"):
        for name in sets or peers:
            if what != "unforeseen":
                _keep(name, ("models", what), measured(name, what))
                typer.echo("\n".join(accuracy_page.of_set(name, _kept(name), peers[name])))
            elif name in REPLACED:
                path = SHARED / "datasets" / f"{name}.parquet"
                _keep(name, ("unforeseen",), unforeseen(path, KEPT / f"{name}.{MODELS[0]}.parquet", KEPT, replayed))
            kept = {each: found for each in peers if (found := _kept(each))}
            PAGE.write_text(accuracy_page.page(kept, peers, MODELS))


def measured(name: str, model: str) -> dict[str, Any]:
    """Figures of one model on one set."""
    path, out = SHARED / "datasets" / f"{name}.parquet", KEPT / f"{name}.{model}.parquet"
    commit, summary = _commit(), replayed(path, out, model)
    scorer = _scorer()
    truth = scorer.truth_table(str(path))
    answers = importlib.import_module("pandas").read_parquet(out)
    found = {"scores": scorer.score(truth, answers, GROUPS), "sure": clustered(truth, answers, GROUPS, LEAST_GROUP)}
    return {"commit": commit, "summary": summary, **found, "floor90": group_floor(truth, 0.9)}


def _kept(name: str) -> dict[str, Any]:
    """What was measured of a set so far."""
    file = KEPT / f"{name}.json"
    found: dict[str, Any] = orjson.loads(file.read_bytes()) if file.exists() else {}
    return found


def _keep(name: str, place: tuple[str, ...], value: dict[str, Any]) -> None:
    """Put what was measured in its place among the rest."""
    kept = _kept(name)
    inner = kept
    for key in place[:-1]:
        inner = inner.setdefault(key, {})
    inner[place[-1]] = value
    (KEPT / f"{name}.json").write_bytes(orjson.dumps(kept))


def replayed(path: Path, out: Path, model: str) -> dict[str, Any]:
    """Run the command; what it says of itself, with the seconds the whole of it took."""
    command = [sys.executable, "-m", "service.cli.main", "backtest", str(path), "--out", str(out), "--model", model, "--json"]
    started_s = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True)  # noqa: S603  our own command
    found: dict[str, Any] = orjson.loads(done.stdout)
    return {**found, "wall_s": time.perf_counter() - started_s}


def group_floor(truth: Any, level: float) -> float | None:
    """Mean error of coverage by group that a perfect predictor would show, by chance alone; None where no group is large enough.

    E|X - np| of a binomial X is 2 k (1 - p) P(X = k) with k = floor(np) + 1 (de Moivre).
    """
    from scipy.stats import binom

    n = truth.groupby(GROUPS).size().to_numpy()
    n = n[n >= LEAST_GROUP]
    k = np.floor(n * level + 1e-9) + 1.0
    return float(np.mean(2.0 * k * (1.0 - level) * binom.pmf(k, n, level) / n)) if len(n) else None


def _scorer() -> Any:
    """The scorer beside the data: a script that imports its neighbours by name."""
    folder = str(SHARED / "bench")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("score")


def _commit() -> str:
    """The commit that is measured, with a mark where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, text=True, check=True).stdout.strip()  # noqa: S603  fixed


if __name__ == "__main__":
    typer.run(main)
