"""DAG files, read into an immutable model; all errors at once, each with its file and line."""
