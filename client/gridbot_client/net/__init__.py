"""Speaking HTTP with the server: finding it, requests, resumable transfers."""
