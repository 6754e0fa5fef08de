"""The log of decisions: what could have been chosen, how likely each was, what was, and the answers used.

Without the alternatives and their propensities nobody can say later what another policy would have met.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import Field, ValidationInfo, field_validator

from telemetry.rows import Id, Ns, Row

SUM_OFF = 1e-6
"""How far the propensities of a decision may be from summing to 1: they are sent as decimals."""


class Decision(Row):
    """One choice among alternatives, logged before its outcome exists."""

    table: ClassVar[str] = "decisions"
    title: ClassVar[str] = "One choice of a scheduler: the alternatives it had, how likely each was, and which it took."
    key: ClassVar[tuple[str, ...]] = ("decision_id",)

    decision_id: Annotated[Id, Field(description="Identity made by the sender; attempts name it as the decision they follow.")]
    decided_ns: Annotated[Ns, Field(description="UTC wall time of the choice at the sender, ns.")]
    run_id: Annotated[Id | None, Field(description="Run whose decisions move together; intervals are made by run.")] = None
    policy: Annotated[Id, Field(description="Policy that chose, with its version.")]
    protected: Annotated[bool, Field(description="True for work with a protected deadline: never explored with.")] = False
    choice: Annotated[Id, Field(description="Name of the alternative taken.")]
    propensity: Annotated[float, Field(gt=0, le=1, description="Probability with which the policy takes that one here, 0 to 1.")]
    alternatives: Annotated[
        str,
        Field(
            max_length=200_000,
            description="All feasible alternatives as JSON: name, propensity, resource_safe (null is unmarked), permitted, "
            "supported, context, prediction_id, expected (outcome expected of it).",
        ),
    ]

    @field_validator("alternatives")
    @classmethod
    def _make_sense(cls, text: str, info: ValidationInfo) -> str:
        """Names once each, propensities that sum to 1, the choice among them at the propensity it says."""
        likely = _propensities(text)
        total = math.fsum(likely.values())
        if abs(total - 1.0) > SUM_OFF:
            raise ValueError(f"propensities sum to {total:.6g}; they are probabilities of one choice and sum to 1")
        choice, told = info.data.get("choice"), info.data.get("propensity")
        if choice is not None and choice not in likely:
            raise ValueError(f"the choice {choice!r} is not among the alternatives {', '.join(likely)}")
        if choice is not None and told is not None and abs(likely[choice] - told) > SUM_OFF:
            raise ValueError(f"propensity is {told}, but the alternative {choice!r} says {likely[choice]}")
        return text


class Credit(Row):
    """An account from which timing refresh, acceptance learning or exploration is paid."""

    table: ClassVar[str] = "credits"
    title: ClassVar[str] = "What refresh, acceptance learning and exploration may still spend; each posting is a version."
    key: ClassVar[tuple[str, ...]] = ("account",)
    versioned: ClassVar[bool] = True

    account: Annotated[Id, Field(description="Whose it is and what for, such as node-1/timing_refresh or planner/risk.")]
    unit: Annotated[str, Field(description="ns of run time, or missed promises (a number of expected misses).")]
    share: Annotated[float, Field(gt=0, lt=1, description="Share of what is ordinary that it may spend, 0 to 1.")]
    cap: Annotated[float, Field(gt=0, description="Most credit it holds, in `unit`.")]
    balance: Annotated[float, Field(description="Credit, or debt where negative, in `unit`.")]
    posted_ns: Annotated[Ns, Field(description="UTC wall time of the posting, ns.")]
    reason: Annotated[str, Field(description="What the posting was for.")]


def listed(text: str) -> list[dict[str, Any]]:
    """Alternatives of a decision's row, in their order."""
    found: list[dict[str, Any]] = orjson.loads(text)
    return found


def _propensities(text: str) -> Mapping[str, float]:
    """Propensity by name; ValueError for what is no list of named alternatives, each once, at a probability."""
    given = orjson.loads(text)
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) and one.get("name") for one in given):
        raise ValueError("give a list of one alternative or more, each with its name")
    found: dict[str, float] = {}
    for one in given:
        name, p = str(one["name"]), one.get("propensity")
        if name in found:
            raise ValueError(f"alternative {name!r} comes twice")
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0.0 <= p <= 1.0:
            raise ValueError(f"propensity of {name!r} is {p!r}; give the probability with which it is chosen, 0 to 1")
        found[name] = float(p)
    return found
