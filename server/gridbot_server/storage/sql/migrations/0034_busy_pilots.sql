-- For the overlay: for how many seconds, times cores, replicas ran on a pilot.
ALTER TABLE client ADD COLUMN core_seconds float8 NOT NULL DEFAULT 0;
