-- Why the newest $newest answers have the status they have.
WITH told AS (
    SELECT phase, status, reasons FROM predictions
    WHERE known_from <= $commit ORDER BY known_from DESC, prediction_id DESC LIMIT $newest
), each AS (SELECT phase, status, unnest(reasons) AS reason FROM told)
SELECT phase, status, reason, count(*) AS answers FROM each GROUP BY ALL ORDER BY ALL
