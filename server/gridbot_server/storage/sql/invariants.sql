-- What must be true of the database whatever was killed: each query returns rows that break it.
-- They hold at any instant of a busy server, as long as one snapshot sees them all; those marked
-- `idle` hold once the daemons have caught up and no host is silent beyond its deadline.
-- Run by `gridbot server check`, or by psql with this file. A column's name is its own within a query.

BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: a_replica_is_in_one_place
SELECT bot, seq, replica, array_agg(place) AS places
  FROM (SELECT bot, seq, replica, 'lease' AS place FROM lease
         UNION ALL SELECT bot, seq, replica, 'ended' FROM ended
         UNION ALL SELECT bot, seq, replica, 'requeue' FROM requeue) AS replicas
 GROUP BY bot, seq, replica HAVING count(*) > 1;

-- name: a_replica_belongs_to_a_job_of_a_started_bot
SELECT place, x.bot, x.seq
  FROM (SELECT 'lease' AS place, bot, seq FROM lease
         UNION ALL SELECT 'ended', bot, seq FROM ended
         UNION ALL SELECT 'requeue', bot, seq FROM requeue
         UNION ALL SELECT 'pending', bot, seq FROM pending
         UNION ALL SELECT 'outcome', bot, seq FROM outcome) AS x
  LEFT JOIN job ON job.bot = x.bot AND job.seq = x.seq
  LEFT JOIN bot ON bot.id = x.bot
 WHERE job.bot IS NULL OR bot.state = 'open';

-- name: a_bot_has_the_jobs_it_says
SELECT bot.id, bot.size, count(job.seq) AS jobs, min(job.seq) AS first, max(job.seq) AS last
  FROM bot LEFT JOIN job ON job.bot = bot.id
 GROUP BY bot.id
HAVING count(job.seq) <> bot.size OR min(job.seq) < 0 OR max(job.seq) >= bot.size;

-- name: copies_follow_a_first_replica
-- The first copy of a job is a row of lease or ended for ever once it was sent.
SELECT DISTINCT x.bot, x.seq
  FROM (SELECT bot, seq FROM lease UNION SELECT bot, seq FROM ended
         UNION SELECT bot, seq FROM requeue UNION SELECT bot, seq FROM outcome) AS x
 WHERE NOT EXISTS (SELECT FROM lease l WHERE (l.bot, l.seq, l.replica) = (x.bot, x.seq, 1))
   AND NOT EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq, e.replica) = (x.bot, x.seq, 1));

-- name: something_moves_every_unfinished_job
-- A job is unsent (not fed yet, or in a feeder's range), running, queued, awaiting a decision or the
-- comparison of its answers, or finished.  One that is none of these would never end.
SELECT job.bot, job.seq
  FROM bot JOIN job ON job.bot = bot.id
 WHERE bot.state = 'running' AND job.seq < bot.fed
   AND NOT EXISTS (SELECT FROM outcome o WHERE (o.bot, o.seq) = (job.bot, job.seq))
   AND NOT EXISTS (SELECT FROM lease l WHERE (l.bot, l.seq) = (job.bot, job.seq))
   AND NOT EXISTS (SELECT FROM requeue q WHERE (q.bot, q.seq) = (job.bot, job.seq))
   AND NOT EXISTS (SELECT FROM pending p WHERE (p.bot, p.seq) = (job.bot, job.seq))
   AND NOT EXISTS (SELECT FROM dead_letter d WHERE (d.bot, d.seq) = (job.bot, job.seq))
   AND NOT EXISTS (SELECT FROM comparison c
                    WHERE (c.bot, c.seq) = (job.bot, job.seq) AND c.verdict IS NULL)
   AND NOT EXISTS (SELECT FROM provisional p WHERE (p.bot, p.seq) = (job.bot, job.seq))
   AND (EXISTS (SELECT FROM ended e WHERE (e.bot, e.seq) = (job.bot, job.seq))
        OR NOT EXISTS (SELECT FROM feed_range r
                        WHERE r.bot = job.bot AND job.seq >= r.lo AND job.seq < r.hi));

-- name: no_job_is_set_aside
-- An error of the server's own kept them from being decided; each start of the server tries again.
SELECT bot, seq, error, at FROM dead_letter;

-- name: only_fed_jobs_were_sent
SELECT x.bot, x.seq, bot.fed
  FROM (SELECT bot, seq FROM lease
         UNION ALL SELECT bot, seq FROM ended WHERE client <> 0) AS x  -- 0: cancelled before
  JOIN bot ON bot.id = x.bot
 WHERE x.seq >= bot.fed;

-- name: feed_ranges_lie_within_what_was_fed
SELECT r.bot, r.lo, r.hi, bot.fed, bot.size
  FROM feed_range r JOIN bot ON bot.id = r.bot
 WHERE r.lo < 0 OR r.hi > bot.fed OR bot.fed > bot.size;

-- name: feed_ranges_do_not_overlap
SELECT one.bot, one.lo, one.hi, other.lo AS other_lo, other.hi AS other_hi
  FROM feed_range one JOIN feed_range other
    ON other.bot = one.bot AND other.lo > one.lo AND other.lo < one.hi;

-- name: a_finished_job_has_nothing_in_progress
SELECT o.bot, o.seq, x.place, x.replica
  FROM outcome o
  JOIN (SELECT 'lease' AS place, bot, seq, replica FROM lease
         UNION ALL SELECT 'requeue', bot, seq, replica FROM requeue) AS x
    ON (x.bot, x.seq) = (o.bot, o.seq);

-- name: a_canonical_replica_is_a_valid_success
SELECT o.bot, o.seq, o.canonical, e.how, e.valid
  FROM outcome o
  LEFT JOIN ended e ON (e.bot, e.seq, e.replica) = (o.bot, o.seq, o.canonical)
 WHERE o.canonical IS NOT NULL AND (e.how = 'success' AND e.valid) IS NOT TRUE;

-- name: a_canonical_replica_has_its_quorum
-- Agreeing answers from different hosts, as many as the BOT asks for; one, if its owner knew it.
SELECT o.bot, o.seq, bot.quorum, count(DISTINCT e.host) AS hosts
  FROM outcome o JOIN bot ON bot.id = o.bot
  LEFT JOIN ended e ON (e.bot, e.seq) = (o.bot, o.seq) AND e.how = 'success' AND e.valid
 WHERE o.canonical IS NOT NULL
   AND NOT EXISTS (SELECT FROM known_answer k WHERE (k.bot, k.seq) = (o.bot, o.seq))
   AND NOT EXISTS (SELECT FROM reused r WHERE (r.bot, r.seq) = (o.bot, o.seq))
 GROUP BY o.bot, o.seq, bot.quorum HAVING count(DISTINCT e.host) < bot.quorum;

-- name: a_valid_replica_has_an_outcome
SELECT e.bot, e.seq, e.replica
  FROM ended e
 WHERE e.valid AND NOT EXISTS (
       SELECT FROM outcome o WHERE (o.bot, o.seq) = (e.bot, e.seq) AND o.canonical IS NOT NULL);

-- name: outcomes_are_numbered_without_gaps
-- A retry takes outcomes away for good, so after one there may be gaps.  What a deleted BOT counted
-- is not counted down while it goes.
SELECT bot.id, bot.outcomes, bot.round, count(o.n) AS rows, min(o.n) AS least, max(o.n) AS most
  FROM bot LEFT JOIN outcome o ON o.bot = bot.id
 WHERE bot.deleted_at IS NULL
 GROUP BY bot.id
HAVING min(o.n) < 1 OR max(o.n) > bot.outcomes
    OR (bot.round = 0 AND count(o.n) <> bot.outcomes);

-- name: outcomes_of_groups_are_numbered_once
SELECT o.bot, o.seq, bot.bot_group
  FROM outcome o JOIN bot ON bot.id = o.bot
 WHERE bot.bot_group IS NOT NULL AND bot.deleted_at IS NULL
   AND 1 <> (SELECT count(*) FROM group_run run
              WHERE run.bot_group = bot.bot_group AND run.bot = o.bot AND o.n > run.after
                AND o.n <= run.after + run.last - run.first + 1);

-- name: runs_of_groups_follow_each_other
SELECT run.bot_group, run.first, run.before, g.outcomes
  FROM (SELECT *, lag(last, 1, 0::bigint) OVER (PARTITION BY bot_group ORDER BY last) AS before
          FROM group_run) AS run
  JOIN bot_group g ON g.id = run.bot_group
 WHERE run.first <= run.before OR run.last < run.first OR run.last > g.outcomes;

-- name: done_and_failed_count_the_outcomes
SELECT bot.id, bot.done, bot.failed, count(o.canonical) AS good, count(o.reason) AS bad
  FROM bot LEFT JOIN outcome o ON o.bot = bot.id
 WHERE bot.deleted_at IS NULL
 GROUP BY bot.id HAVING count(o.canonical) <> bot.done OR count(o.reason) <> bot.failed;

-- name: bots_count_their_cancelled_jobs
SELECT bot.id, bot.jobs_cancelled, count(o.bot) AS jobs
  FROM bot LEFT JOIN outcome o ON o.bot = bot.id AND o.reason = 'cancelled'
 WHERE bot.deleted_at IS NULL
 GROUP BY bot.id HAVING count(o.bot) <> bot.jobs_cancelled;

-- name: bots_count_what_they_reuse
SELECT bot.id, bot.reused, count(r.bot) AS jobs
  FROM bot LEFT JOIN reused r ON r.bot = bot.id
 WHERE bot.deleted_at IS NULL
 GROUP BY bot.id HAVING count(r.bot) <> bot.reused;

-- name: what_is_reused_was_never_sent
SELECT r.bot, r.seq, o.canonical, e.client
  FROM reused r LEFT JOIN outcome o ON (o.bot, o.seq) = (r.bot, r.seq)
  LEFT JOIN ended e ON (e.bot, e.seq, e.replica) = (o.bot, o.seq, o.canonical)
 WHERE (e.client = 0 AND e.how = 'success') IS NOT TRUE;

-- name: a_bot_is_done_when_all_its_jobs_are
SELECT id, state, size, done, failed, ended_at FROM bot
 WHERE (state = 'running' AND done + failed >= size AND NOT growing)
    OR (state = 'done' AND done + failed <> size)
    OR (ended_at IS NOT NULL) <> (state IN ('done', 'cancelled'));

-- name: only_a_running_bot_grows
SELECT id, state, grown_at, closed FROM bot
 WHERE growing AND (state <> 'running' OR grown_at IS NULL OR closed IS NOT NULL);

-- name: a_growing_bot_has_no_tail
SELECT id, tail FROM bot WHERE growing AND tail;

-- name: parts_cover_the_job_table
-- Each job that was signed in parts is in one of them: a client can check it.
SELECT p.bot, bot.size, p.jobs, p.first, p.after_last
  FROM (SELECT bot, sum(size) AS jobs, min(first) AS first, max(first + size) AS after_last,
               bool_or(length(leaves) <> 32 * size) AS is_torn
          FROM job_part GROUP BY bot) AS p
  JOIN bot ON bot.id = p.bot
 WHERE bot.deleted_at IS NULL
   AND (p.jobs <> bot.size OR p.first <> 0 OR p.after_last <> bot.size OR p.is_torn);

-- name: turnarounds_count_the_valid_replicas
SELECT bot.id, bot.turnaround_n, count(e.valid) AS valid
  FROM bot LEFT JOIN ended e ON e.bot = bot.id AND e.valid AND e.client <> 0
 WHERE bot.deleted_at IS NULL
 GROUP BY bot.id HAVING count(e.valid) <> bot.turnaround_n;

-- name: hosts_have_the_credit_of_their_valid_replicas
-- Each replica once, also of BOTs that were deleted; sums of many small amounts, so not to the last
-- digit.
SELECT x.host, sum(x.earned) AS earned, sum(x.total) AS total
  FROM (SELECT e.host, o.credit AS earned, 0 AS total
          FROM ended e JOIN outcome o ON (o.bot, o.seq) = (e.bot, e.seq) WHERE e.valid
         UNION ALL SELECT host, of_deleted, total FROM host_credit) AS x
 GROUP BY x.host HAVING abs(sum(x.earned) - sum(x.total)) > 1e-6 * (1 + sum(x.total));

-- name: owners_have_the_credit_of_their_hosts
SELECT x.owner, sum(x.earned) AS earned, sum(x.total) AS total
  FROM (SELECT h.owner, c.total AS earned, 0 AS total
          FROM host_credit c JOIN host h ON h.id = c.host
         UNION ALL SELECT owner, 0, total FROM volunteer) AS x
 GROUP BY x.owner HAVING abs(sum(x.earned) - sum(x.total)) > 1e-6 * (1 + sum(x.total));

-- name: counters_tell_the_replicas
SELECT bot.id, s.first, r.first AS firsts, s.sent, r.leases + r.ended AS replicas,
       s.sent - s.back AS running, r.leases, s.queued, r.queued AS copies
  FROM bot
 CROSS JOIN LATERAL bot_count(bot.id) AS s
 CROSS JOIN LATERAL (
       SELECT (SELECT count(*) FROM lease WHERE lease.bot = bot.id) AS leases,
              (SELECT count(*) FROM ended WHERE ended.bot = bot.id) AS ended,
              (SELECT count(*) FROM requeue WHERE requeue.bot = bot.id) AS queued,
              (SELECT count(*) FROM lease WHERE lease.bot = bot.id AND why = 'first')
              + (SELECT count(*) FROM ended WHERE ended.bot = bot.id AND why = 'first') AS first
       ) AS r
 WHERE bot.deleted_at IS NULL
   AND (s.first, s.sent, s.sent - s.back, s.queued)
       <> (r.first, r.leases + r.ended, r.leases, r.queued);

-- name: a_replica_names_its_client_and_host
-- But a first copy that was cancelled before it was sent.
SELECT x.bot, x.seq, x.replica, x.client, x.host, x.owner
  FROM (SELECT 'lease' AS place, bot, seq, replica, client, host, owner FROM lease
         UNION ALL SELECT 'ended', bot, seq, replica, client, host, owner FROM ended) AS x
  LEFT JOIN client c ON c.id = x.client
 WHERE (c.host = x.host AND c.owner = x.owner) IS NOT TRUE
   AND NOT (x.place = 'ended' AND (x.client, x.host, x.replica) = (0, 0, 1));

-- name: a_lease_has_a_time_to_run
SELECT bot, seq, replica, sent_at, deadline FROM lease WHERE deadline < sent_at;

-- name: what_counts_against_a_width_is_not_judged
SELECT u.bot, u.seq, u.replica, e.how, e.valid
  FROM unjudged u JOIN ended e ON (e.bot, e.seq, e.replica) = (u.bot, u.seq, u.replica)
 WHERE e.valid IS NOT NULL OR e.how = 'cancelled';

-- name: a_provisional_outcome_is_not_final
SELECT p.bot, p.seq, p.replica, e.how, e.valid, o.n
  FROM provisional p
  LEFT JOIN ended e ON (e.bot, e.seq, e.replica) = (p.bot, p.seq, p.replica)
  LEFT JOIN outcome o ON (o.bot, o.seq) = (p.bot, p.seq)
 WHERE o.n IS NOT NULL OR (e.how = 'success' AND e.valid IS NULL) IS NOT TRUE;

-- name: a_provisional_outcome_has_one_answer
SELECT bot, seq, count(*) FILTER (WHERE is_canonical) AS answers
  FROM provisional GROUP BY bot, seq HAVING count(*) FILTER (WHERE is_canonical) <> 1;

-- name: bots_count_what_is_provisional
SELECT bot.id, bot.provisional, count(DISTINCT p.seq) AS jobs
  FROM bot LEFT JOIN provisional p ON p.bot = bot.id
 WHERE bot.deleted_at IS NULL
 GROUP BY bot.id HAVING count(DISTINCT p.seq) <> bot.provisional;

-- name: events_end_with_the_outcome
-- Once a job was told to be confirmed, nothing else was told of it since.
SELECT v.bot, v.seq, v.n, v.kind, later.kind AS later
  FROM result_event v JOIN result_event later
    ON later.bot = v.bot AND later.seq = v.seq AND later.n > v.n
 WHERE v.kind = 'confirmed'
    OR v.kind = later.kind AND NOT EXISTS (
       SELECT FROM result_event b WHERE b.bot = v.bot AND b.seq = v.seq
          AND b.n > v.n AND b.n < later.n);

-- name: who_was_caught_has_no_trust
SELECT who, program, streak, caught, good, wrong FROM track_record
 WHERE streak > good OR caught > 0 AND wrong = 0;

-- name: a_client_holds_one_replica_of_a_job
-- Two clients of a host may have one each, if the first was silent when the second got it.
SELECT bot, seq, client, array_agg(replica) AS replicas
  FROM lease GROUP BY bot, seq, client HAVING count(*) > 1;

-- name: attempts_are_bounded
-- Errors beyond the last attempt come only from replicas that were in progress at that time.
-- A limit that was lowered while the BOT ran shows here too.
SELECT e.bot, e.seq, e.round, count(*) AS errors, bot.max_attempts
  FROM ended e JOIN bot ON bot.id = e.bot
 WHERE e.how IN ('error', 'lost')
 GROUP BY e.bot, e.seq, e.round, bot.id
HAVING count(*) >= bot.max_attempts + bot.max_replicas + bot.quorum;

-- name: replicas_are_bounded
-- Per round: errors, expiries (ten times as many are borne), answers, and those in progress.
SELECT x.bot, x.seq, count(*) AS replicas, bot.round
  FROM (SELECT bot, seq FROM lease UNION ALL SELECT bot, seq FROM ended
         UNION ALL SELECT bot, seq FROM requeue) AS x
  JOIN bot ON bot.id = x.bot AND bot.together = 1  -- gangs may gather in vain however often
 GROUP BY x.bot, x.seq, bot.id
HAVING count(*) > (bot.round + 1)
                * (12 * bot.max_attempts + 2 * (bot.max_replicas + bot.quorum));

-- name: replicas_in_progress_are_bounded
SELECT x.bot, x.seq, count(*) AS replicas, bot.max_replicas
  FROM (SELECT bot, seq FROM lease UNION ALL SELECT bot, seq FROM requeue) AS x
  JOIN bot ON bot.id = x.bot
 GROUP BY x.bot, x.seq, bot.id
HAVING count(*) > greatest(bot.max_replicas, bot.quorum);

-- name: a_gang_that_runs_is_whole
SELECT g.bot, g.number, g.size, count(a.seq) AS arrived
  FROM gang g LEFT JOIN arrival a ON (a.bot, a.number) = (g.bot, g.number)
 WHERE g.gather_until IS NULL
 GROUP BY g.bot, g.number HAVING count(a.seq) <> g.size;

-- name: a_leased_member_has_its_gang
SELECT l.bot, l.seq, l.replica
  FROM lease l JOIN bot ON bot.id = l.bot AND bot.together > 1 AND bot.state = 'running'
 WHERE l.client <> 0 AND NOT EXISTS (
       SELECT FROM gang g WHERE (g.bot, g.number) = (l.bot, l.seq / bot.together));

-- name: a_gang_has_all_outcomes_or_none
SELECT bot.id, o.seq / bot.together AS number, count(*) AS outcomes
  FROM bot JOIN outcome o ON o.bot = bot.id
 WHERE bot.together > 1 AND bot.deleted_at IS NULL
 GROUP BY bot.id, o.seq / bot.together HAVING count(*) <> bot.together;

-- name: an_output_belongs_to_a_sent_replica
SELECT o.bot, o.seq, o.replica, o.name
  FROM output o
 WHERE NOT EXISTS (SELECT FROM lease l
                    WHERE (l.bot, l.seq, l.replica) = (o.bot, o.seq, o.replica))
   AND NOT EXISTS (SELECT FROM ended e
                    WHERE (e.bot, e.seq, e.replica) = (o.bot, o.seq, o.replica));

-- name: nothing_outlives_its_bot
SELECT place, bot
  FROM (SELECT 'job' AS place, bot FROM job
         UNION ALL SELECT 'output', bot FROM output
         UNION ALL SELECT 'dead_letter', bot FROM dead_letter
         UNION ALL SELECT 'provisional', bot FROM provisional
         UNION ALL SELECT 'result_event', bot FROM result_event
         UNION ALL SELECT 'bot_stat', bot FROM bot_stat
         UNION ALL SELECT 'comparison', bot FROM comparison
         UNION ALL SELECT 'job_kind', bot FROM job_kind
         UNION ALL SELECT 'known_answer', bot FROM known_answer
         UNION ALL SELECT 'known_output', bot FROM known_output
         UNION ALL SELECT 'gang', bot FROM gang
         UNION ALL SELECT 'gang_rest', bot FROM gang_rest
         UNION ALL SELECT 'boinc_upload', bot FROM boinc_upload
         UNION ALL SELECT 'boinc_trickle', bot FROM boinc_trickle) AS x
 WHERE NOT EXISTS (SELECT FROM bot WHERE bot.id = x.bot);

-- name: an_output_has_its_content
SELECT o.bot, o.seq, o.replica, o.name, o.size
  FROM output o JOIN bot ON bot.id = o.bot LEFT JOIN blob b ON b.sha256 = o.sha256
 WHERE CASE WHEN o.content IS NULL THEN bot.owner_storage IS NULL
                                        AND (b.size = o.size) IS NOT TRUE
            ELSE length(o.content) <> o.size OR sha256(o.content) <> o.sha256 END;

-- name: an_output_belongs_to_its_bots_owner
SELECT o.bot, o.seq, o.replica, o.name
  FROM output o JOIN bot ON bot.id = o.bot
 WHERE o.content IS NULL AND bot.owner_storage IS NULL
   AND NOT EXISTS (SELECT FROM blob_owner b
                    WHERE (b.sha256, b.owner) = (o.sha256, bot.owner));

-- name: what_counts_as_published_is_in_the_storage_or_lost
SELECT o.bot, o.seq, o.replica, o.name
  FROM bot JOIN outcome ON outcome.bot = bot.id AND outcome.n <= bot.published
  JOIN output o ON (o.bot, o.seq, o.replica) = (bot.id, outcome.seq, outcome.canonical)
 WHERE bot.owner_storage IS NOT NULL AND o.published_at IS NULL AND o.lost_at IS NULL;

-- name: a_claimed_copy_has_a_claimant
SELECT bot, seq, replica, machine, claimed_until FROM requeue
 WHERE (machine IS NULL) <> (claimed_until IS NULL);

-- name: unfinished_jobs_are_within_the_quota
-- A quota that was lowered since shows here too.
SELECT owner.name, owner.max_jobs, sum(bot.size) AS jobs
  FROM bot JOIN owner ON owner.id = bot.owner
 WHERE bot.state IN ('open', 'running')
 GROUP BY owner.id HAVING sum(bot.size) > owner.max_jobs;

-- name: the_last_version_of_a_manifest_runs
SELECT bot.id, bot.manifest_version, last.version
  FROM bot LEFT JOIN LATERAL (
       SELECT version, first_round, manifest FROM bot_manifest
        WHERE bot_manifest.bot = bot.id ORDER BY version DESC LIMIT 1) AS last ON true
 WHERE (bot.manifest_version > 1 OR last.version IS NOT NULL)
   AND (bot.manifest_version, bot.first_round, bot.manifest)
       IS DISTINCT FROM (last.version, last.first_round, last.manifest);

-- name: the_history_equals_the_tables
-- Of BOTs whose history has all their jobs, while it is there by minutes.
WITH noted AS (
    SELECT bot, added, done, failed, retried, sent, succeeded, void, errors
      FROM bot_history WHERE step = 60
     UNION ALL
    SELECT bot, coalesce(added, 0), coalesce(done, 0), coalesce(failed, 0), coalesce(retried, 0),
           coalesce(sent, 0), coalesce(succeeded, 0), coalesce(void, 0), coalesce(errors, 0)
      FROM happening CROSS JOIN json_to_recordset(what) AS x (
           bot bigint, added bigint, done bigint, failed bigint, retried bigint, sent bigint,
           succeeded bigint, void bigint, errors bigint)
     WHERE bot IS NOT NULL
), whole AS (
    SELECT bot.id, bot.done, bot.failed,
           sum(h.done) AS h_done, sum(h.failed - h.retried) AS h_failed, sum(h.sent) AS h_sent,
           sum(h.succeeded - h.void) AS h_succeeded, sum(h.errors) AS h_errors
      FROM bot JOIN noted h ON h.bot = bot.id
     WHERE bot.deleted_at IS NULL AND bot.created_at > now() - interval '6 days'
     GROUP BY bot.id HAVING sum(h.added) = bot.size
), counted AS (
    SELECT whole.*,
           (SELECT count(*) FROM lease l WHERE l.bot = whole.id)
               + (SELECT count(*) FROM ended e WHERE e.bot = whole.id AND e.client <> 0) AS sent,
           (SELECT count(*) FROM ended e
             WHERE e.bot = whole.id AND e.how = 'success' AND e.client <> 0) AS succeeded,
           (SELECT count(*) FROM ended e WHERE e.bot = whole.id AND e.how = 'error') AS errors
      FROM whole
)
SELECT * FROM counted
 WHERE (done, failed, sent, succeeded, errors)
       IS DISTINCT FROM (h_done, h_failed, h_sent, h_succeeded, h_errors);

-- name: no_decision_is_due
-- idle
SELECT DISTINCT pending.bot, pending.seq FROM pending;

-- name: no_comparison_is_due
-- idle
SELECT c.bot, c.seq, c.asked_at
  FROM comparison c JOIN bot ON bot.id = c.bot AND bot.state IN ('running', 'done')
 WHERE c.verdict IS NULL;

-- name: every_replica_of_a_finished_job_is_judged
-- idle
SELECT e.bot, e.seq, e.replica, e.how
  FROM ended e JOIN outcome o ON (o.bot, o.seq) = (e.bot, e.seq)
  JOIN bot ON bot.id = e.bot AND bot.state IN ('running', 'done')
 WHERE e.valid IS NULL AND e.how <> 'cancelled' AND o.reason IS DISTINCT FROM 'cancelled';

-- name: a_cancelled_bot_has_nothing_in_progress
-- idle
SELECT bot.id, x.place, x.seq, x.replica
  FROM bot
  JOIN (SELECT 'lease' AS place, bot, seq, replica FROM lease
         UNION ALL SELECT 'requeue', bot, seq, replica FROM requeue) AS x ON x.bot = bot.id
 WHERE bot.state = 'cancelled';

-- name: an_ended_bot_has_no_feed_range
-- idle
SELECT r.bot, r.lo, r.hi FROM feed_range r JOIN bot ON bot.id = r.bot
 WHERE bot.state IN ('done', 'cancelled');

-- name: no_lease_outlives_its_deadline
-- idle
SELECT bot, seq, replica, deadline FROM lease
 WHERE deadline < now() - interval '30 s';
