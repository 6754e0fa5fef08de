-- What became of answers: actual_s is the length in s (the remaining one, if asked while running), or what it is known to exceed.
CREATE OR REPLACE TEMP TABLE known AS
SELECT prediction_id, actual_s, ended, started_ns FROM outcomes
WHERE known_from <= $commit AND (known_until IS NULL OR known_until > $commit)
UNION ALL
SELECT p.prediction_id, b.duration_s - coalesce(p.elapsed_s, 0), b.ended, b.started_ns
FROM observations b JOIN predictions p USING (attempt_id, phase)
WHERE b.known_from <= $commit AND (b.known_until IS NULL OR b.known_until > $commit)
    AND b.ended = 'running' AND b.started_ns IS NOT NULL AND b.duration_s > coalesce(p.elapsed_s, 0)
