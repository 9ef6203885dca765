"""Claims about the clock that statements go by."""

from __future__ import annotations

import re
from importlib import resources

from gridbot_server.storage import sql

# What escapes a function `now` that stands before PostgreSQL's on the search path.
ESCAPES = re.compile(r"\b(current_(date|time|timestamp)|localtime(stamp)?)\b", re.IGNORECASE)


def test_statements_know_no_time_but_that_of_now() -> None:
    files = [file.name for file in resources.files(sql).iterdir() if file.name.endswith(".sql")]
    texts = {(file, name): text for file in files for name, text in sql.load(file).items()}
    assert len(texts) > 100
    assert [place for place, text in texts.items() if ESCAPES.search(text.decode())] == []
