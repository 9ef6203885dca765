-- What the cycles do, one way for all, and how late they are.

-- Since when a job waits for its decision.
ALTER TABLE pending ADD COLUMN since timestamptz NOT NULL DEFAULT now();

-- Replicas whose leases were just deleted end without an answer; gives the BOT of each.  A job that
-- lost a replica so is decided anew, unless it is the BOT or the job itself that is over.
CREATE FUNCTION end_unanswered(gone lease[], ending text, because text)
RETURNS SETOF bigint LANGUAGE sql AS $$
    INSERT INTO pending (bot, seq)
    SELECT bot, seq FROM unnest(gone) WHERE ending <> 'cancelled';
    INSERT INTO ended (bot, seq, replica, round, why, how, reason, client, host, owner, sent_at)
    SELECT bot, seq, replica, round, why, ending, because, client, host, owner, sent_at
      FROM unnest(gone)
    RETURNING bot
$$;
