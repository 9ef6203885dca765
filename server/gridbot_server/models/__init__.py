"""The JSON documents of the API as pydantic models."""
