"""The database, its SQL, and the file store."""
