-- The last words of pilots, and how they ended, as their constructors told.
CREATE TABLE pilot_log (
    pilot     text PRIMARY KEY,
    grid      text NOT NULL,
    native_id text NOT NULL,        -- what its batch system calls it
    node      text NOT NULL,
    how       text NOT NULL,        -- it ended, in the words of its batch system
    exit_code int,
    words     text NOT NULL,        -- the end of its stderr
    told_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX pilot_log_told ON pilot_log (told_at);
