-- The same misses in order of start: the answers about a phase in $parts parts of equal counts.
WITH parted AS (
    SELECT *, ntile($parts) OVER (PARTITION BY while_running, phase ORDER BY started_ns, configuration, actual_s) AS part
    FROM scored
)
SELECT while_running, phase, part, min(started_ns) AS from_ns, max(started_ns) AS to_ns, count(*) AS n,
    count(*) FILTER (WHERE completed) AS n_completed, count(*) FILTER (WHERE failed) AS n_failed,
    $bare
FROM parted GROUP BY ALL ORDER BY ALL
