-- Pilots: clients that the overlay starts in grids, on behalf of certain owners.

ALTER TABLE token DROP CONSTRAINT token_scope_check;
ALTER TABLE token ADD CHECK (scope IN ('operator', 'user', 'join', 'pilot'));
-- Whom the pilots of a pilots' key serve.
ALTER TABLE token ADD COLUMN serves int[];
-- What the overlay calls their submission, and how many they are.
ALTER TABLE token ADD COLUMN tag text;
ALTER TABLE token ADD COLUMN pilots int;
ALTER TABLE token ADD CHECK ((scope = 'pilot') = (grid IS NOT NULL AND serves IS NOT NULL
                             AND tag IS NOT NULL AND pilots IS NOT NULL));

-- Where the machine is, when it is a grid's.
ALTER TABLE host ADD COLUMN grid text;

-- The key with which a pilot joined, so that both end together.
ALTER TABLE client ADD COLUMN token int REFERENCES token;
-- What the overlay calls the pilot: the tag of its submission and its index in it.
ALTER TABLE client ADD COLUMN pilot text NOT NULL DEFAULT '';
-- Nobody else's work preempts its host's, as an operator's key vouched for when it joined.
ALTER TABLE client ADD COLUMN dedicated boolean NOT NULL DEFAULT false;
-- Replicas of a pilot that were judged valid, those that failed, and the last failure's words.
ALTER TABLE client ADD COLUMN jobs int NOT NULL DEFAULT 0;
ALTER TABLE client ADD COLUMN failures int NOT NULL DEFAULT 0;
ALTER TABLE client ADD COLUMN failure text NOT NULL DEFAULT '';

-- Which pilots may live, for the overlay; which are over, for the purger.
CREATE INDEX client_grid ON client (grid, expires_at) WHERE grid IS NOT NULL;
CREATE INDEX client_token ON client (token) WHERE token IS NOT NULL;      -- a key's revocation

-- Jobs that failed so often go to dedicated hosts only (paper section 7); null: never.
ALTER TABLE bot ADD COLUMN failover_after int CHECK (failover_after BETWEEN 1 AND 100);
