-- How far the median was off: of completed phases, the median of ln(actual / p50), by stratum.
SELECT while_running, phase, $names, median(log_s - ln(greatest(p50_s, 1e-6))) AS median_off
FROM scored WHERE completed GROUP BY GROUPING SETS ($sets) ORDER BY ALL
