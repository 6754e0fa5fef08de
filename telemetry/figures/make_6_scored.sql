-- Misses of the advertised quantiles, whether they are known, and weights 1 / G (at most 20) of what is known, at the time from
-- which it was. A phase past its quantile is a miss, however it ends; one that was cut off below it is unresolved.
CREATE OR REPLACE TEMP TABLE scored AS
WITH weighed AS (
    SELECT prediction_id, least(1 / coalesce(g.kept, 1), 20) AS weight,
        least(1 / coalesce(g50.kept, 1), 20) AS weight_50, least(1 / coalesce(g90.kept, 1), 20) AS weight_90,
        least(1 / coalesce(g95.kept, 1), 20) AS weight_95, least(1 / coalesce(g99.kept, 1), 20) AS weight_99
    FROM (SELECT prediction_id, cut_by, actual_s, p50_s, p90_s, p95_s, p99_s FROM read) a
        ASOF LEFT JOIN cut g ON a.cut_by = g.cut_by AND a.actual_s > g.at_s
        ASOF LEFT JOIN cut g50 ON a.cut_by = g50.cut_by AND least(a.actual_s, a.p50_s) > g50.at_s
        ASOF LEFT JOIN cut g90 ON a.cut_by = g90.cut_by AND least(a.actual_s, a.p90_s) > g90.at_s
        ASOF LEFT JOIN cut g95 ON a.cut_by = g95.cut_by AND least(a.actual_s, a.p95_s) > g95.at_s
        ASOF LEFT JOIN cut g99 ON a.cut_by = g99.cut_by AND least(a.actual_s, a.p99_s) > g99.at_s
)
SELECT a.* EXCLUDE (prediction_id), w.* EXCLUDE (prediction_id), b.* EXCLUDE (prediction_id),
    a.actual_s > p50_s * (1 + 1e-9) AS miss_50, a.actual_s > p90_s * (1 + 1e-9) AS miss_90,
    a.actual_s > p95_s * (1 + 1e-9) AS miss_95, a.actual_s > p99_s * (1 + 1e-9) AS miss_99
FROM read a JOIN weighed w USING (prediction_id) LEFT JOIN beside b USING (prediction_id)
