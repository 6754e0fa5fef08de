-- What was answered about plans against what happened: the first answer of each attempt and kind of question.
WITH judged AS (
    SELECT a.question, a.probability, o.met, a.verdict FROM plan_answers a JOIN plan_outcomes o USING (answer_id)
    WHERE a.known_from <= $commit AND o.known_from <= $commit AND (o.known_until IS NULL OR o.known_until > $commit)
        AND o.met IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY a.question, a.attempt_id ORDER BY a.made_ns, a.answer_id) = 1
)
SELECT question, (CASE WHEN probability < 0.5 THEN 0 WHEN probability < 0.8 THEN 0.5 WHEN probability < 0.9 THEN 0.8
        WHEN probability < 0.95 THEN 0.9 WHEN probability < 0.99 THEN 0.95 ELSE 0.99 END)::DOUBLE AS answered_from,
    count(*) AS n, count(*) FILTER (WHERE met) AS met, (sum(probability::DECIMAL(18, 9)) / count(*))::DOUBLE AS answered,
    (sum(((probability - met::INT) ** 2)::DECIMAL(18, 9)) / count(*))::DOUBLE AS brier,
    count(*) FILTER (WHERE verdict IN ('holds', 'safe')) AS held, count(*) FILTER (WHERE verdict IN ('holds', 'safe') AND met) AS held_and_met
FROM judged GROUP BY ALL ORDER BY ALL
