-- Buckets of owners, to which outputs of their BOTs go.
CREATE TABLE owner_storage (
    id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner      int NOT NULL REFERENCES owner,
    name       text NOT NULL,
    tag        text NOT NULL UNIQUE,      -- random; a part of the name of each object of it
    place      text NOT NULL,             -- s3://BUCKET/PREFIX?endpoint=…
    access_key text NOT NULL,
    secret_key bytea NOT NULL,            -- sealed with the server's storage.key
    created_at timestamptz NOT NULL DEFAULT now(),
    failures   int NOT NULL DEFAULT 0,    -- turns in a row that ended with an error
    due_at     timestamptz NOT NULL DEFAULT now(),  -- of its next turn
    error      text,                      -- of its last turn; null: none
    UNIQUE (owner, name)
);

-- Outcomes of the BOT up to number `published` have their outputs in the storage.
ALTER TABLE bot ADD COLUMN owner_storage int REFERENCES owner_storage,
                ADD COLUMN published bigint NOT NULL DEFAULT 0;
CREATE INDEX bot_of_storage ON bot (owner_storage) WHERE owner_storage IS NOT NULL;

-- Of an output of a canonical replica, if its BOT has a storage: since when it is there under its
-- final name, when it is tried again, since when its object is missing, and whether it is lost.
ALTER TABLE output ADD COLUMN published_at timestamptz, ADD COLUMN retry_at timestamptz,
                   ADD COLUMN missing_since timestamptz, ADD COLUMN lost_at timestamptz;

-- Objects that clients were given a URL to write: each is there before the URL is.
CREATE TABLE incoming (
    key           text PRIMARY KEY,       -- random; the object's name below TAG/incoming/
    owner_storage int NOT NULL REFERENCES owner_storage ON DELETE CASCADE,
    bot           bigint NOT NULL,
    seq           bigint NOT NULL,
    replica       int NOT NULL,
    name          text NOT NULL,          -- of the output
    sha256        bytea NOT NULL,
    size          bigint NOT NULL,
    url_ends      timestamptz NOT NULL,   -- of the last URL
    UNIQUE (bot, seq, replica, name, sha256)
);
CREATE INDEX incoming_of_storage ON incoming (owner_storage, url_ends);

-- Where a published output of a BOT with a storage is: s3://BUCKET/PREFIX/TAG/BOT/SEQ/NAME.
CREATE FUNCTION stored_at(of_bot bigint, of_seq bigint, of_name text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT rtrim(split_part(s.place, '?', 1), '/') || format('/%s/%s/%s/%s', s.tag, of_bot, of_seq, of_name)
      FROM bot JOIN owner_storage s ON s.id = bot.owner_storage WHERE bot.id = of_bot
$$;
