-- Kaplan-Meier, by group: the probability `kept` of not having been cut off up to at_s. At ties an end precedes a cut.
CREATE OR REPLACE TEMP TABLE cut AS
WITH ends AS (
    SELECT cut_by, actual_s AS at_s, count(*) AS n, count(*) FILTER (WHERE NOT completed) AS n_cut
    FROM answers WHERE NOT failed GROUP BY ALL
), at_risk AS (
    SELECT *, sum(n) OVER (PARTITION BY cut_by ORDER BY at_s DESC) - (n - n_cut) AS n_left FROM ends
)
SELECT cut_by, at_s, exp(sum(ln(1 - n_cut / n_left)) OVER (PARTITION BY cut_by ORDER BY at_s)) AS kept
FROM at_risk WHERE n_cut > 0 AND n_cut < n_left
