-- A day is that of now(), as everywhere: a clock that stands in for now() is obeyed by all.
ALTER TABLE host ALTER COLUMN jobs_day SET DEFAULT now()::date;
