-- name: of_key
-- Whether this key may read the file: it is its owner's, who sent it or whose BOT returned it.  Keys
-- that volunteers get read nothing; pilots' keys read the one file that they name.
SELECT 1 FROM token JOIN blob_owner USING (owner)
 WHERE token.id = %(key)s AND sha256 = %(sha256)s AND scope NOT IN ('join', 'account')
   AND coalesce(artefact = sha256, true)

-- name: of_owner
SELECT 1 FROM blob_owner WHERE (sha256, owner) = (%(sha256)s, %(owner)s)

-- name: of_leased_job
-- Whether a job that this client holds has the file as an input of its own, and its BOT's owner
-- sent it: an input with sources need not be here, and its hash gives nobody the file of another.
SELECT 1 FROM lease JOIN job USING (bot, seq) JOIN bot ON bot.id = lease.bot
  JOIN blob_owner ON (blob_owner.sha256, blob_owner.owner) = (%(content)s, bot.owner)
 WHERE lease.client = %(client)s
   AND job.inputs @> jsonb_build_array(jsonb_build_object('sha256', %(hash)s::text))
 LIMIT 1

-- name: leased_manifests
-- What the BOTs run of which this client holds jobs, where the hash occurs: as an input, perhaps.
-- Their owners have sent the file.  A replica of an earlier version of the manifest runs to its end
-- with that one's inputs.
WITH held AS MATERIALIZED (
    SELECT DISTINCT bot FROM lease JOIN bot ON bot.id = lease.bot
      JOIN blob_owner ON (blob_owner.sha256, blob_owner.owner) = (%(content)s, bot.owner)
     WHERE lease.client = %(client)s
)
SELECT manifest FROM bot WHERE id IN (SELECT bot FROM held) AND position(%(hash)s IN manifest) > 0
 UNION ALL
SELECT manifest FROM bot_manifest
 WHERE bot IN (SELECT bot FROM held) AND position(%(hash)s IN manifest) > 0

-- name: hold_losers
-- BOTs of which this client holds jobs, and that need a file which the server has lost.  One whose
-- owner has not sent it has sources for it.
WITH held AS MATERIALIZED (
    SELECT DISTINCT bot FROM lease JOIN bot ON bot.id = lease.bot
      JOIN blob_owner ON (blob_owner.sha256, blob_owner.owner) = (%(content)s, bot.owner)
     WHERE lease.client = %(client)s
), losers AS (
    SELECT id FROM bot WHERE id IN (SELECT bot FROM held) AND position(%(hash)s IN manifest) > 0
     UNION
    SELECT bot FROM lease JOIN job USING (bot, seq)
     WHERE lease.client = %(client)s AND bot IN (SELECT bot FROM held)
       AND job.inputs @> jsonb_build_array(jsonb_build_object('sha256', %(hash)s::text))
)
UPDATE bot SET held = coalesce(held, %(why)s), policy_version = policy_version + 1
 WHERE id IN (SELECT id FROM losers) AND state = 'running' RETURNING id

-- name: leases
SELECT bot, seq, replica FROM lease WHERE client = %(client)s AND bot = ANY(%(bots)s)
