-- How often advertised quantiles were passed, by stratum; an empty cell means any, an empty text unknown.
SELECT while_running, phase, $names,
    sum(n)::BIGINT AS n, sum(n_completed)::BIGINT AS n_completed, sum(n_failed)::BIGINT AS n_failed,
    $sums
FROM cells GROUP BY GROUPING SETS ($sets) ORDER BY ALL
