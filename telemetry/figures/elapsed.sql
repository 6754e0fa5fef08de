-- Misses of answers given while running, by how much of the usual time had passed.
SELECT phase, elapsed_from, count(*) AS n, count(*) FILTER (WHERE completed) AS n_completed,
    count(*) FILTER (WHERE failed) AS n_failed,
    $bare
FROM rests GROUP BY ALL ORDER BY ALL
