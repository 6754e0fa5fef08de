-- What simple forecasts would have scored, of completed phases: crps_unconditional of the exact distribution of all that the same
-- kind of question about the phase turned out to be (in hindsight, a hard one to beat); error_of_nine of the median of the last
-- nine of the configuration that had ended when the question was put, |log ratio|, which is the CRPS of a point.
CREATE OR REPLACE TEMP TABLE beside AS
WITH ranked AS (
    SELECT prediction_id, while_running, phase, configuration, made_ns, log_s,
        started_ns + round(least(actual_s, 1e9) * 1e9)::BIGINT AS ended_ns,
        row_number() OVER (PARTITION BY while_running, phase ORDER BY log_s) AS place,
        sum(log_s::DECIMAL(18, 9)) OVER (PARTITION BY while_running, phase ORDER BY log_s ROWS UNBOUNDED PRECEDING) AS so_far
    FROM read WHERE completed
), whole AS (
    SELECT while_running, phase, count(*) AS n, sum(log_s::DECIMAL(18, 9)) AS total,
        sum((place * log_s)::DECIMAL(38, 9)) AS by_place,
        quantile_cont(log_s, 0.9) - quantile_cont(log_s, 0.1) AS width_unconditional
    FROM ranked GROUP BY ALL
), nine AS (
    SELECT configuration, ended_ns, median(log_s) OVER (
        PARTITION BY configuration ORDER BY ended_ns, prediction_id ROWS 8 PRECEDING) AS median_log_s
    FROM ranked WHERE NOT while_running
    QUALIFY row_number() OVER (PARTITION BY configuration, ended_ns ORDER BY prediction_id DESC) = 1
)
SELECT prediction_id, width_unconditional,
    (log_s * (2 * place - n) + total - 2 * so_far) / n - (2 * by_place - (n + 1) * total) / n ** 2 AS crps_unconditional,
    abs(log_s - median_log_s) AS error_of_nine
FROM ranked r JOIN whole w USING (while_running, phase)
    ASOF LEFT JOIN nine h
        ON CASE WHEN NOT while_running THEN r.configuration END = h.configuration AND r.made_ns >= h.ended_ns
