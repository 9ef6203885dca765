-- name: owners
SELECT name, id FROM owner WHERE name = ANY(%(names)s)

-- name: host
-- The machine by its identity: its statistics survive the clients on it.
-- A ban that a lost state of the database knew holds.
INSERT INTO host (identity, owner, venue, grid, ad, banned_at, banned_why)
SELECT %(identity)s, %(owner)s, (SELECT venue FROM owner WHERE id = %(owner)s), %(grid)s, %(ad)s,
       CASE WHEN lost.why IS NOT NULL THEN now() END,
       coalesce(lost.why, '')
  FROM (SELECT max(why) AS why FROM withdrawn WHERE kind = 'host' AND name = %(identity)s) AS lost
ON CONFLICT (identity) DO UPDATE SET ad = EXCLUDED.ad
RETURNING id, banned_at IS NOT NULL AS is_banned, banned_why

-- name: add_client
-- It may trust, later, whom it may trust now: an operator's word is given once.
-- One that came back with a receipt before, and did not hear the answer, gets another token.
INSERT INTO client (hash, host, owner, dedicated, accepts, joined_with, protocol, trusts, may_trust,
                    receipt)
VALUES (%(hash)s, %(host)s, %(owner)s, %(dedicated)s, %(accepts)s, %(key)s, %(protocol)s,
        %(trusts)s, %(trusts)s, %(receipt)s)
ON CONFLICT (receipt) WHERE receipt IS NOT NULL DO UPDATE SET hash = EXCLUDED.hash
 RETURNING id

-- name: receipts
SELECT (SELECT value FROM setting WHERE name = 'receipts') AS secret,
       (SELECT value::bigint FROM setting WHERE name = 'epoch') AS epoch

-- name: of_receipt
-- Whether somebody holds such a receipt for good: who issued it to whom, and with which key.
SELECT (SELECT id FROM owner WHERE id = %(owner)s AND name = %(owner_name)s) AS owner,
       (SELECT id FROM token WHERE id = %(key)s) AS key,
       EXISTS (SELECT FROM token WHERE id = %(key)s AND revoked_at IS NOT NULL)
           OR EXISTS (SELECT FROM client WHERE hash = %(client)s)
           OR EXISTS (SELECT FROM client WHERE receipt = %(receipt)s AND revoked_at IS NOT NULL)
           OR EXISTS (SELECT FROM withdrawn
                       WHERE kind = 'client' AND name = encode(%(client)s, 'hex')) AS is_revoked

-- name: lock_key
-- So that a pilot which joins while its key is revoked ends with it.
SELECT tag, pilots FROM token
 WHERE id = %(key)s AND revoked_at IS NULL AND expires_at > now() FOR UPDATE

-- name: earlier_pilots
-- Clients that joined as the same pilot, whose reply may have been lost: each pilot is one client.
-- One that a ban ended does not come back with the end of the ban, either.
UPDATE client SET revoked_at = now()
 WHERE token = %(key)s AND pilot = %(pilot)s
   AND (revoked_at IS NULL OR EXISTS (
        SELECT FROM host WHERE host.id = client.host AND host.banned_at = client.revoked_at))
RETURNING id

-- name: add_pilot
-- It ends with the key that it joined with.
INSERT INTO client (hash, host, owner, dedicated, accepts, grid, joined_with, token, pilot,
                    expires_at, protocol, trusts, may_trust)
SELECT %(hash)s, %(host)s, %(owner)s, %(dedicated)s, serves, grid, id, id, %(pilot)s, expires_at,
       %(protocol)s, %(trusts)s, serves
  FROM token WHERE id = %(key)s RETURNING id

-- name: accepted
SELECT coalesce(array_agg(owner.name ORDER BY owner.name), '{}')
  FROM client JOIN owner ON owner.id = ANY (client.accepts)
 WHERE client.id = %(client)s

-- name: change_accepts
-- Whom a pilot serves, its key says.
UPDATE client SET accepts = %(accepts)s WHERE id = %(client)s AND grid IS NULL

-- name: change_trust
UPDATE client
   SET protocol = %(protocol)s,
       trusts = ARRAY(SELECT owner FROM unnest(%(trusts)s::int[]) AS owner
                       WHERE owner = ANY (may_trust) OR owner = %(owner)s AND grid IS NULL)
 WHERE id = %(client)s

-- name: change_host
UPDATE host SET ad = %(ad)s WHERE id = %(host)s

-- name: project
SELECT (SELECT key FROM project_key WHERE introduced_by IS NULL) AS first,
       (SELECT decode(value, 'hex') FROM setting WHERE name = 'project_key') AS key,
       (SELECT value::bigint FROM setting WHERE name = 'epoch') AS epoch

-- name: earned
-- Of a host; and whether it, or its crew, has no room for work of strangers.
SELECT CASE WHEN host.jobs_day = now()::date THEN host.jobs_today ELSE 0 END AS jobs_today,
       coalesce(host_credit.total, 0)::float8 AS credit,
       (SELECT count(*) FROM unjudged WHERE unjudged.host = host.id) < host.width
           AND (SELECT count(*) FROM unjudged WHERE unjudged.crew = host.crew)
               < coalesce(crew.width, 8) AS has_room
  FROM host LEFT JOIN crew ON crew.name = host.crew
  LEFT JOIN host_credit ON host_credit.host = host.id
 WHERE host.id = %(host)s

-- name: standing
SELECT coalesce(proven.good, 0)::bigint AS right, coalesce(proven.wrong, 0)::bigint AS wrong,
       (SELECT count(*) FROM unjudged WHERE unjudged.host = host.id)
           + (SELECT count(*) FROM provisional p WHERE p.host = host.id AND NOT EXISTS (
                  SELECT FROM unjudged u
                   WHERE (u.bot, u.seq, u.replica) = (p.bot, p.seq, p.replica))) AS unchecked,
       least(host.width, coalesce(crew.width, 8))::float8 AS width
  FROM host LEFT JOIN crew ON crew.name = host.crew
 CROSS JOIN LATERAL (SELECT sum(good) AS good, sum(wrong) AS wrong FROM track_record
                      WHERE who = 'host ' || host.id::text) AS proven
 WHERE host.id = %(host)s

-- name: cut_off
-- What the end of a pilot teaches of the BOTs whose replicas it cuts off.  Counted while the pilot
-- still holds some, so that a repeated request teaches nothing twice.
UPDATE bot b
   SET cut_off = b.cut_off + 1, cut_off_seconds = greatest(b.cut_off_seconds, x.seconds),
       cut_off_grid = c.grid, recent_runs = latest_runs(x.runs, b.recent_runs),
       usual_seconds = usual_run(latest_runs(x.runs, b.recent_runs))
  FROM client c, (
       SELECT bot, max(seconds)::real AS seconds, ARRAY[max(seconds) * 1.1 + 30]::real[] AS runs
         FROM json_to_recordset(%(cut_off)s) AS x (bot bigint, seconds float8) GROUP BY bot) AS x
 WHERE b.id = x.bot AND b.state = 'running' AND c.id = %(client)s AND c.grid IS NOT NULL
   AND EXISTS (SELECT FROM lease l WHERE l.bot = b.id AND l.client = c.id)
