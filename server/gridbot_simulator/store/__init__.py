"""The database in memory: tables, and one function for each named statement of the server."""
