"""Answers for when the API is away, so that a scheduler can go on: marked as such, and never made up here.

An answer the API gave before to the same question stands in, else what the caller supplies, else nothing, which says so. A
remaining time can't be read off an earlier answer, since the attempt has aged: it is only ever supplied by the caller.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import orjson

from service.schemas import DEFAULT_LEVELS, Answer, AnswersOut
from telemetry.errors import PhasecastError

AWAY = "api_away"
"""Reason in every answer that did not come from the API just now."""
Supplied = Callable[[Mapping[str, Any], str, Sequence[float], float | None], Sequence[float] | None]
"""(context, phase, levels, elapsed_s or None) to durations, or remaining times, in s, one a level; None where there are none."""


class Fallback:
    """What stands in for the API: its last answers (at most `most`), and what `supplied` tells. Safe from any thread.

    Once the API failed to answer it is left alone for `rest_s`, so that decisions don't each wait for it in vain.
    """

    def __init__(self, supplied: Supplied | None = None, most: int = 10_000, rest_s: float = 1.0) -> None:
        self._supplied, self._most, self._rest_s = supplied, most, rest_s
        self._failed: tuple[PhasecastError, float] | None = None
        self._kept: OrderedDict[bytes, Answer] = OrderedDict()
        self._lock = Lock()

    def failed(self, error: PhasecastError) -> PhasecastError:
        """Take down that the API failed to answer; gives the error back."""
        self._failed = (error, time.monotonic() + self._rest_s)
        return error

    def resting(self) -> PhasecastError | None:
        """The error of the last try while the API is left alone, else None."""
        failed = self._failed
        return failed[0] if failed is not None and time.monotonic() < failed[1] else None

    def note(self, contexts: Sequence[Mapping[str, Any]], phases: Sequence[str], told: AnswersOut) -> None:
        """Keep answers of the API that hold numbers."""
        asked = [(context, phase) for context in contexts for phase in phases]
        with self._lock:
            for (context, phase), answer in zip(asked, told.answers, strict=True):
                if answer.quantiles_s is not None:
                    key = _key(context, phase, answer.levels)
                    self._kept[key] = answer
                    self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def predict(
        self,
        contexts: Sequence[Mapping[str, Any]],
        phases: Sequence[str],
        levels: Sequence[float] | None,
        attempt_ids: Sequence[str] | None,
        error: PhasecastError,
    ) -> AnswersOut:
        """Answers in the place of the API's, which failed with `error`."""
        ids: Sequence[str | None] = attempt_ids or [None] * len(contexts)
        asked = list(levels or DEFAULT_LEVELS)
        return AnswersOut(
            answers=[
                self._answer(context, phase, asked, named, error)
                for context, named in zip(contexts, ids, strict=True)
                for phase in phases
            ]
        )

    def residual(self, running: Sequence[Mapping[str, Any]], levels: Sequence[float] | None, error: PhasecastError) -> AnswersOut:
        """Remaining times in the place of the API's, where the caller supplies them."""
        asked = list(levels or DEFAULT_LEVELS)
        answers = []
        for item in running:
            given = self._given(item.get("context") or {}, item["phase"], asked, item.get("elapsed_s") or 0.0)
            answers.append(_marked(item["phase"], asked, item.get("attempt_id"), item.get("elapsed_s"), given, error))
        return AnswersOut(answers=answers)

    def _answer(
        self, context: Mapping[str, Any], phase: str, levels: list[float], named: str | None, error: PhasecastError
    ) -> Answer:
        with self._lock:
            kept = self._kept.get(_key(context, phase, levels))
        if kept is None:
            return _marked(phase, levels, named, None, self._given(context, phase, levels, None), error)
        reasons = [AWAY, "remembered", *kept.reasons]
        return kept.model_copy(update={"prediction_id": None, "attempt_id": named, "status": "shadow", "reasons": reasons})

    def _given(
        self, context: Mapping[str, Any], phase: str, levels: Sequence[float], elapsed_s: float | None
    ) -> Sequence[float] | None:
        return self._supplied(context, phase, levels, elapsed_s) if self._supplied is not None else None


def _key(context: Mapping[str, Any], phase: str, levels: Sequence[float]) -> bytes:
    return orjson.dumps([context, phase, list(levels)], option=orjson.OPT_SORT_KEYS)


def _marked(
    phase: str,
    levels: list[float],
    attempt_id: str | None,
    elapsed_s: float | None,
    given: Sequence[float] | None,
    error: PhasecastError,
) -> Answer:
    """What the caller supplied, or nothing, in the form of an answer."""
    told: dict[str, Any] = dict.fromkeys(Answer.model_fields)
    told |= {"phase": phase, "attempt_id": attempt_id, "elapsed_s": elapsed_s, "form": "conditional", "status": "shadow"}
    told |= {"elapsed_source": None if elapsed_s is None else "given", "levels": levels, "claimed_to": 0.0, "beyond": []}
    told |= {"reasons": [AWAY, "supplied" if given is not None else "no_evidence"], "as_of_commit": 0, "made_ns": time.time_ns()}
    told |= {"quantiles_s": None if given is None else list(given), "needs": None if given is not None else str(error)}
    return Answer.model_validate(told)
