-- Scores in log time (nats), weighted by 1 / G, beside those of simple forecasts; widths; and how far the mean was off.
SELECT while_running, phase, $names,
    sum(n_completed)::BIGINT AS n_completed, sum(crps) / sum(weight) AS crps_log, sum(unconditional) / sum(weight) AS crps_unconditional,
    sum(nine_crps) / sum(nine_weight) AS crps_beside_nine, sum(nine_error) / sum(nine_weight) AS crps_of_nine,
    $means,
    sum(width) / sum(n_completed) AS width_log, sum(unconditional_width) / sum(n_completed) AS width_unconditional,
    sum(actual) / sum(mean) - 1 AS mean_bias
FROM cells GROUP BY GROUPING SETS ($sets) HAVING sum(n_completed) > 0 ORDER BY ALL
