"""The web process: gunicorn's worker, its fast path for host requests, the Flask application."""
