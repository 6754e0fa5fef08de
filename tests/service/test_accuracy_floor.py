"""What a perfect predictor would show by chance, against its definition; and pages of what was measured so far."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

from benchmarks import accuracy_page
from benchmarks.accuracy import group_floor

SCORES = dict.fromkeys(["crps_log_se", "crps_rel", "pin99_rel", "cov50", "cov90", "cov95", "cov99", "missing", "crossing"], 0.5)
SCORES |= {"mean_group_err90": None, "n": 1200, "clusters": 40}
PEERS = {"some_set": {"worse": {**SCORES, "crps_log": 4.0}, "best": {**SCORES, "crps_log": 2.0}}}


def groups(*sizes: int) -> pd.DataFrame:
    """Rows in groups of these sizes."""
    return pd.DataFrame({"host": np.repeat([f"h{i}" for i in range(len(sizes))], sizes), "family": "f", "phase": "p"})


@pytest.mark.parametrize("n", [200, 333, 1000])
def test_the_floor_of_a_group_is_its_mean_error_by_chance(n: int) -> None:
    hits = np.arange(n + 1)
    assert_allclose((np.abs(hits / n - 0.9) * binom.pmf(hits, n, 0.9)).sum(), group_floor(groups(n), 0.9))


def test_floors_are_averaged_over_groups_that_are_large_enough() -> None:
    alone = [group_floor(groups(n), 0.9) for n in (200, 800)]
    assert_allclose(np.mean(alone), group_floor(groups(200, 199, 800), 0.9))
    assert group_floor(groups(199, 3), 0.9) is None


def test_a_page_says_how_many_times_the_best_peer_and_leaves_open_what_was_not_measured() -> None:
    summary = {
        "rows": 3000,
        "left_out": 2,
        "unanswered": 1,
        "fits": 40,
        "wall_s": 12.4,
        "weights": {"hazards": 0.75, "forest": 0.25},
    }
    before = {
        "commit": "abc",
        "floor90": None,
        "summary": summary,
        "scores": {**SCORES, "crps_log": 1.5, "mean_group_err90": 0.04},
    }
    measured = {**before, "sure": {"cov90": 0.02, "floor90": 0.03, "group90": 0.01}}
    kept = {"some_set": {"models": {"own": measured}}, "other": {"models": {}}, "older": {"models": {"own": before}}}
    page = accuracy_page.page(kept, PEERS, ["own", "alone"])
    # 0.75 with relative errors of 0.5 / 1.5 and 0.5 / 2: half its interval is 1.96 * 0.75 * 5 / 12.
    assert (
        "| some_set | best | 2.0000 (0.5000) | 0.750 (0.14-1.36) | - | 0.500, 0.500 +- 0.020 | -, 0.040 +- 0.010, -, 0.030 |"
        in page
    )
    assert "older" not in page
    assert "| some_set | 0.750 | 0.250 |" in page
    assert "| some_set | 3,000 | 2 | 1 | 40 | 12 | - |" in page
    assert "1,200 rows scored in 40 clusters; measured at abc." in page
    table = page[page.index("## some_set") :]
    assert table.index("| **own** |") < table.index("| best |") < table.index("| worse |")
