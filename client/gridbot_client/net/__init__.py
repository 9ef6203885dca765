"""Speaking HTTP with the server: finding it, joining, retries, resumable transfers."""
