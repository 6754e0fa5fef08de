-- Drift found and what followed, the oldest first, with what was undone since.
SELECT change_id, kind, subject, action, decided_by, made_ns, reason, evidence, undone_ns, undone_reason FROM changes
WHERE known_from <= $commit AND (known_until IS NULL OR known_until > $commit) AND kind <> 'promotion'
ORDER BY made_ns, change_id
