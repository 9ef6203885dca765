-- When a client was last asked to return what it has not begun: all web processes leave it alone then.
ALTER TABLE client ADD COLUMN called_back_at timestamptz;
