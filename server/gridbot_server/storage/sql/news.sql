-- name: listen
LISTEN gridbot_news
