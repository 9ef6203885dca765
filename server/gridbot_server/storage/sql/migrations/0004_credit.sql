-- Credit: what valid replicas earn for hosts, owners and teams.  credit/README.md says how.
-- Tables of their own: the rows that host requests read and lock stay as small as they are.

-- What a job earned, the same for each of its valid replicas, also for those that answer late.
ALTER TABLE outcome ADD COLUMN credit double precision NOT NULL DEFAULT 0;

-- What the jobs of a BOT are worth, learnt from the times that valid replicas took.
CREATE TABLE appraisal (
    bot           bigint PRIMARY KEY REFERENCES bot,
    cpus          int NOT NULL,                -- that a replica occupies
    limit_seconds double precision NOT NULL,   -- that a replica may run
    seconds       double precision NOT NULL,   -- that a replica takes the typical host
    votes         bigint NOT NULL              -- that this was learnt from
) WITH (fillfactor = 50);

-- `average` is credit a day, decaying since `averaged_at`.
CREATE TABLE host_credit (
    host        bigint PRIMARY KEY REFERENCES host,
    pace        double precision NOT NULL,     -- its time for a replica, in the typical host's
    total       double precision NOT NULL,
    average     double precision NOT NULL,
    averaged_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE TABLE team (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    founder     int NOT NULL UNIQUE REFERENCES owner,
    created_at  timestamptz NOT NULL DEFAULT now(),
    total       double precision NOT NULL DEFAULT 0,
    average     double precision NOT NULL DEFAULT 0,
    averaged_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- An owner as somebody who gives computing time.
CREATE TABLE volunteer (
    owner       int PRIMARY KEY REFERENCES owner,
    team        int REFERENCES team,
    is_public   boolean NOT NULL DEFAULT false,  -- agreed to be named in the statistics export
    total       double precision NOT NULL DEFAULT 0,
    average     double precision NOT NULL DEFAULT 0,
    averaged_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE INDEX volunteer_team ON volunteer (team) WHERE team IS NOT NULL;  -- a team's members

-- A recent average as of now, after `earned` more; BOINC's half life of a week.  PostgreSQL
-- refuses what underflows: after a year nothing is left anyway.
CREATE FUNCTION average_credit(average float8, since timestamptz, earned float8 DEFAULT 0)
RETURNS float8 LANGUAGE sql STABLE AS $$
    SELECT average * power(0.5::float8,
                           least(52, greatest(0, extract(epoch FROM now() - since)::float8 / 604800)))
         + earned * ln(2::float8) / 7
$$;
