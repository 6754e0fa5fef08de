"""Where the outcomes nearest to a context come from, and how new they are: what an answer tells of its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from predictors.contexts import GROUPS, Context, groups_of
from predictors.experts.histories import Histories
from predictors.layered import Layered
from predictors.model import Change
from telemetry.words import Ended

PROVENANCES = {
    "host+family": "own_host",
    "family+model": "sibling",
    "device+family": "device_class",
    "family": "family",
}
"""Nearest first: the family on this host; the same model on another; the family on such a device; the family anywhere."""
OTHER = "other_work"
PROFILE = "profile_prior"
"""The host has ended nothing of the phase: its measured rates place it, and other hosts tell the rest."""


def provenance(known: Histories, context: Context, phase: str, *, rests_on_rates: bool = False) -> str:
    """The word for the nearest group of a context of which any outcome is known; OTHER where only other work of the phase is.

    PROFILE where the host's place rests on its rates and it has ended nothing since.
    """
    groups = dict(zip(GROUPS, groups_of(context, phase), strict=True))
    if rests_on_rates and groups["host"] not in known.means:
        return PROFILE
    return next((word for name, word in PROVENANCES.items() if groups[name] in known.means), OTHER)


def newer(known: Layered[str, int], changes: Sequence[Change]) -> Layered[str, int]:
    """UTC ns at which the newest completed outcome of each node of `Context.path` ended, with those among the changes."""
    newest: dict[str, int] = {}
    for change in changes:
        if change.sign > 0 and change.ended == Ended.COMPLETED and change.started_ns is not None:
            ended_ns = change.started_ns + round(1e9 * change.duration_s)
            for node in change.context.path(change.phase):
                newest[node] = max(ended_ns, newest.get(node) or known.get(node) or 0)
    return known.having(newest) if newest else known


def newest_ns(known: Layered[str, int], context: Context, phase: str, depth: int) -> int | None:
    """When the newest outcome of the node at `depth` of a context's path ended, UTC ns; None where that is not known."""
    return known.get(context.path(phase)[depth])
