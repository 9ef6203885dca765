-- name: show
SELECT preferences_version AS version, preferences AS venues, resource_shares AS shares
  FROM owner WHERE id = %(owner)s

-- name: lock
SELECT preferences AS venues, resource_shares AS shares FROM owner WHERE id = %(owner)s FOR NO KEY UPDATE

-- name: save
UPDATE owner
   SET preferences = %(venues)s::jsonb, resource_shares = coalesce(%(shares)s::jsonb, resource_shares),
       preferences_version = greatest(
           preferences_version + 1, (extract(epoch FROM clock_timestamp()) * 1e6)::bigint)
 WHERE id = %(owner)s
RETURNING preferences_version AS version, preferences AS venues, resource_shares AS shares

-- name: of_owners
SELECT id, preferences FROM owner WHERE id = ANY(%(owners)s::int[])
