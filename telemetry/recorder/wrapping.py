"""Wrapping functions and coroutine functions, so that each call of them runs inside a context."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar, cast

from telemetry.errors import BadField

P = ParamSpec("P")
R = TypeVar("R")


def around(function: Callable[P, R], context: Callable[P, AbstractContextManager[object]]) -> Callable[P, R]:
    """`function`, each call of it inside a context that is made of the call's arguments.

    A coroutine function is inside it until what it awaits is done. Raises BadField for a generator function: its call
    does nothing yet, and a loop over it may be left open, so no context says how long it works.
    """
    import inspect  # slow to import, and only those who decorate pay

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadField("function", function.__qualname__, "a generator works while it is looped over: mark the loop instead")
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            with context(*args, **kwargs):
                return await function(*args, **kwargs)

        return cast("Callable[P, R]", awaited)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with context(*args, **kwargs):
            return function(*args, **kwargs)

    return called
