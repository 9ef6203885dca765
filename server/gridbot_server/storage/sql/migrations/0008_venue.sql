-- What its owner calls the place where a machine stands, in BOINC's three words, for policies.
ALTER TABLE host ADD COLUMN venue text NOT NULL DEFAULT ''
    CHECK (venue IN ('', 'home', 'work', 'school'));
