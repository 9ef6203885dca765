"""The execution client: fetches replicas by pull, runs them confined, uploads and reports."""
