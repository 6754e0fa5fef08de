-- Answers while running, the first of each attempt, phase and class of elapsed time over the usual: the p50 answered for the same
-- phase of the same attempt at its start, else the median of completed phases.
CREATE OR REPLACE TEMP TABLE rests AS
WITH asked AS (
    SELECT p.prediction_id, p.attempt_id, p.phase, p.made_ns, p.elapsed_s, k.actual_s, k.ended, k.started_ns
    FROM predictions p JOIN known k USING (prediction_id) WHERE p.elapsed_s IS NOT NULL AND p.known_from <= $commit
), at_start AS (
    SELECT p.attempt_id, p.phase, arg_min(p.quantiles_s[50], (p.made_ns, p.prediction_id)) AS p50_s
    FROM predictions p SEMI JOIN asked USING (attempt_id, phase)
    WHERE p.elapsed_s IS NULL AND p.known_from <= $commit GROUP BY ALL
), usual AS (
    SELECT phase, median(actual_s) AS median_s FROM read WHERE completed AND NOT while_running GROUP BY phase
), classed AS (
    SELECT asked.*, (CASE WHEN elapsed_s < 0.25 * usual_s THEN 0.0 WHEN elapsed_s < 0.5 * usual_s THEN 0.25
        WHEN elapsed_s < usual_s THEN 0.5 WHEN elapsed_s < 1.5 * usual_s THEN 1.0 ELSE 1.5 END)::DOUBLE AS elapsed_from
    FROM (SELECT asked.*, coalesce(p50_s, median_s) AS usual_s
          FROM asked LEFT JOIN at_start USING (attempt_id, phase) LEFT JOIN usual USING (phase)) asked
    WHERE usual_s > 0
), picked AS (
    SELECT prediction_id, elapsed_from, actual_s, ended, started_ns FROM classed
    QUALIFY row_number() OVER (
        PARTITION BY attempt_id, phase, elapsed_from ORDER BY made_ns, prediction_id, ended = 'running') = 1
    ORDER BY started_ns DESC, prediction_id DESC LIMIT $newest
)
SELECT p.phase, k.elapsed_from, k.ended = 'completed' AS completed, k.ended = 'failed' AS failed,
    k.actual_s > p.quantiles_s[50] * (1 + 1e-9) AS miss_50, k.actual_s > p.quantiles_s[90] * (1 + 1e-9) AS miss_90,
    k.actual_s > p.quantiles_s[95] * (1 + 1e-9) AS miss_95, k.actual_s > p.quantiles_s[99] * (1 + 1e-9) AS miss_99
FROM picked k JOIN predictions p USING (prediction_id)
