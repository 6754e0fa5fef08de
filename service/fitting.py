"""Fits in a process of their own, which is nicer than any that answers: what is known goes there, what was fitted comes back.

Both ways it is arrays and JSON, so a fit made there is to the bit the one that would have been made here. The process ends with
its fit, and can be killed at any moment: nothing but its answer leaves it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibrate import founding
from calibrate.conformal import saved
from calibrate.conformal.wrap import Calibrated
from predictors import hazards, modelfile
from predictors.distribution import Array
from predictors.experts.forest import Forest, grow
from predictors.frames import frame_of
from predictors.hazards import HierarchicalHazards
from predictors.model import Model
from predictors.resources import NONE, Rates

SCHEMA = 1
FOREST_GROWTH = 0.3
"""Growth of what is known, as a share of it, after which a fit grows a forest as well."""
NICENESS = 10


@dataclass(frozen=True)
class Known:
    """What a refit is made from: standing observations and hosts' rates as of `commit`, and the lessons of the model that serves.

    A forest is grown where outcomes have grown enough since `grown_at` (count).
    """

    commit: int
    observations: pa.Table
    rates: Rates
    grown_at: int
    features: Array
    residual: Array


@dataclass(frozen=True)
class History:
    """What a model is founded on: standing observations as of `commit`, and rates of hosts with the commits they are from."""

    commit: int
    observations: pa.Table
    rates: tuple[tuple[int, Rates], ...]


@dataclass(frozen=True)
class Refitted:
    """The model of record, and a forest where it was time for one."""

    record: HierarchicalHazards
    forest: Forest | None


def refitted(known: Known) -> Refitted:
    """Fit here."""
    record = hazards.fit(frame_of(known.observations), known.commit, hazards.FitSettings(), known.rates)
    due = known_outcomes(record) >= known.grown_at * (1.0 + FOREST_GROWTH)
    return Refitted(record, grow(known.features, known.residual) if due else None)


def founded(history: History) -> Calibrated:
    """Found a model here; one without phases where nothing has completed."""

    def rates_at(commit: int) -> Rates:
        known = [one for one in history.rates if one[0] <= commit]
        return max(known, key=lambda one: one[0])[1] if known else NONE

    return founding.found(frame_of(history.observations), history.commit, hazards.FitSettings(), rates_at)


def known_outcomes(model: Model) -> int:
    """Completed outcomes known to a model, of all phases."""
    return sum(model.outcomes(phase) for phase in model.phases)


class Apart:
    """Fits in a process of their own, one at a time; `end` kills the one under way, and lets no other begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def refitted(self, known: Known) -> Refitted:
        """Fit there; ChildProcessError where the process died or was killed."""
        return _unpacked_fit(self._answer("refit", _packed_known(known)))

    def founded(self, history: History) -> Calibrated | None:
        """Found a model there, None where nothing has completed; ChildProcessError likewise."""
        answer = self._answer("found", _packed_history(history))
        if not answer:
            return None
        whole = saved.unpacked(answer)
        assert isinstance(whole, Calibrated)
        return whole

    def _answer(self, kind: str, asked: bytes) -> bytes:
        with self._lock:
            if self._ended:
                raise ChildProcessError("no fit begins any more")
            command = [sys.executable, "-m", "service.fitting", kind]
            self._process = subprocess.Popen(  # noqa: S603  our own command
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
            )
        with self._process as process:
            answer, _ = process.communicate(asked)
        if process.returncode != 0:
            raise ChildProcessError(f"the process that fitted ended with {process.returncode}")
        return answer

    def end(self) -> None:
        """Kill the fit under way."""
        with self._lock:
            self._ended = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()


def _packed_known(known: Known) -> bytes:
    arrays = {"observations": _bytes_of(known.observations), "features": known.features, "residual": known.residual}
    header = {"schema": SCHEMA, "commit": known.commit, "grown_at": known.grown_at, "rates": _plain(known.rates)}
    return modelfile.archived(header, arrays)


def _unpacked_known(content: bytes) -> Known:
    told, arrays = modelfile.opened(content, SCHEMA)
    table = _table_of(arrays["observations"])
    return Known(told["commit"], table, told["rates"], told["grown_at"], arrays["features"], arrays["residual"])


def _packed_history(history: History) -> bytes:
    rates = [[since, _plain(rates)] for since, rates in history.rates]
    header = {"schema": SCHEMA, "commit": history.commit, "rates": rates}
    return modelfile.archived(header, {"observations": _bytes_of(history.observations)})


def _unpacked_history(content: bytes) -> History:
    told, arrays = modelfile.opened(content, SCHEMA)
    return History(told["commit"], _table_of(arrays["observations"]), tuple((since, rates) for since, rates in told["rates"]))


def _plain(rates: Rates) -> dict[str, dict[str, float]]:
    return {host: dict(of_host) for host, of_host in rates.items()}


def _bytes_of(table: pa.Table) -> NDArray[np.uint8]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def _table_of(content: NDArray[np.uint8]) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(content.tobytes())).read_all()


def _packed_fit(made: Refitted) -> bytes:
    arrays: modelfile.Arrays = {}
    header = {"schema": SCHEMA, "forest": made.forest is not None, "record": modelfile.pack(made.record, arrays)}
    if made.forest is not None:
        arrays.update({f"forest.{one.name}": getattr(made.forest, one.name) for one in fields(Forest)})
    return modelfile.archived(header, arrays)


def _unpacked_fit(content: bytes) -> Refitted:
    header, arrays = modelfile.opened(content, SCHEMA)
    forest = Forest(*(arrays[f"forest.{one.name}"] for one in fields(Forest))) if header["forest"] else None
    return Refitted(modelfile.unpack(header["record"], arrays), forest)


def main(kind: str) -> None:
    """One fit: what is known on the standard input, what was fitted on the standard output."""
    os.nice(NICENESS)
    asked = sys.stdin.buffer.read()
    if kind == "found":
        whole = founded(_unpacked_history(asked))
        answer = saved.packed(whole) if whole.phases else b""
    else:
        answer = _packed_fit(refitted(_unpacked_known(asked)))
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main(sys.argv[1])
