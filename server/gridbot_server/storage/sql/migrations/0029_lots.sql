-- How often a check was kept in vain for a crew that did not come for it (`matching/lots.py`).
ALTER TABLE requeue ADD COLUMN vain int NOT NULL DEFAULT 0;

-- Checks count once those of all earlier answers have come back: liars check each other at once,
-- while honest hosts take their time.
ALTER TABLE provisional ADD COLUMN passed_by timestamptz;  -- when the last answer was given of those
                                                           -- that passed the checks that it takes
ALTER TABLE provisional ADD COLUMN is_seasoned boolean NOT NULL DEFAULT false;
ALTER TABLE provisional ADD COLUMN due_at timestamptz;  -- when it was chosen among all that were open
