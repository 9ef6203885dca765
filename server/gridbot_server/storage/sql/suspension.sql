-- name: suspend
-- Unless its policy was changed meanwhile.  Who holds the row is not waited for: the caller holds rows
-- that it may want.
UPDATE bot SET suspended = %(why)s, policy_version = policy_version + 1
 WHERE id = (SELECT id FROM bot
              WHERE id = %(bot)s AND policy_version = %(version)s AND suspended IS NULL
                FOR NO KEY UPDATE SKIP LOCKED)
