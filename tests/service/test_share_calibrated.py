"""Readiness tells how many of the newest answers were calibrated, not how many ever were."""

from __future__ import annotations

from service.http.metrics import RECENT, Metrics
from tests.service.living import Living


def test_the_share_is_that_of_the_newest_answers(living: Living) -> None:
    metrics = Metrics(living.store, living.lineup)
    assert 0.0 == metrics.share_calibrated
    metrics.answered("predict", ["thin"] * 3 * RECENT)
    metrics.answered("predict", ["calibrated"] * RECENT)
    assert 1.0 == metrics.share_calibrated
    metrics.answered("residual", ["shadow"] * (RECENT // 4))
    assert 0.75 == metrics.share_calibrated
