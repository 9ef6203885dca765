-- Stock BOINC clients: what their protocol needs beyond what every client has.

-- The script and signatures with which stock clients run a BOT; null: native clients only.
ALTER TABLE bot ADD COLUMN boinc text;
-- Why stock clients cannot run it, for its owner; null when they can or nobody tried.
ALTER TABLE bot ADD COLUMN boinc_unsuitable text;

-- How a client whose own memory of its number is gone is known again.
CREATE TABLE boinc_client (
    client  bigint PRIMARY KEY REFERENCES client,
    owner   int NOT NULL REFERENCES owner,
    cpid    text NOT NULL,     -- the name that the client gave itself
    machine bytea NOT NULL,    -- hash of processor and system
    place   bytea NOT NULL     -- hash of name, address, memory, processor and system
);

CREATE INDEX boinc_client_cpid ON boinc_client (owner, cpid);    -- a client's first contact
CREATE INDEX boinc_client_place ON boinc_client (owner, place);  -- the same

-- People who made their account from a BOINC client: owners with a key that joins clients only.
-- Neither the address nor the password is kept: the key is made of both, with the names' secret.
CREATE TABLE boinc_account (
    owner int PRIMARY KEY REFERENCES owner,
    name  text NOT NULL,           -- as the client shows it
    email bytea NOT NULL UNIQUE    -- a keyed hash
);

-- A file that a stock client uploaded whole; the outputs in it are rows of `output`.
CREATE TABLE boinc_upload (
    bot     bigint NOT NULL,
    seq     bigint NOT NULL,
    replica int NOT NULL,
    number  int NOT NULL,
    md5     bytea NOT NULL,
    size    bigint NOT NULL,
    PRIMARY KEY (bot, seq, replica, number)
);
