-- One row per answer: the quantiles that are looked at, and CRPS in log time (nats) over the levels 0.01 ... 0.99.
-- bin is the twentieth of (0, 1) in which F(actual_s) lies; between F(y-) and F(y) it is drawn by the answer's id.
CREATE OR REPLACE TEMP TABLE read AS
WITH quantiles AS (
    SELECT a.*, p.mean_s, p.quantiles_s AS q, ln(greatest(a.actual_s, 1e-6)) AS log_s
    FROM answers a JOIN predictions p USING (prediction_id)
), told AS (
    SELECT * EXCLUDE (q), q[10] AS p10_s, q[50] AS p50_s, q[90] AS p90_s, q[95] AS p95_s, q[99] AS p99_s,
        ($crps) / 99 AS crps_log,
        $below AS below,
        $upto AS upto
    FROM quantiles
)
SELECT * EXCLUDE (below, upto),
    below + floor(md5_number_lower(prediction_id) / 18446744073709551616.0 * (upto - below + 1))::INT AS bin
FROM told
