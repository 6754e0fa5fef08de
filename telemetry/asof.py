"""The store as it was known at a commit: the only way models and reports read it.

A row is known at commit c if known_from <= c, and stands if known_until is null or past c. Nothing here ever looks
at a row that became known later, so an answer made from it can be made again, bit for bit, at any later time.

Where retention removed what newer versions had replaced, `complete_from` tells from which commit on this holds.

The context of an observation is the attempt's record *as known when that version of the observation became known*;
where there was none yet, it is unknown. It never changes afterwards, so what `changes` takes away is exactly what
it, or `observations`, gave before. A record that arrives after its observations is brought in by new versions of
them: `outdated` names the ones to close and write again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa

from telemetry.ledger import ModelFile, PlanAnswer, PlanOutcome
from telemetry.rows import Row
from telemetry.store.keep import RETENTION_NAME
from telemetry.store.reader import Reader
from telemetry.tables import Attempt, Event, Grant, HostProfile, Observation, Quarantine
from telemetry.words import AFTERMATH, IMPORTED_GRANT

_OBSERVED = "observation_id attempt_id phase segment started_ns entry_s duration_s ended cause clock known_from"
_CONTEXT = "host device family model runtime precision mode state batch size_in corunners"
_STANDING = "{0}.known_from <= ? AND ({0}.known_until IS NULL OR {0}.known_until > ?)"
_JOINED = """
    SELECT {columns}
    FROM observations o LEFT JOIN attempts a ON a.attempt_id = o.attempt_id AND a.known_from <= o.known_from
    WHERE o.absence IS NULL AND o.duration_s IS NOT NULL AND coalesce(a.purpose, 'work') = 'work'
        AND o.outcomes = 1 AND o.resolution_s IS NULL AND {which}
"""
_COLUMNS = ", ".join([f"o.{name}" for name in _OBSERVED.split()] + [f"a.{name}" for name in _CONTEXT.split()])

R = TypeVar("R", bound=Row)


def commit_at(reader: Reader, wall_ns: int) -> int:
    """Newest commit made at or before the UTC wall time `wall_ns`; 0 if there was none."""
    [(commit,)] = reader.rows("SELECT coalesce(max(known_from), 0) FROM commits WHERE committed_ns <= ?", [wall_ns])
    return int(commit)


def complete_from(reader: Reader) -> int:
    """The first commit whose state the store still knows in full: 0, or as far as retention removed replaced versions."""
    found = reader.rows("SELECT value FROM state WHERE name = ? AND known_until IS NULL", [RETENTION_NAME])
    return int(json.loads(found[0][0])["complete_from"]) if found else 0


def committed_ns(reader: Reader, commit: int) -> int | None:
    """UTC wall time of a commit, ns; None if there is no such commit."""
    found = reader.rows("SELECT committed_ns FROM commits WHERE known_from = ?", [commit])
    return int(found[0][0]) if found else None


def attempts(reader: Reader, ids: Sequence[str], commit: int) -> dict[str, Attempt]:
    """Records of these attempts known at `commit`, by attempt_id; one without a record is left out."""
    rows = _read(reader, Attempt, ids, "t.known_from <= ? ORDER BY t.attempt_id", [commit])
    return {row.attempt_id: row for row in rows}


def events(reader: Reader, ids: Sequence[str], commit: int) -> dict[str, list[Event]]:
    """Events of these attempts known at `commit`, by attempt_id, in order of known_from, then event_id.

    Every id given is a key; its list may be empty.
    """
    found: dict[str, list[Event]] = {attempt_id: [] for attempt_id in ids}
    for row in _read(reader, Event, ids, "t.known_from <= ? ORDER BY t.known_from, t.event_id", [commit]):
        found[row.attempt_id].append(row)
    return found


def touched(reader: Reader, after: int, upto: int) -> list[str]:
    """attempt_ids, sorted, of which events or a record became known in commits (after, upto]."""
    sql = """
        SELECT attempt_id FROM events WHERE known_from > ? AND known_from <= ?
        UNION SELECT attempt_id FROM attempts WHERE known_from > ? AND known_from <= ? ORDER BY attempt_id
    """
    return [attempt_id for (attempt_id,) in reader.rows(sql, [after, upto, after, upto])]


def slice_end(reader: Reader, after: int, upto: int, most_rows: int) -> int:
    """The last commit of (after, upto] up to which at most so many rows were written, but at least the first of them.

    `upto` where there is none.
    """
    sql = """
        SELECT known_from, sum(written_rows) OVER (ORDER BY known_from) AS so_far FROM commits
        WHERE known_from > ? AND known_from <= ?
        QUALIFY so_far <= ? OR row_number() OVER (ORDER BY known_from) = 1 ORDER BY known_from DESC LIMIT 1
    """
    found = reader.rows(sql, [after, upto, most_rows])
    return int(found[0][0]) if found else upto


def standing(reader: Reader, ids: Sequence[str], commit: int) -> dict[str, Observation]:
    """Versions standing at `commit` of all observations of these attempts, absent ones too, by observation_id."""
    which = f"{_STANDING.format('t')} ORDER BY t.observation_id"
    return {row.observation_id: row for row in _read(reader, Observation, ids, which, [commit, commit])}


def outdated(reader: Reader, ids: Sequence[str], commit: int) -> set[str]:
    """observation_ids of these attempts whose version standing at `commit` is older than the attempt's record.

    Close them and write them again, even unchanged: only a new version carries the record's context.
    """
    # Both sides are cut to the ids before they meet; left to itself the engine joins the whole tables.
    sql = f"""
        WITH asked AS MATERIALIZED (
            SELECT observation_id, attempt_id, known_from FROM observations o
            WHERE attempt_id IN (SELECT unnest(?::VARCHAR[])) AND {_STANDING.format("o")}
        ), records AS MATERIALIZED (
            SELECT attempt_id, known_from FROM attempts WHERE attempt_id IN (SELECT unnest(?::VARCHAR[])) AND known_from <= ?
        )
        SELECT observation_id FROM asked JOIN records USING (attempt_id) WHERE records.known_from > asked.known_from
    """  # noqa: S608  constants of this file
    return {name for (name,) in reader.rows(sql, [list(ids), commit, commit, list(ids), commit])}


def settled(reader: Reader, ids: Sequence[str], commit: int) -> set[str]:
    """attempt_ids of these of which something stands at `commit` that was known before the oldest event there is.

    It was imported, or its events were removed: the events that came later are not enough to make it again.
    """
    sql = f"""
        WITH oldest AS MATERIALIZED (
            SELECT attempt_id, min(known_from) AS known_from FROM events
            WHERE attempt_id IN (SELECT unnest(?::VARCHAR[])) AND known_from <= ? GROUP BY attempt_id
        ), standing AS MATERIALIZED (
            SELECT attempt_id, min(known_from) AS known_from FROM observations o
            WHERE attempt_id IN (SELECT unnest(?::VARCHAR[])) AND {_STANDING.format("o")} GROUP BY attempt_id
        )
        SELECT attempt_id FROM standing JOIN oldest USING (attempt_id) WHERE standing.known_from < oldest.known_from
    """  # noqa: S608  constants of this file
    return {name for (name,) in reader.rows(sql, [list(ids), commit, list(ids), commit, commit])}


def observations(reader: Reader, commit: int) -> pa.Table:
    """Observations standing at `commit` that have a duration or a bound, of single attempts of work or of unknown purpose.

    Means and buckets are left out: a model that took them for attempts would believe in a spread that nobody saw.

    Columns: observation_id, attempt_id, phase, segment, started_ns, entry_s, duration_s, ended, cause, clock,
    known_from, then the context (host ... state as text, batch, size_in, corunners as numbers; null is unknown).
    In order of known_from, then observation_id.
    """
    sql = _JOINED.format(columns=_COLUMNS, which=_STANDING.format("o"))
    return reader.arrow(f"{sql} ORDER BY o.known_from, o.observation_id", [commit, commit])


def changes(reader: Reader, after: int, upto: int) -> pa.Table:
    """What came and went in `observations` during commits (after, upto].

    Columns as there, then `change` (+1 came, -1 went) and `known_at`, the commit of the change. In order of
    known_at, -1 before +1, then observation_id. `observations(after)` with these applied is `observations(upto)`.
    """
    came = _JOINED.format(columns=f"{_COLUMNS}, 1 AS change, o.known_from AS known_at", which=_within("known_from"))
    went = _JOINED.format(columns=f"{_COLUMNS}, -1 AS change, o.known_until AS known_at", which=_within("known_until"))
    sql = f"{came} UNION ALL {went} ORDER BY known_at, change, observation_id"
    return reader.arrow(sql, [after, upto, after, upto])


def predictions(reader: Reader, commit: int, *, unscored: bool = False, attempt_ids: Sequence[str] | None = None) -> pa.Table:
    """Ledger rows known at `commit` with the columns of the table, in order of known_from, then prediction_id.

    `unscored` keeps only those about an attempt whose outcome is not known yet; `attempt_ids` those about these.
    """
    which, params = "p.known_from <= ?", [commit]
    if unscored:
        scored = f"SELECT o.prediction_id FROM outcomes o WHERE {_STANDING.format('o')}"  # noqa: S608  constants
        which += f" AND p.attempt_id IS NOT NULL AND p.prediction_id NOT IN ({scored})"
        params += [commit, commit]
    given: list[Any] = list(params)
    if attempt_ids is not None:
        which += " AND p.attempt_id IN (SELECT unnest(?::VARCHAR[]))"
        given.append(list(attempt_ids))
    sql = f"SELECT p.* FROM predictions p WHERE {which} ORDER BY p.known_from, p.prediction_id"  # noqa: S608  constants
    return reader.arrow(sql, given)


def outcomes(reader: Reader, commit: int) -> pa.Table:
    """Outcomes standing at `commit` with the columns of the table, in order of known_from, then prediction_id."""
    sql = f"SELECT o.* FROM outcomes o WHERE {_STANDING.format('o')} ORDER BY o.known_from, o.prediction_id"  # noqa: S608
    return reader.arrow(sql, [commit, commit])


def quarantined(reader: Reader, ids: Sequence[str], commit: int) -> dict[str, Quarantine]:
    """Spans of these attempts standing in quarantine at `commit`, by quarantine_id."""
    which = f"{_STANDING.format('t')} ORDER BY t.quarantine_id"
    return {row.quarantine_id: row for row in _read(reader, Quarantine, ids, which, [commit, commit])}


def open_attempts(reader: Reader, commit: int) -> list[str]:
    """attempt_ids, sorted, of work that is running at `commit`: with an open phase other than what follows the work."""
    sql = f"""
        SELECT DISTINCT o.attempt_id FROM observations o
        WHERE {_STANDING.format("o")} AND o.ended = 'running' AND o.phase NOT IN (SELECT unnest(?::VARCHAR[])) ORDER BY ALL
    """  # noqa: S608  constants of this file
    return [attempt_id for (attempt_id,) in reader.rows(sql, [commit, commit, list(AFTERMATH)])]


def count_ended(reader: Reader, commit: int) -> int:
    """How many observations stand ended at `commit`, completed, failed or censored."""
    sql = f"SELECT count(*) FROM observations o WHERE {_STANDING.format('o')} AND o.ended <> 'running'"  # noqa: S608
    return int(reader.rows(sql, [commit, commit])[0][0])


def count_quarantined(reader: Reader, commit: int) -> int:
    """How many spans stand in quarantine at `commit`."""
    sql = f"SELECT count(*) FROM quarantine q WHERE {_STANDING.format('q')}"  # noqa: S608  constants
    return int(reader.rows(sql, [commit, commit])[0][0])


def models(reader: Reader, commit: int) -> list[ModelFile]:
    """Fitted models known at `commit`, newest first."""
    return rows_of(ModelFile, reader.arrow("SELECT * FROM models WHERE known_from <= ? ORDER BY known_from DESC", [commit]))


def profiles(reader: Reader, commit: int) -> list[HostProfile]:
    """Profiles of all hosts known at `commit`: those measured here, the newest first, before those read from files of others."""
    sql = "SELECT * FROM host_profiles WHERE known_from <= ? ORDER BY grant_id = ?, measured_ns DESC"
    return rows_of(HostProfile, reader.arrow(sql, [commit, IMPORTED_GRANT]))


def newest_profile(reader: Reader, commit: int) -> int:
    """Commit at which the newest profile known at `commit` became known; 0 if none is."""
    return int(reader.rows("SELECT coalesce(max(known_from), 0) FROM host_profiles WHERE known_from <= ?", [commit])[0][0])


def grants(reader: Reader, commit: int) -> dict[str, Grant]:
    """Versions of all grants standing at `commit`, by grant_id."""
    sql = f"SELECT g.* FROM grants g WHERE {_STANDING.format('g')} ORDER BY g.grant_id"  # noqa: S608  constants
    return {row.grant_id: row for row in rows_of(Grant, reader.arrow(sql, [commit, commit]))}


def hosts(reader: Reader, commit: int) -> pa.Table:
    """Hosts that attempts known at `commit` name: host, attempts (count), newest_ns (UTC ns the newest became known), by name."""
    sql = """
        WITH named AS (SELECT host, count(*) AS attempts, max(known_from) AS newest FROM attempts
                       WHERE host IS NOT NULL AND known_from <= ? GROUP BY host)
        SELECT host, attempts, committed_ns AS newest_ns FROM named JOIN commits ON known_from = newest ORDER BY host
    """
    return reader.arrow(sql, [commit])


def recent_contexts(reader: Reader, commit: int, newest: int, limit: int) -> pa.Table:
    """Contexts of the `newest` attempts of work known at `commit`, each with its count: `limit` of them, newest first."""
    names = ", ".join(_CONTEXT.split())
    sql = f"""
        WITH recent AS (SELECT {names}, known_from FROM attempts WHERE known_from <= ? AND purpose = 'work'
                        ORDER BY known_from DESC, attempt_id DESC LIMIT ?)
        SELECT {names}, count(*) AS attempts FROM recent GROUP BY {names}
        ORDER BY max(known_from) DESC, attempts DESC, {names} LIMIT ?
    """  # noqa: S608  constants of this file
    return reader.arrow(sql, [commit, newest, limit])


def plan_answers(reader: Reader, commit: int, *, scored: bool, attempt_ids: Sequence[str] | None = None) -> list[PlanAnswer]:
    """Composite answers known at `commit` that have an outcome by then, or have none; in order of known_from, then answer_id.

    `attempt_ids` keeps those about these attempts, or about loads that wait for them.
    """
    has = "" if scored else "NOT "
    which, params = "p.known_from <= ?", list[Any]([commit])
    if attempt_ids is not None:
        which += " AND (p.attempt_id IN (SELECT unnest(?::VARCHAR[])) OR list_has_any(p.needed_by, ?::VARCHAR[]))"
        params += [list(attempt_ids)] * 2
    sql = f"""
        SELECT p.* FROM plan_answers p WHERE {which}
            AND p.answer_id {has}IN (SELECT o.answer_id FROM plan_outcomes o WHERE {_STANDING.format("o")})
        ORDER BY p.known_from, p.answer_id
    """  # noqa: S608  constants of this file
    return rows_of(PlanAnswer, reader.arrow(sql, [*params, commit, commit]))


def plan_outcomes(reader: Reader, commit: int) -> dict[str, PlanOutcome]:
    """Outcomes of composite answers standing at `commit`, by answer_id."""
    sql = f"SELECT o.* FROM plan_outcomes o WHERE {_STANDING.format('o')} ORDER BY o.known_from, o.answer_id"  # noqa: S608
    return {row.answer_id: row for row in rows_of(PlanOutcome, reader.arrow(sql, [commit, commit]))}


def rows_of(table: type[R], found: pa.Table) -> list[R]:
    """Rows of one of the store's tables read back as what was written, such as predictions; other columns are dropped."""
    return [table(**record) for record in found.select(list(table.model_fields)).to_pylist()]


def _read(reader: Reader, table: type[R], ids: Sequence[str], which: str, params: Sequence[Any]) -> list[R]:
    """Rows of a table about these attempts that satisfy `which`."""
    names = ", ".join(f't."{name}"' for name in table.model_fields)
    sql = f"SELECT {names} FROM {table.table} t WHERE t.attempt_id IN (SELECT unnest(?::VARCHAR[])) AND {which}"  # noqa: S608
    found = reader.rows(sql, [list(ids), *params])
    return [table(**dict(zip(table.model_fields, values, strict=True))) for values in found]


def _within(column: str) -> str:
    return f"o.{column} > ? AND o.{column} <= ?"
