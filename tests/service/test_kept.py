"""What is kept of reports is what would be told anew: of the newest commit only, by what was asked, and never more than fits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import reporting
from service.http.app import create_app
from service.http.kept import Kept
from service.settings import Settings
from telemetry.asof_scored import Scores
from telemetry.store.file import Store
from tests.telemetry.answered import answer, batch


class Making:
    """Makes texts and counts how many."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return b"%d" % self.made


def test_the_same_question_about_the_same_commit_is_answered_once() -> None:
    kept, make = Kept(), Making()
    assert [b"1", b"1"] == [kept.text(7, "coverage", make) for _ in range(2)]
    assert b"2" == kept.text(7, "sharpness", make)


def test_with_another_commit_all_is_made_anew() -> None:
    kept, make = Kept(), Making()
    assert [b"1", b"2", b"2"] == [kept.text(commit, "coverage", make) for commit in (7, 8, 8)]


def test_what_is_late_is_told_and_not_kept() -> None:
    kept, make = Kept(), Making()

    def overtaken() -> bytes:
        assert b"1" == kept.text(8, "coverage", make)  # somebody else asks after a commit, while this is being made
        return b"as of 7"

    assert b"as of 7" == kept.text(7, "coverage", overtaken)
    assert b"1" == kept.text(8, "coverage", make)
    assert b"2" == kept.text(7, "coverage", make)
    assert b"1" == kept.text(8, "coverage", make)


def test_what_fails_is_tried_again() -> None:
    kept = Kept()
    with pytest.raises(ZeroDivisionError):
        kept.text(7, "coverage", lambda: b"%d" % (1 // 0))
    assert b"1" == kept.text(7, "coverage", Making())


def test_those_made_first_make_room() -> None:
    kept, make = Kept(most_bytes=10), Making()
    for name in "abc":
        kept.text(7, name, lambda: b"four")
    assert b"four" == kept.text(7, "b", make)
    assert b"four" == kept.text(7, "c", make)
    assert b"1" == kept.text(7, "a", make)
    assert b"more than ten" == kept.text(7, "d", lambda: b"more than ten")
    assert b"2" == kept.text(7, "d", make)


def test_a_report_asked_again_is_the_same_and_after_a_commit_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, made = Settings(store=tmp_path / "s.duckdb"), list[tuple[int, int]]()
    coverage = reporting.coverage

    def counted(scores: Scores) -> Any:
        found = coverage(scores)
        made.append((scores.commit, found.answers))
        return found

    monkeypatch.setattr(reporting, "coverage", counted)

    async def looked(store: Store) -> list[dict[str, Any]]:
        transport = httpx.ASGITransport(create_app(settings, store))
        found = []
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            for number in range(2):
                store.write(batch([answer(number, 5.0)]))
                for query in ("", "?newest=20000", "?newest=1"):
                    told = await http.get(f"/v1/reports/coverage{query}")
                    assert (200, "application/json") == (told.status_code, told.headers["content-type"])
                    found.append(told.json())
        return found

    with Store.open(settings.store) as store:
        found = asyncio.run(looked(store))
        with store.reader() as reader:
            anew = coverage(Scores(reader, 2, 20_000)).model_dump()
    assert [(1, 1), (1, 1), (2, 2), (2, 1)] == made  # 20,000 is what is meant where nothing is said
    assert [(1, 1)] * 3 + [(2, 2)] * 2 + [(2, 1)] == [(told["as_of_commit"], told["answers"]) for told in found]
    assert found[3] == found[4] == anew
