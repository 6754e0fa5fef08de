-- Sums over all strata at once, so that any coarser grouping is a sum of sums. Decimals add up to the same in any order.
CREATE OR REPLACE TEMP TABLE cells AS
SELECT while_running, phase, $names,
    count(*) AS n, count(*) FILTER (WHERE completed) AS n_completed, count(*) FILTER (WHERE failed) AS n_failed,
    $counts,
    $pinballs,
    sum(weight::DECIMAL(38, 9)) FILTER (WHERE completed) AS weight,
    sum((weight * crps_log)::DECIMAL(38, 9)) FILTER (WHERE completed) AS crps,
    sum((weight * crps_unconditional)::DECIMAL(38, 9)) FILTER (WHERE completed) AS unconditional,
    sum(weight::DECIMAL(38, 9)) FILTER (WHERE error_of_nine IS NOT NULL) AS nine_weight,
    sum((weight * crps_log)::DECIMAL(38, 9)) FILTER (WHERE error_of_nine IS NOT NULL) AS nine_crps,
    sum((weight * error_of_nine)::DECIMAL(38, 9)) FILTER (WHERE error_of_nine IS NOT NULL) AS nine_error,
    sum(ln(greatest(p90_s, 1e-6) / greatest(p10_s, 1e-6))::DECIMAL(38, 9)) FILTER (WHERE completed) AS width,
    sum(width_unconditional::DECIMAL(38, 9)) FILTER (WHERE completed) AS unconditional_width,
    sum((weight * least(actual_s, 1e15))::DECIMAL(38, 9)) FILTER (WHERE completed) AS actual,
    sum((weight * least(mean_s, 1e15))::DECIMAL(38, 9)) FILTER (WHERE completed) AS mean
FROM scored GROUP BY ALL
