-- The answers that are scored, with their strata: the first of each attempt, phase and kind of question. An empty text is unknown.
-- cut_by names those that are cut off alike: the finest of phase, state, host with $least answers.
CREATE OR REPLACE TEMP TABLE answers AS
WITH picked AS (
    SELECT p.prediction_id, k.actual_s, k.ended, k.started_ns
    FROM predictions p JOIN known k USING (prediction_id)
    WHERE p.known_from <= $commit AND (p.elapsed_s IS NOT NULL OR p.made_ns <= k.started_ns)
    QUALIFY row_number() OVER (
        PARTITION BY p.attempt_id, p.phase, p.elapsed_s IS NULL ORDER BY p.made_ns, p.prediction_id, k.ended = 'running'
    ) = 1
    ORDER BY k.started_ns DESC, p.prediction_id DESC LIMIT $newest
), told AS (
    SELECT prediction_id, p.elapsed_s IS NOT NULL AS while_running, p.phase, p.path[-1] AS configuration, p.made_ns,
        k.started_ns, k.actual_s, k.ended, k.ended = 'completed' AS completed, k.ended = 'failed' AS failed, p.context
    FROM picked k JOIN predictions p USING (prediction_id)
), contexts AS (
    SELECT context, $strata FROM (SELECT context, $context AS c FROM (SELECT DISTINCT context FROM told))
), named AS (
    SELECT * EXCLUDE (context) FROM told JOIN contexts USING (context)
), counted AS (
    SELECT *, count(*) OVER (PARTITION BY while_running, phase, state, failed) AS of_state,
        count(*) OVER (PARTITION BY while_running, phase, state, host, failed) AS of_host
    FROM named
)
SELECT * EXCLUDE (of_state, of_host), hash(while_running, phase, CASE WHEN of_state >= $least THEN state END,
    CASE WHEN of_host >= $least THEN host END) AS cut_by
FROM counted
