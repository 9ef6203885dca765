-- name: count
WITH counted AS (
    INSERT INTO bot_stat (bot, writer, name, value)
    SELECT bot, %(writer)s, name, value
      FROM json_to_recordset(%(counters)s) AS x (bot bigint, name text, value bigint)
    ON CONFLICT (bot, writer, name) DO UPDATE SET value = bot_stat.value + excluded.value
)
INSERT INTO bot_history AS h (bot, step, at, grid, writer, added, sent, succeeded, errors, expired,
       relinquished, cancelled, late, void, done, failed, retried, recalled, cpu_seconds)
SELECT bot, 60, date_trunc('minute', now()), grid, %(writer)s,
       coalesce(added, 0), coalesce(sent, 0), coalesce(succeeded, 0), coalesce(errors, 0),
       coalesce(expired, 0), coalesce(relinquished, 0), coalesce(cancelled, 0), coalesce(late, 0),
       coalesce(void, 0), coalesce(done, 0), coalesce(failed, 0), coalesce(retried, 0),
       coalesce(recalled, 0), coalesce(cpu_seconds, 0)
  FROM json_to_recordset(%(happened)s) AS x (
       bot bigint, grid text, added bigint, sent bigint, succeeded bigint, errors bigint,
       expired bigint, relinquished bigint, cancelled bigint, late bigint, void bigint,
       done bigint, failed bigint, retried bigint, recalled bigint, cpu_seconds float8)
ON CONFLICT (bot, step, at, grid, writer) DO UPDATE
   SET added = h.added + excluded.added, sent = h.sent + excluded.sent,
       succeeded = h.succeeded + excluded.succeeded, errors = h.errors + excluded.errors,
       expired = h.expired + excluded.expired,
       relinquished = h.relinquished + excluded.relinquished,
       cancelled = h.cancelled + excluded.cancelled, late = h.late + excluded.late,
       void = h.void + excluded.void, done = h.done + excluded.done,
       failed = h.failed + excluded.failed, retried = h.retried + excluded.retried,
       recalled = h.recalled + excluded.recalled,
       cpu_seconds = h.cpu_seconds + excluded.cpu_seconds

-- name: count_failures
INSERT INTO failure_history AS h (bot, step, at, grid, writer, reason, errors)
SELECT bot, 60, date_trunc('minute', now()), grid, %(writer)s, reason, errors
  FROM json_to_recordset(%(failures)s) AS x (bot bigint, grid text, reason text, errors bigint)
ON CONFLICT (bot, step, at, grid, writer, reason) DO UPDATE SET errors = h.errors + excluded.errors
