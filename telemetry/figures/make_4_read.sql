-- One row per answer: the quantiles that are looked at, and CRPS in log time (nats): the mean over the levels p = 0.01 ... 0.99 of
-- twice the pinball loss, |y - q| + (2 p - 1) (y - q). The factors 2 p - 1 add up to 0, so those of y cancel.
-- bin is the twentieth of (0, 1) in which F(actual_s) lies; between F(y-) and F(y) it is drawn by the answer's id.
CREATE OR REPLACE TEMP TABLE read AS
WITH quantiles AS (
    SELECT a.*, p.mean_s, p.quantiles_s AS q, ln(greatest(a.actual_s, 1e-6)) AS log_s,
        list_transform(p.quantiles_s[1:99], lambda x: ln(greatest(x, 1e-6))) AS log_q
    FROM answers a JOIN predictions p USING (prediction_id)
), told AS (
    SELECT * EXCLUDE (q, log_q), q[10] AS p10_s, q[50] AS p50_s, q[90] AS p90_s, q[95] AS p95_s, q[99] AS p99_s,
        (list_sum(list_transform(log_q, lambda x: abs(log_s - x))) - list_inner_product(log_q, $centred)) / 99 AS crps_log,
        $below AS below,
        $upto AS upto
    FROM quantiles
)
SELECT * EXCLUDE (below, upto),
    below + floor(md5_number_lower(prediction_id) / 18446744073709551616.0 * (upto - below + 1))::INT AS bin
FROM told
