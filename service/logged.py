"""Committing a batch of records of which each gets a result of its own: a bad one never spoils the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pydantic import ValidationError

from service.schemas import ItemOut
from service.shadow_schemas import LoggedOut
from telemetry.errors import BadField
from telemetry.rows import Row
from telemetry.store.batch import Batch
from telemetry.store.file import Store


async def logged(store: Store, given: Sequence[tuple[str, Callable[[], Row]]]) -> LoggedOut:
    """Make and commit the row of each record, given with its id; those that make no sense are refused with the reason."""
    rows: list[Row] = []
    items: list[ItemOut | None] = []
    for name, make in given:
        try:
            rows.append(make())
            items.append(None)
        except (BadField, ValidationError) as error:
            items.append(ItemOut(id=name, result="refused", problem=_why(error)))
    receipt = await asyncio.wrap_future(store.submit(Batch(tuple(rows))))
    results = iter(receipt.results)
    return LoggedOut(
        commit=receipt.commit,
        items=[item or ItemOut(**next(results)._asdict()) for item in items],
    )


def _why(error: BadField | ValidationError) -> str:
    """What is wrong with a record, in a line."""
    if isinstance(error, BadField):
        return str(error)
    first = error.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg'].removeprefix('Value error, ')}"
