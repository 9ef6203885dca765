-- Keys of volunteers' accounts lie on machines: only who knows the password changes the account.
ALTER TABLE console_session ADD COLUMN by_password boolean NOT NULL DEFAULT false;
