"""Submitting BOTs: validation, storage of jobs, which outputs are wanted."""
