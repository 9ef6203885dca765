-- Reuse: a job whose very derivation has a confirmed outcome of the same owner is not run again.

ALTER TABLE bot
    ADD COLUMN derivation bytea,                    -- what its jobs run, but for arguments and own files
    ADD COLUMN reuse      boolean NOT NULL DEFAULT false,
    ADD COLUMN reused     bigint NOT NULL DEFAULT 0; -- jobs that have the outcome of another
CREATE INDEX bot_derivation ON bot (derivation) WHERE derivation IS NOT NULL;

-- Outcomes by the keys of their jobs.  They are entered when a submission asks for that derivation
-- first, so nobody else pays for them; `derivation_seen` says up to which outcome of a BOT.
CREATE TABLE derived (
    key bytea NOT NULL,
    bot bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (key, bot, seq)
);
CREATE INDEX derived_job ON derived (bot, seq);
CREATE TABLE derivation_seen (
    bot  bigint PRIMARY KEY,
    upto bigint NOT NULL
);

-- Jobs that have the outcome of another, which may be gone by now.
CREATE TABLE reused (
    bot      bigint NOT NULL,
    seq      bigint NOT NULL,
    from_bot bigint NOT NULL,
    from_seq bigint NOT NULL,
    PRIMARY KEY (bot, seq)
);
CREATE INDEX reused_source ON reused (from_bot, from_seq);

-- Jobs whose outcomes their owner wants no more: nothing is reused from them.
CREATE TABLE invalidated (
    bot bigint NOT NULL,
    seq bigint NOT NULL,
    at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (bot, seq)
);

-- The key of a job: whether a value came as a number or as its text, and in which order files were
-- named, says nothing of what is run.
CREATE FUNCTION derivation_key(derivation bytea, args jsonb, inputs jsonb) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT sha256(derivation || convert_to(
        (SELECT coalesce(jsonb_object_agg(name, value), '{}')::text
           FROM jsonb_each_text(args) AS x (name, value))
        || coalesce((SELECT jsonb_agg(file ORDER BY file->>'name')::text
                       FROM jsonb_array_elements(inputs) AS file), ''), 'UTF8'))
$$;
