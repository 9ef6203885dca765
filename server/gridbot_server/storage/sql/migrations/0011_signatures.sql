-- Signatures that cover what runs: of the owner, of the project, and over the job table.

-- Manifests of version 2 name the BOT, its project and the owner's key.  Those of version 1 are
-- for clients that speak protocol 1, which cannot check more.
ALTER TABLE bot ADD COLUMN version smallint NOT NULL DEFAULT 1;
ALTER TABLE bot ADD COLUMN owner_signature bytea;     -- by the manifest's owner_key
ALTER TABLE bot ADD COLUMN signed_with bytea;         -- the project's key that made `signature`
-- Nobody has signed it yet: it is not fed.
ALTER TABLE bot ADD COLUMN waits_for_signature boolean NOT NULL DEFAULT false;

-- A part of a BOT's job table: hashes of its jobs, and the signature over their tree, if there is
-- one.  A range has no parts.
CREATE TABLE job_part (
    bot       bigint NOT NULL,
    first     bigint NOT NULL,
    size      smallint NOT NULL CHECK (size BETWEEN 1 AND 64),
    leaves    bytea NOT NULL,
    signature bytea,
    PRIMARY KEY (bot, first)
);
ALTER TABLE job_part ALTER COLUMN leaves SET STORAGE PLAIN;  -- random bytes of at most 2 kB

-- Public keys that sign an owner's BOTs; each but the first was introduced by an older one.  A
-- person with two accounts may sign for both with one key.
CREATE TABLE signing_key (
    owner         int NOT NULL REFERENCES owner,
    key           bytea NOT NULL,
    label         text NOT NULL DEFAULT '',
    introduced_by bytea,
    signature     bytea,
    created_at    timestamptz NOT NULL DEFAULT now(),
    revoked_at    timestamptz,
    PRIMARY KEY (owner, key),
    FOREIGN KEY (owner, introduced_by) REFERENCES signing_key
);
CREATE INDEX signing_key_fingerprint ON signing_key (sha256(key));

-- The project's keys, each introduced by the one before; `setting` names the present one.
CREATE TABLE project_key (
    key           bytea PRIMARY KEY,
    introduced_by bytea REFERENCES project_key,
    signature     bytea,
    created_at    timestamptz NOT NULL DEFAULT now()
);
INSERT INTO project_key (key)
SELECT decode(value, 'hex') FROM setting WHERE name = 'project_key' AND value <> '';

-- What keys have revoked: keys, by fingerprint, and BOTs, by the ids of their manifests.
CREATE TABLE revocation (
    subject   bytea NOT NULL,
    signer    bytea NOT NULL,
    signature bytea NOT NULL,
    made_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (subject, signer)
);

-- What a client can check, and the owners whose keys its user trusts.
ALTER TABLE client ADD COLUMN protocol smallint NOT NULL DEFAULT 1;
ALTER TABLE client ADD COLUMN trusts int[] NOT NULL DEFAULT '{}';
-- Owners beside its own whom it may ever trust: those for whom an operator's key joined it.
ALTER TABLE client ADD COLUMN may_trust int[] NOT NULL DEFAULT '{}';
