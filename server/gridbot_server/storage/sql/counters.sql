-- name: count
INSERT INTO bot_stat (bot, writer, name, value)
SELECT bot, %(writer)s, name, value
  FROM json_to_recordset(%(counters)s) AS x (bot bigint, name text, value bigint)
ON CONFLICT (bot, writer, name) DO UPDATE SET value = bot_stat.value + excluded.value

-- name: count_and_note
-- Both in one statement: each one has its price in every host request.
WITH noted AS (
    INSERT INTO happening (what) VALUES (%(happened)s)
)
INSERT INTO bot_stat (bot, writer, name, value)
SELECT bot, %(writer)s, name, value
  FROM json_to_recordset(%(counters)s) AS x (bot bigint, name text, value bigint)
ON CONFLICT (bot, writer, name) DO UPDATE SET value = bot_stat.value + excluded.value
