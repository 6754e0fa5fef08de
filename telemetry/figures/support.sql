-- What the newest $newest answers rested on, by stratum, with or without an outcome.
WITH told AS (
    SELECT p.elapsed_s IS NOT NULL AS while_running, p.phase, p.status, p.n, p.n_eff, p.claimed_to, p.context
    FROM predictions p WHERE p.known_from <= $commit ORDER BY p.known_from DESC, p.prediction_id DESC LIMIT $newest
), contexts AS (
    SELECT context, $strata FROM (SELECT context, $context AS c FROM (SELECT DISTINCT context FROM told))
), named AS (
    SELECT * EXCLUDE (context) FROM told JOIN contexts USING (context)
)
SELECT while_running, phase, $names, count(*) AS answers,
    count(*) FILTER (WHERE status = 'shadow') AS shadow, count(*) FILTER (WHERE status = 'extrapolated') AS extrapolated,
    count(*) FILTER (WHERE status = 'thin') AS thin, count(*) FILTER (WHERE status = 'calibrated') AS calibrated,
    median(n) AS median_n, median(n_eff) AS median_n_eff, min(n_eff) AS least_n_eff, median(claimed_to) AS median_claimed_to
FROM named GROUP BY GROUPING SETS ($sets) ORDER BY ALL
