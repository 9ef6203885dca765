-- Stock clients may upload a file anew, not without end.

ALTER TABLE boinc_upload ADD COLUMN times int NOT NULL DEFAULT 1;
