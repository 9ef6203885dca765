-- Why the BOT gets no work: its policy exceeded its evaluation budget repeatedly; null: it does not.
ALTER TABLE bot ADD COLUMN suspended text;
