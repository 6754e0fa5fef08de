-- Where in its distribution each completed phase ended: weight per twentieth of F(y), by phase; even if answers are true.
SELECT while_running, phase, bin, count(*) AS n, sum(weight::DECIMAL(38, 9))::DOUBLE AS weight
FROM scored WHERE completed GROUP BY ALL ORDER BY ALL
