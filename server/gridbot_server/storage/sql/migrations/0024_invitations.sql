-- An invitation is a key of scope `join` for a number of machines.
ALTER TABLE token ADD COLUMN uses int CHECK (uses > 0);
ALTER TABLE token ADD CHECK (uses IS NULL OR scope = 'join');
