"""RSL as the parser of the Grid Community Toolkit reads it, whose library is the oracle."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import pytest

from gridbot.api.errors import BadInput
from gridbot.rsl.syntax import parse

LIBRARY = "libglobus_rsl.so.2"
# In a process of its own: the parser keeps state.
ORACLE = f"""
import ctypes, json, sys
rsl = ctypes.CDLL("{LIBRARY}")
rsl.globus_rsl_parse.restype = ctypes.c_void_p
rsl.globus_rsl_parse.argtypes = [ctypes.c_char_p]
rsl.globus_rsl_unparse.restype = ctypes.c_char_p
rsl.globus_rsl_unparse.argtypes = [ctypes.c_void_p]
for text in sys.argv[1:]:
    found = rsl.globus_rsl_parse(text.encode())
    print(json.dumps(rsl.globus_rsl_unparse(found).decode() if found else ""))
"""
BOTH_READ = [
    "&(x = (1 1) )", "+(&(x < 1))", "&(rsl_substitution = (x y))(z = $(x))", "x = 1",
    '&(executable = "/bin/a ""b"" c")', "&(x = ^%100%% sure%)", "&(x = $(A)b$(C d)'e')",
    "& (* what (it) does *) (a = 'it''s') (b != 2 3)", "+(&(a=1))(&(b>=2))", "|(&(a=1))(b<=2)",
    "&(x = a+b&c|d)", "&(x = a'b')", "&(x = 'a'$(B))", "&(x=$(A)$(B))", "&(x = a#b)",
    "&(x = a # b c)", "&(a=1)(|(b=1)(c=2))", "&(x != 1 2)", "&(x = (a)(b))", "&(x=\"a\nb\")",
    "&(x = a(b))", "&(x = (a b (c $(D))))", "&(x = a-b.c/d:e@f,g;h[i]{j}\\k%l)",
    "&(x = $(A)'b')", '&(x = "a"b)', "&('a b' = 1)", "&\n(x=1)", "&(x=1) (y=2)", "&(x = ^|a||b|)",
]  # fmt: skip
BOTH_REFUSE = [
    "x = 1(", "(&x = 1)", "&(x y = 1 1 )", "&&(+(x < 1))", "", "&", "&(x =)", "&(x = 'a)",
    "&(x = $x)", "&(x = ())", "&(x = a~b)", "&(x = ?a)", "x=1)", "&(x=1))", "&($(A) = 1)",
    "&(x = 1 = 2)", "&(x=>1)",
]  # fmt: skip


def asked(texts: list[str]) -> list[str]:
    """What the library reads, written by it; "" for what it refuses."""
    command = [sys.executable, "-c", ORACLE, *texts]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [str(json.loads(line)) for line in done.stdout.splitlines()]


def reads(text: str) -> bool:
    try:
        parse(text)
    except BadInput:
        return False
    return True


@pytest.fixture(autouse=True)
def oracle() -> None:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{LIBRARY} of the package libglobus-rsl2 is not here")


def test_what_is_read_means_the_same() -> None:
    for text, written in zip(BOTH_READ, asked(BOTH_READ), strict=True):
        assert written, text
        assert parse(written) == parse(text), text


def test_the_same_is_refused() -> None:
    assert asked(BOTH_REFUSE) == [""] * len(BOTH_REFUSE)
    assert not [text for text in BOTH_REFUSE if reads(text)]
