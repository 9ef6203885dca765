-- name: add
INSERT INTO notice_address (owner, url, secret)
SELECT %(owner)s, %(url)s, %(secret)s
 WHERE (SELECT count(*) FROM notice_address WHERE owner = %(owner)s) < %(most)s
ON CONFLICT (owner, url) DO NOTHING RETURNING id

-- name: list
SELECT a.id, a.url, a.created_at, a.told_at, a.error,
       (SELECT count(*) FROM notice n WHERE n.address = a.id) AS waiting
  FROM notice_address a WHERE a.owner = %(owner)s ORDER BY a.id

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
RETURNING n.id, n.address, n.what::text AS what, n.at, a.url, a.secret

-- name: arrived
WITH told AS (
    UPDATE notice_address SET told_at = now(), error = NULL WHERE id = %(address)s
)
DELETE FROM notice WHERE id = %(id)s

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
INSERT INTO notice (address, what)
SELECT a.id, json_build_object('event', %(event)s::text, 'why', %(trouble)s::text)
  FROM notice_address a JOIN owner ON owner.id = a.owner WHERE owner.operator
