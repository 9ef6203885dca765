-- Which of an account's keys its password gives: a new password gives another one, and the machines
-- that are attached keep theirs.  Null: the first one, of an account that an older server made.
ALTER TABLE boinc_account ADD COLUMN password_key bytea;
UPDATE boinc_account b SET password_key = t.hash
  FROM (SELECT DISTINCT ON (owner) owner, hash FROM token ORDER BY owner, id) t WHERE t.owner = b.owner;

-- Who asked within a day for a link that sets a new password, whether there is such an account or not.
CREATE TABLE password_link (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email      bytea NOT NULL,      -- a keyed hash, as in boinc_account
    person     bytea NOT NULL,      -- a keyed hash of the mailbox without what follows a +
    mailbox    text,                -- until the link is mailed, or will not be
    asked_at   timestamptz NOT NULL DEFAULT now(),
    due_at     timestamptz NOT NULL DEFAULT now(),
    hash       bytea UNIQUE,        -- SHA-256 of the link's code, while it is good
    expires_at timestamptz
);
CREATE INDEX password_link_person ON password_link (person);
CREATE INDEX password_link_due ON password_link (due_at) WHERE mailbox IS NOT NULL;
