-- The output that an upload of a BOINC client is; null: it brings all of its replica's.
ALTER TABLE boinc_upload ADD COLUMN single text;
