"""A plan as a small graph of stages: what follows what, and what is known of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from telemetry.errors import BadField

MOST_STAGES = 32


class StageKind(StrEnum):
    """What a stage is: a planned wait has a known length, the others a distribution."""

    WAIT = "wait"
    TRANSFER = "transfer"
    SETUP = "setup"
    SERVICE = "service"
    OUTPUT = "output"


class Stage(NamedTuple):
    """One stage of a plan, checked when it is asked about.

    Exactly one of `planned_s` (a wait of known length, s) and `timing` (row of the request's Timings) is given. It starts when
    all stages in `after` have ended. `host`, `attempt` and `name` key its draws; setup and service of one attempt are linked by
    `rho`, stated on the service; `share` is the host state's part in the variance of its log residual, or
    that of its `channel` if it names one: stages of one channel share its state in place of their hosts'.
    """

    name: str
    kind: StageKind
    after: tuple[str, ...] = ()
    planned_s: float | None = None
    timing: int | None = None
    host: str = ""
    attempt: str = ""
    share: float = 0.0
    rho: float = 0.0
    channel: str = ""

    @property
    def state(self) -> str:
        """What keys the state it has part in: that of its channel, else that of its host."""
        return f"channel {self.channel}" if self.channel else self.host


class Plan(NamedTuple):
    """Stages in an order in which every stage follows its predecessors; complete when all have ended."""

    stages: tuple[Stage, ...]
    request: str = ""


@dataclass(frozen=True)
class Shape:
    """What plans of one structure have in common, by position; they are answered together.

    `after`: predecessors; `drawn`: positions with a distribution; `partner`: the setup of a service's attempt, else -1; `group`:
    number of its host among the plan's own, -1 for planned waits; `crowded`: whether stages of another attempt share that host;
    `sinks`: positions nothing follows.
    """

    after: tuple[tuple[int, ...], ...]
    drawn: tuple[int, ...]
    partner: tuple[int, ...]
    group: tuple[int, ...]
    crowded: tuple[bool, ...]
    sinks: tuple[int, ...]

    @property
    def n_groups(self) -> int:
        """Hosts (count) of one plan."""
        return max(self.group, default=-1) + 1

    @property
    def integrated(self) -> tuple[int, ...]:
        """Last stages that need not be drawn: those with a distribution whose draw no other stage leans on."""
        return tuple(i for i in self.sinks if i in self.drawn and i not in self.partner)

    @property
    def sampled(self) -> tuple[int, ...]:
        """Stages that must be drawn; the first of them is stratified."""
        return tuple(i for i in self.drawn if i not in self.integrated)


def by_shape(plans: Sequence[Plan]) -> list[tuple[Shape, list[int]]]:
    """The structures that occur, each with the places of its plans; a structure is checked once."""
    found: dict[tuple[object, ...], tuple[Shape, list[int]]] = {}
    for place, plan in enumerate(plans):
        hosts: dict[str, int] = {}
        attempts: dict[str, int] = {}
        key = tuple(
            (
                stage.name,
                stage.kind,
                stage.after,
                stage.planned_s is None,
                stage.timing is None,
                hosts.setdefault(stage.state, len(hosts)),
                attempts.setdefault(stage.attempt, len(attempts)) if stage.attempt else -1,
            )
            for stage in plan.stages
        )
        if key not in found:
            found[key] = (shape_of(plan), [])
        found[key][1].append(place)
    return list(found.values())


def shape_of(plan: Plan) -> Shape:
    """The structure of a plan; refuses one that makes no sense, naming the stage and field."""
    if not 1 <= len(plan.stages) <= MOST_STAGES:
        raise BadField("stages", len(plan.stages), f"give 1 to {MOST_STAGES} stages")
    place: dict[str, int] = {}
    for position, stage in enumerate(plan.stages):
        if not stage.name:
            raise BadField("name", stage.name, "give each stage a name")
        if (stage.planned_s is None) == (stage.timing is None):
            raise BadField(f"{stage.name}.timing", stage.timing, "give either planned_s or a distribution")
        missing = [name for name in stage.after if name not in place]
        if missing:
            raise BadField(f"{stage.name}.after", missing[0], "name stages that stand earlier in the plan")
        if stage.name in place:
            raise BadField(f"stages[{position}].name", stage.name, "give each stage a name of its own")
        place[stage.name] = position
    after = tuple(tuple(place[name] for name in stage.after) for stage in plan.stages)
    followed = {i for before in after for i in before}
    return Shape(
        after=after,
        drawn=tuple(i for i, stage in enumerate(plan.stages) if stage.timing is not None),
        partner=_partners(plan.stages),
        group=_groups(plan.stages),
        crowded=_crowded(plan.stages),
        sinks=tuple(i for i in range(len(plan.stages)) if i not in followed),
    )


def _partners(stages: Sequence[Stage]) -> tuple[int, ...]:
    """For each service the position of the setup of its attempt before it, else -1."""
    setups: dict[str, int] = {}
    partner = []
    for position, stage in enumerate(stages):
        linked = stage.attempt and stage.timing is not None
        partner.append(setups.get(stage.attempt, -1) if linked and stage.kind is StageKind.SERVICE else -1)
        if linked and stage.kind is StageKind.SETUP:
            setups[stage.attempt] = position
    return tuple(partner)


def _groups(stages: Sequence[Stage]) -> tuple[int, ...]:
    """Number of each stage's host in order of appearance; -1 for planned waits."""
    hosts: dict[str, int] = {}
    return tuple(-1 if stage.timing is None else hosts.setdefault(stage.state, len(hosts)) for stage in stages)


def _crowded(stages: Sequence[Stage]) -> tuple[bool, ...]:
    """Whether stages of two attempts are on a stage's host: within one attempt `rho` already holds all dependence."""
    attempts: dict[str, set[str]] = {}
    for stage in stages:
        if stage.timing is not None:
            attempts.setdefault(stage.state, set()).add(stage.attempt or stage.name)
    return tuple(stage.timing is not None and len(attempts[stage.state]) > 1 for stage in stages)
