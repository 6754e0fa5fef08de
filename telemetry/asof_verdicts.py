"""The store as it was known at a commit, continued: what was forecast beside the answers, decided, frozen and changed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from telemetry.asof import rows_of
from telemetry.decisions import Credit
from telemetry.store.reader import Reader
from telemetry.tables import Attempt, Observation
from telemetry.verdicts import Change, Forecast, Opening

_STANDING = "{0}.known_from <= ? AND ({0}.known_until IS NULL OR {0}.known_until > ?)"


def shadowed(reader: Reader, commit: int, newest: int, since_ns: int = 0) -> pa.Table:
    """Shadow forecasts known at `commit`, each beside the answer of the whole length it is paired with, and what became of it.

    That is the answer beside which it was made, or for one from outside the first. Columns: predictor, attempt_id, phase, form,
    quantiles_s, beside (prediction_id, null from outside), received_ns (UTC ns of the commit), champion_id, champion_model (its
    model_id), champion_ns, champion_s (quantiles; null where nothing was answered before the phase began), duration_s, ended,
    host (null while nothing is known), run (run_id, else workflow_id, else attempt_id), after_event (whether an event at or past
    the phase's start had come before). The `newest` received after `since_ns`, in the order in which their truth became known.
    """
    sql = f"""
        WITH made AS (
            SELECT f.*, c.committed_ns FROM shadow_forecasts f JOIN commits c ON c.known_from = f.known_from
            WHERE f.known_from <= ? AND c.committed_ns > ?
            ORDER BY f.known_from DESC, f.predictor, f.attempt_id, f.phase LIMIT ?
        ), asked AS MATERIALIZED (SELECT DISTINCT attempt_id FROM made), heard AS MATERIALIZED (
            SELECT attempt_id, wall_ns, known_from FROM events WHERE attempt_id IN (FROM asked)
        ), known AS MATERIALIZED (
            SELECT o.attempt_id, o.phase, o.duration_s, o.ended, o.started_ns, o.known_from FROM observations o
            WHERE o.attempt_id IN (FROM asked) AND o.segment = 0 AND o.duration_s IS NOT NULL AND {_STANDING.format("o")}
        ), champion AS (
            SELECT p.attempt_id, p.phase, p.prediction_id, p.model_id, p.made_ns, p.quantiles_s,
                row_number() OVER (PARTITION BY p.attempt_id, p.phase ORDER BY p.made_ns, p.prediction_id) AS place
            FROM predictions p LEFT JOIN known k USING (attempt_id, phase)
            WHERE p.attempt_id IN (FROM asked) AND p.elapsed_s IS NULL AND p.known_from <= ?
                AND (k.started_ns IS NULL OR p.made_ns <= k.started_ns)
        )
        SELECT f.predictor, f.attempt_id, f.phase, f.form, f.quantiles_s, f.prediction_id AS beside,
            f.committed_ns AS received_ns, p.prediction_id AS champion_id, p.model_id AS champion_model,
            p.made_ns AS champion_ns, p.quantiles_s AS champion_s,
            k.duration_s, k.ended, a.host, coalesce(a.run_id, a.workflow_id, f.attempt_id) AS run,
            EXISTS (SELECT 1 FROM heard e WHERE e.attempt_id = f.attempt_id AND e.known_from <= f.known_from
                    AND e.wall_ns >= k.started_ns) AS after_event
        FROM made f LEFT JOIN champion p ON p.attempt_id = f.attempt_id AND p.phase = f.phase
                AND (p.prediction_id = f.prediction_id OR (f.prediction_id IS NULL AND p.place = 1))
            LEFT JOIN known k ON k.attempt_id = f.attempt_id AND k.phase = f.phase
            LEFT JOIN attempts a ON a.attempt_id = f.attempt_id AND a.known_from <= ?
        ORDER BY k.known_from, f.attempt_id, f.phase, f.predictor
    """  # noqa: S608  constants of this file
    return reader.arrow(sql, [commit, since_ns, newest, commit, commit, commit, commit])


def trial_ns(reader: Reader, commit: int, since_ns: int, most: int) -> int:
    """When the trial under way began: at `since_ns`, or when the last full `most` of challengers' forecasts since then were in.

    UTC ns; the trial's forecasts were received after it.
    """
    made = """
        FROM shadow_forecasts f JOIN commits c ON c.known_from = f.known_from
        WHERE f.known_from <= ? AND c.committed_ns > ? AND f.prediction_id IS NOT NULL
    """
    [(count,)] = reader.rows(f"SELECT count(*) {made}", [commit, since_ns])
    over = count // most * most
    if over == 0:
        return since_ns
    sql = f"SELECT c.committed_ns {made} ORDER BY c.committed_ns LIMIT 1 OFFSET ?"
    [(instant,)] = reader.rows(sql, [commit, since_ns, over - 1])
    return int(instant)


def promotions(reader: Reader, commit: int) -> list[Change]:
    """Versions of all decisions on who answers standing at `commit`, withdrawn ones too, in the order in which they were made."""
    sql = f"SELECT c.* FROM changes c WHERE {_STANDING.format('c')} AND c.kind = 'promotion' ORDER BY c.made_ns, c.change_id"  # noqa: S608
    return rows_of(Change, reader.arrow(sql, [commit, commit]))


def drift_noted(reader: Reader, commit: int) -> dict[str, Change]:
    """Versions standing at `commit` of drift that was found and of the reactions to it, undone ones too, by change_id."""
    which = f"{_STANDING.format('c')} AND c.kind IN ('drift', 'reaction')"
    sql = f"SELECT c.* FROM changes c WHERE {which} ORDER BY c.made_ns, c.change_id"  # noqa: S608  constants of this file
    return {row.change_id: row for row in rows_of(Change, reader.arrow(sql, [commit, commit]))}


def forecast(reader: Reader, forecast_id: str, commit: int) -> Forecast | None:
    """A frozen manifest known at `commit`."""
    sql = "SELECT * FROM forecasts WHERE forecast_id = ? AND known_from <= ?"
    return next(iter(rows_of(Forecast, reader.arrow(sql, [forecast_id, commit]))), None)


def openings(reader: Reader, forecast_id: str, commit: int) -> list[Opening]:
    """Every look known at `commit` that was for this manifest, or at a part of this population; the oldest first."""
    sql = "SELECT * FROM openings WHERE (forecast_id = ? OR scored_id = ?) AND known_from <= ? ORDER BY opened_ns, opening_id"
    return rows_of(Opening, reader.arrow(sql, [forecast_id, forecast_id, commit]))


def decided(reader: Reader, commit: int, phase: str, newest: int) -> pa.Table:
    """The newest decisions known at `commit`, with what is known of this phase of the first attempt that names each.

    Columns: decision_id, run (run_id, else decision_id), choice, alternatives (JSON), duration_s, ended (null where no such
    attempt is known). In order of known_from, then decision_id.
    """
    sql = f"""
        WITH made AS (
            SELECT * FROM decisions WHERE known_from <= ? ORDER BY known_from DESC, decision_id DESC LIMIT ?
        ), followed AS (
            SELECT a.decision_id, a.attempt_id FROM attempts a JOIN made USING (decision_id)
            WHERE a.known_from <= ? AND a.retry_of IS NULL AND a.purpose = 'work'
            QUALIFY row_number() OVER (PARTITION BY a.decision_id ORDER BY a.known_from, a.attempt_id) = 1
        ), known AS (
            SELECT f.decision_id, o.duration_s, o.ended FROM followed f JOIN observations o USING (attempt_id)
            WHERE o.phase = ? AND o.segment = 0 AND o.duration_s IS NOT NULL AND {_STANDING.format("o")}
        )
        SELECT m.decision_id, coalesce(m.run_id, m.decision_id) AS run, m.choice, m.alternatives, k.duration_s, k.ended
        FROM made m LEFT JOIN known k USING (decision_id) ORDER BY m.known_from, m.decision_id
    """  # noqa: S608  constants of this file
    return reader.arrow(sql, [commit, newest, commit, phase, commit, commit])


def answers(reader: Reader, ids: Sequence[str], commit: int) -> dict[str, list[float]]:
    """Quantiles in s of served answers known at `commit`, by prediction_id."""
    which = "known_from <= ? AND prediction_id IN (SELECT unnest(?::VARCHAR[]))"
    return dict(reader.rows(f"SELECT prediction_id, quantiles_s FROM predictions WHERE {which}", [commit, list(ids)]))  # noqa: S608


def credit(reader: Reader, account: str, commit: int) -> Credit | None:
    """An account as it stands at `commit`."""
    sql = f"SELECT c.* FROM credits c WHERE c.account = ? AND {_STANDING.format('c')}"  # noqa: S608  constants of this file
    return next(iter(rows_of(Credit, reader.arrow(sql, [account, commit, commit]))), None)


def evidence_sha256(reader: Reader, commit: int) -> str:
    """SHA-256 in hex of what models learn from: whole rows of the observations standing at `commit` and of the attempts known."""
    found = []
    for table, key, which, params in (
        (Observation, "observation_id", _STANDING.format("t"), [commit, commit]),
        (Attempt, "attempt_id", "t.known_from <= ?", [commit]),
    ):
        names = ", ".join(f't."{name}"' for name in (*table.model_fields, "known_from"))
        sql = f"""
            SELECT sha256(string_agg(sha256(CAST(r AS VARCHAR)), '' ORDER BY r.{key}))
            FROM (SELECT {names} FROM {table.table} t WHERE {which}) r
        """  # noqa: S608  our own names
        [(digest,)] = reader.rows(sql, params)
        found.append(digest or "")
    [(both,)] = reader.rows("SELECT sha256(?)", ["/".join(found)])
    return str(both)
