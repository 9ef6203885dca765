-- name: lock
-- One at a time: how many addresses an owner has, and how many codes were mailed, is bounded.
SELECT pg_advisory_xact_lock(hashtext('notice_address'))

-- name: add
INSERT INTO notice_address (owner, url, secret)
SELECT %(owner)s, %(url)s, %(secret)s
 WHERE (SELECT count(*) FROM notice_address WHERE owner = %(owner)s) < %(most)s
ON CONFLICT (owner, url) DO NOTHING RETURNING id

-- name: unconfirmed
SELECT id FROM notice_address WHERE owner = %(owner)s AND url = %(url)s AND NOT confirmed

-- name: codes_mailed
-- Within a day, for an owner and to a mailbox.  To the latter those do not count which somebody had
-- mailed who has shown that it is theirs.
WITH past AS (DELETE FROM mailed_code WHERE at < now() - interval '1 day')
SELECT count(*) FILTER (WHERE m.owner = %(owner)s) AS of_owner,
       count(*) FILTER (WHERE m.mailbox = %(mailbox)s AND NOT EXISTS (
           SELECT FROM notice_address a
            WHERE a.owner = m.owner AND a.confirmed
              AND regexp_replace(lower(a.url), '[+][^@]*', '') = 'mailto:' || m.mailbox))
           AS to_mailbox
  FROM mailed_code m WHERE m.at >= now() - interval '1 day'

-- name: mail_code
-- A new code takes the place of an older one, also where that was not mailed yet.
WITH past AS (
    DELETE FROM notice WHERE address = %(id)s
), mailed AS (
    INSERT INTO mailed_code (owner, mailbox) VALUES (%(owner)s, %(mailbox)s)
), news AS (
    INSERT INTO notice (address, what)
    VALUES (%(id)s, json_build_object('event', 'confirm_address', 'address', %(id)s,
                                      'code', %(code)s::text))
)
UPDATE notice_address
   SET code = %(code)s, code_ends_at = now() + interval '1 day', wrong_codes = 0
 WHERE id = %(id)s

-- name: try_code
-- A try counts before it is looked at: those who guess at once gain nothing.
UPDATE notice_address SET wrong_codes = wrong_codes + 1
 WHERE id = %(id)s AND owner = %(owner)s AND code_ends_at > now() AND wrong_codes < %(most)s
RETURNING code

-- name: confirm
UPDATE notice_address SET confirmed_at = now(), code = NULL, code_ends_at = NULL
 WHERE id = %(id)s AND NOT confirmed

-- name: is_confirmed
SELECT confirmed FROM notice_address WHERE id = %(id)s AND owner = %(owner)s

-- name: list
SELECT a.id, a.url, a.created_at, a.confirmed, a.told_at, a.error, waits.waiting, waits.dropped
  FROM notice_address a
 CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, coalesce(sum(n.dropped), 0)::bigint AS dropped
      FROM notice n WHERE n.address = a.id
 ) AS waits
 WHERE a.owner = %(owner)s ORDER BY a.id

-- name: remove
DELETE FROM notice_address WHERE id = %(id)s AND owner = %(owner)s RETURNING id

-- name: take
-- The next notice of each address, to be tried again later unless it arrives: who is slow or away
-- delays nobody else. It is dropped after its last attempt.
WITH over AS (
    DELETE FROM notice WHERE tries >= %(most_tries)s AND due_at <= now()
), next AS (
    SELECT DISTINCT ON (address) id FROM notice
     WHERE due_at <= now() AND tries < %(most_tries)s ORDER BY address, id
), taken AS (
    SELECT n.id FROM notice n JOIN next ON next.id = n.id
     ORDER BY n.due_at LIMIT %(limit)s FOR UPDATE OF n SKIP LOCKED
)
UPDATE notice n
   SET tries = n.tries + 1, due_at = now() + least(3600, 10 * 2 ^ n.tries) * interval '1 second'
  FROM taken, notice_address a
 WHERE n.id = taken.id AND a.id = n.address
RETURNING n.id, n.address, n.what::text AS what, n.at, n.dropped, a.url, a.secret

-- name: arrived
-- The address is locked before its notices, as where it is removed.
WITH told AS (
    UPDATE notice_address SET told_at = now(), error = NULL WHERE id = %(address)s RETURNING id
)
DELETE FROM notice n USING told WHERE n.id = %(id)s AND n.address = told.id

-- name: failed
UPDATE notice_address SET error = %(error)s WHERE id = %(address)s

-- name: told_trouble
-- What operators were last told of the server; '' is that it is well.
SELECT value FROM setting WHERE name = 'told_trouble'

-- name: tell_operators
WITH kept AS (
    INSERT INTO setting (name, value) VALUES ('told_trouble', %(trouble)s)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
)
SELECT tell_address(a.id, json_build_object('event', %(event)s::text, 'why', %(trouble)s::text))
  FROM (SELECT a.id FROM notice_address a JOIN owner ON owner.id = a.owner
         WHERE owner.operator AND a.confirmed FOR KEY SHARE OF a SKIP LOCKED) AS a
