-- The file store that belongs to this database, and how often the two were compared: see
-- storage/store_record.py.  0: they never were.
INSERT INTO setting VALUES ('store', gen_random_uuid()::text), ('store_revision', '0');

-- Clients (hashes of their tokens) and machines (identities) that a database which was lost had
-- revoked or banned, and that this one may never have known.
CREATE TABLE withdrawn (
    kind text NOT NULL CHECK (kind IN ('client', 'host')),
    name text NOT NULL,
    why  text NOT NULL DEFAULT '',
    PRIMARY KEY (kind, name)
);

-- With receipts clients join again a server that was restored: see signing/receipts.py.
INSERT INTO setting VALUES ('receipts', gen_random_uuid()::text || gen_random_uuid()::text);
-- The hash of the receipt with which a client came back, so that none makes two clients.
ALTER TABLE client ADD COLUMN receipt bytea;
CREATE UNIQUE INDEX client_receipt ON client (receipt) WHERE receipt IS NOT NULL;

-- What is withdrawn is listed each minute, however many clients there are.
CREATE INDEX client_revoked ON client (id) WHERE revoked_at IS NOT NULL;
CREATE INDEX host_banned ON host (id) WHERE banned_at IS NOT NULL;
