-- What clients told of their caches: marks of the largest files (gridbot_client.protocol.cached).
CREATE TABLE client_cache (
    client bigint PRIMARY KEY REFERENCES client ON DELETE CASCADE,
    marks  text[] NOT NULL
);
