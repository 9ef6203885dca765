-- To which terms of use, by SHA-256 of their text, who made an account agreed; null: there were none.
ALTER TABLE boinc_account ADD COLUMN terms bytea, ADD COLUMN agreed_at timestamptz;
