-- name: health
SELECT (SELECT value FROM setting WHERE name = 'project_key') AS project_key,
       (SELECT value FROM setting WHERE name = 'store') AS store,
       (SELECT value::bigint FROM setting WHERE name = 'epoch') AS epoch,
       running.bots AS bots_running, running.unsent AS jobs_unsent,
       running.replicas AS replicas_running,
       (SELECT count(*) FROM (SELECT FROM pending LIMIT 10000) AS few) AS jobs_undecided,
       (SELECT count(*) FROM dead_letter) AS jobs_set_aside,
       (SELECT count(*) FROM client WHERE seen_at > now() - interval '10 minutes'
           AND revoked_at IS NULL) AS clients_active
  FROM (SELECT count(*) AS bots,
               coalesce(sum(greatest(0, bot.size - count.first + count.queued)), 0)::bigint
                   AS unsent,
               coalesce(sum(count.sent - count.back), 0)::bigint AS replicas
          FROM bot CROSS JOIN LATERAL bot_count(bot.id) AS count
         WHERE bot.state = 'running') AS running

-- name: lags
-- How long the oldest work that is due has waited.  The replication cycle keeps no list of what is
-- due: it looks at every BOT in its tail, so its work is as old as its last look at the database.
SELECT 'transition' AS cycle, coalesce(extract(epoch FROM now() - min(since)), 0)::float8 AS seconds
  FROM pending
 UNION ALL
SELECT 'deadline', coalesce(extract(epoch FROM now() - min(deadline)), 0)::float8
  FROM lease WHERE deadline < now()
 UNION ALL
SELECT 'replication', CASE
       WHEN NOT EXISTS (SELECT FROM bot WHERE state = 'running' AND tail) THEN 0
       ELSE greatest(0, coalesce((SELECT extract(epoch FROM now() - max(state_change))
                                    FROM pg_stat_activity
                                   WHERE datname = current_database()
                                     AND application_name = 'gridbot-replication'), 'infinity'))
       END::float8

-- name: are_many
-- Whether there are more hosts than so many.
SELECT count(*) > %(many)s
  FROM (SELECT FROM host WHERE (%(mine)s::int IS NULL OR owner = %(mine)s) LIMIT %(many)s + 1) AS few

-- name: latest_of_many
-- The hosts of the clients that asked last, as `latest_hosts`, without a look at all the others.
SELECT host.id
  FROM (SELECT host, seen_at FROM client
         WHERE revoked_at IS NULL AND (%(mine)s::int IS NULL OR owner = %(mine)s)
         ORDER BY seen_at DESC LIMIT %(clients)s) AS latest
 CROSS JOIN LATERAL (  -- OFFSET: these few by their index
       SELECT id FROM host
        WHERE id = latest.host AND (%(mine)s::int IS NULL OR owner = %(mine)s) OFFSET 0
 ) AS host
 GROUP BY host.id ORDER BY max(latest.seen_at) DESC, host.id LIMIT %(limit)s

-- name: latest_hosts
-- Those that asked last first; only these are looked at more closely.
SELECT host.id
  FROM host LEFT JOIN client ON client.host = host.id AND client.revoked_at IS NULL
 WHERE (%(mine)s::int IS NULL OR host.owner = %(mine)s)
 GROUP BY host.id ORDER BY max(client.seen_at) DESC NULLS LAST, host.id LIMIT %(limit)s

-- name: hosts
SELECT host.id, host.ad->>'Name' AS name, owner.name AS owner, host.ad AS attributes, host.venue,
       host.banned_at, host.banned_why, seen.clients, seen.seen_at, seen.silent_since, host.error_rate,
       coalesce(seen.protocol < 2 AND host.ad->'IsBoinc' IS DISTINCT FROM 'true', false) AS too_old,
       host.mean_turnaround AS mean_turnaround_seconds,
       CASE WHEN host.jobs_day = now()::date THEN host.jobs_today ELSE 0 END AS jobs_today,
       host.recent_cpu * exp(greatest(-600, extract(epoch FROM host.recent_at - now()) / 86400))
           AS recent_cpu_seconds,
       coalesce(credit.total, 0) AS credit,
       coalesce(average_credit(credit.average, credit.averaged_at), 0) AS recent_credit,
       (SELECT count(*) FROM lease JOIN client ON client.id = lease.client
         WHERE client.host = host.id) AS replicas_running,
       coalesce(proven.good, 0)::bigint AS answers_right, coalesce(proven.wrong, 0)::bigint AS answers_wrong,
       (SELECT count(*) FROM unjudged WHERE unjudged.host = host.id)
           + (SELECT count(*) FROM provisional p WHERE p.host = host.id AND NOT EXISTS (
                  SELECT FROM unjudged u
                   WHERE (u.bot, u.seq, u.replica) = (p.bot, p.seq, p.replica))) AS answers_unchecked,
       host.width::float8 AS width
  FROM host JOIN owner ON owner.id = host.owner
  LEFT JOIN host_credit AS credit ON credit.host = host.id
 CROSS JOIN LATERAL (SELECT sum(good) AS good, sum(wrong) AS wrong FROM track_record
                      WHERE who = 'host ' || host.id::text) AS proven
 CROSS JOIN LATERAL (SELECT count(*) AS clients, max(seen_at) AS seen_at, max(protocol) AS protocol,
                            CASE WHEN bool_and(silent_since IS NOT NULL) THEN max(silent_since) END
                                AS silent_since FROM client
                      WHERE client.host = host.id AND revoked_at IS NULL) AS seen
 WHERE host.id = ANY(%(hosts)s) AND (%(mine)s::int IS NULL OR host.owner = %(mine)s)
 ORDER BY seen.seen_at DESC NULLS LAST, host.id

-- name: change_host
-- Another venue may have other preferences: its clients are told.
WITH changed AS (
    UPDATE host SET venue = %(venue)s
     WHERE id = %(host)s AND (%(mine)s::int IS NULL OR owner = %(mine)s) RETURNING id, venue, owner
), noted AS (
    UPDATE owner SET preferences_version = preferences_version + 1
     WHERE id IN (SELECT owner FROM changed) AND preferences <> '{}'
)
SELECT id, venue FROM changed

-- name: own_host
SELECT id FROM host WHERE id = %(host)s AND (%(mine)s::int IS NULL OR owner = %(mine)s)

-- name: owners
SELECT name, operator, share, max_jobs, may_compare, created_at, coalesce(v.total, 0) AS credit,
       coalesce(average_credit(v.average, v.averaged_at), 0) AS recent_credit
  FROM owner LEFT JOIN volunteer v ON v.owner = owner.id ORDER BY name

-- name: add_owner
INSERT INTO owner (name, operator, share, max_jobs)
VALUES (%(name)s, %(operator)s, %(share)s, %(max_jobs)s) ON CONFLICT (name) DO NOTHING
RETURNING name, operator, share, max_jobs, may_compare, created_at

-- name: change_owner
UPDATE owner SET may_compare = %(may_compare)s WHERE name = %(name)s
RETURNING name, operator, share, max_jobs, may_compare, created_at

-- name: tokens
SELECT token.id, owner.name AS owner, token.scope, token.label, token.created_at,
       token.expires_at, token.revoked_at, token.uses,
       (SELECT count(DISTINCT host) FROM client WHERE joined_with = token.id) AS machines
  FROM token JOIN owner ON owner.id = token.owner
 WHERE (%(mine)s::int IS NULL OR token.owner = %(mine)s) ORDER BY token.id

-- name: owner_is_operator
SELECT operator FROM owner WHERE name = %(name)s

-- name: add_token
INSERT INTO token (hash, owner, scope, label, expires_at)
SELECT %(hash)s, id, %(scope)s, %(label)s, now() + %(lifetime)s FROM owner WHERE name = %(owner)s
RETURNING id

-- name: lock_operator_keys
-- Those that are good; two that revoke each other take turns.
SELECT id FROM token
 WHERE scope = 'operator' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
 ORDER BY id FOR NO KEY UPDATE

-- name: revoke_token
-- A pilots' key takes its pilots with it, also those whose host is banned: they would come back.
-- An account's key takes its weak key with it.
WITH revoked AS (
    UPDATE token SET revoked_at = coalesce(revoked_at, now())
     WHERE id = %(token)s AND (%(mine)s::int IS NULL OR owner = %(mine)s) RETURNING id, scope
), weak AS (
    UPDATE token SET revoked_at = coalesce(revoked_at, now())
      FROM revoked WHERE token.made_of = revoked.id
), pilots AS (
    UPDATE client SET revoked_at = now()
      FROM revoked WHERE client.token = revoked.id
)
SELECT id FROM revoked
