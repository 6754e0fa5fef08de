"""Laws kept for plans: what is kept changes no bit, whoever asked before, and stays bounded."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from predictors.contexts import Context
from predictors.joint.quantile_table import timings_of
from predictors.synthetic import runs
from service import plan_tables
from service.engine import Serving
from service.plan_tables import Kind, Tables
from telemetry.ledger import PlanAnswer
from tests.service.taught import context_of, serving_of

MADE = runs(200, seed=4)
KINDS = list(dict.fromkeys(Kind(context_of(run), phase) for run in MADE[:40] for phase in ("setup", "service")))


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    return serving_of(tmp_path_factory.mktemp("tables") / "store.duckdb", MADE)


def law(tables: Tables, serving: Serving, kind: Kind) -> tuple[bytes, float]:
    """Bits of one kind's row, and its probability of completing."""
    found, [row] = tables.holding(serving.model, [kind])
    return found.table.nodes[row].tobytes() + found.table.knee[row].tobytes(), float(found.p_complete[row])


def test_a_law_is_the_same_to_the_bit_however_it_came_to_be_kept(taught: Serving) -> None:
    whole, alone, turned = Tables(), [law(Tables(), taught, kind) for kind in KINDS], Tables()
    whole.holding(taught.model, KINDS)
    assert alone == [law(whole, taught, kind) for kind in KINDS]
    for some in (KINDS[5:9], KINDS[::-1]):
        turned.holding(taught.model, some)
    assert alone == [law(turned, taught, kind) for kind in KINDS]
    direct = timings_of(taught.model.predict([KINDS[0].context], [KINDS[0].phase]))
    assert direct.table.nodes[0].tobytes() == alone[0][0][: direct.table.nodes[0].nbytes]


def test_equal_kinds_have_one_row_and_retries_another(taught: Serving) -> None:
    kind = KINDS[1]
    found, rows = Tables().holding(taught.model, [kind, kind._replace(retries=1), kind, kind._replace(retries=1, wait_s=1.0)])
    assert [0, 1, 0, 2] == rows
    assert 3 == len(found.place) == len(found.table.nodes) == len(found.supports)


def test_what_is_kept_is_bounded_and_a_request_past_the_bound_is_answered_all_the_same(
    taught: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_tables, "MOST", 10)
    tables = Tables()
    sizes = []
    for some in (KINDS[:6], KINDS[6:12], KINDS):
        found, rows = tables.holding(taught.model, some)
        assert [law(Tables(), taught, kind)[1] for kind in some] == found.p_complete[rows].tolist()
        sizes.append(len(tables.holding(taught.model, some[-1:])[0].place))
    assert [6, 6, 7] == sizes  # the last was too large to be kept, and left what there was


def test_a_serving_of_another_model_keeps_laws_of_its_own(taught: Serving) -> None:
    first, second = taught, replace(taught, model_id="another")
    assert all(one is not other for one, other in pairwise([first.tables, second.tables, Tables()]))


def test_a_row_made_is_the_row_that_pydantic_would_construct() -> None:
    given = {"answer_id": "a", "reasons": ["x"], "level": 0.9, "attempt_id": None}
    made, expected = PlanAnswer.made(dict(given)), PlanAnswer.model_construct(**given)
    assert expected.__dict__ == made.__dict__
    assert expected == made
    assert expected.model_fields_set == made.model_fields_set
    assert "b" == made.model_copy(update={"answer_id": "b"}).answer_id
    assert expected.model_dump(warnings=False) == made.model_dump(warnings=False)


def test_contexts_that_differ_in_one_number_are_different_kinds() -> None:
    assert 2 == len({Kind(Context(host="h", size_in=16.0), "setup"), Kind(Context(host="h", size_in=17.0), "setup")})
