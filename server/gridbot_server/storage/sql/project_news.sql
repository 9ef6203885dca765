-- name: post
INSERT INTO project_news (title, text) VALUES (%(title)s, %(text)s)
RETURNING id, title, text, posted_at

-- name: latest
SELECT id, title, text, posted_at FROM project_news ORDER BY id DESC LIMIT %(limit)s

-- name: remove
DELETE FROM project_news WHERE id = %(id)s RETURNING id
