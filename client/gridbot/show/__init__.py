"""Documents of the server as tables, pages and progress for people."""
