"""The parts of `scripts/api-fuzz`: requests made from the description of the API."""
