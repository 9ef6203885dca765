-- What the project tells all its volunteers.
CREATE TABLE project_news (
    id        int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    title     text NOT NULL,
    text      text NOT NULL,
    posted_at timestamptz NOT NULL DEFAULT now()
);
