"""Settings of a fit, kept with every model file."""

from __future__ import annotations

from dataclasses import dataclass

from predictors.contexts import LEVELS
from telemetry.errors import BadField


@dataclass(frozen=True)
class FitSettings:
    """Settings of a fit.

    `half_life` is the memory in outcomes per name in contexts.LEVELS, None for unlimited. `novel_sd` is the standard deviation
    in log time expected between values of a field that never varied. `pooling` counts the residuals a parent's scale stands for.
    """

    half_life: tuple[float | None, ...] = (None, None, None, None, None, 400.0)
    novel_sd: float = 0.5
    pooling: float = 5.0

    def __post_init__(self) -> None:
        if len(self.half_life) != len(LEVELS) or any(h is not None and h <= 0.0 for h in self.half_life):
            raise BadField("half_life", self.half_life, f"give one positive number of outcomes, or None, for each of {LEVELS}")
