"""`scripts/data-trial`: contents that go past the server, measured while parts are killed."""
