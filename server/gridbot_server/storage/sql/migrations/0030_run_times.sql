-- How long a BOT's replicas run, for pilots whose time is limited: seconds of the last hundred, the
-- latest first, and their 95th percentile.  One that its pilot's end cut off stands there with a
-- tenth and thirty seconds more than it ran: it needs more than a pilot of that kind has.
ALTER TABLE bot
    ADD COLUMN recent_runs     real[] NOT NULL DEFAULT '{}',
    ADD COLUMN usual_seconds   real,
    ADD COLUMN cut_off         int NOT NULL DEFAULT 0,   -- replicas that pilots' ends cut off
    ADD COLUMN cut_off_seconds real,                     -- what the longest of them had run
    ADD COLUMN cut_off_grid    text;                     -- where the last of them ran

CREATE FUNCTION latest_runs(fresh real[], earlier real[]) RETURNS real[] LANGUAGE sql IMMUTABLE AS $$
    SELECT (fresh || earlier)[:100]
$$;

CREATE FUNCTION usual_run(runs real[]) RETURNS real LANGUAGE sql IMMUTABLE AS $$
    SELECT percentile_disc(0.95) WITHIN GROUP (ORDER BY seconds) FROM unnest(runs) AS seconds
$$;

-- What is known of the time that a replica needs; one that was cut off may have been an accident.
CREATE FUNCTION known_run(ended bigint, cut_off int, usual real) RETURNS float8
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN ended > 0 OR cut_off > 1 THEN usual::float8 END
$$;
