"""Makes JSON values: as a schema wants them, or quite otherwise."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

_JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, 1e308, -1e308, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400,
    "", " ", "\0", "\ud800", "\u202e", "é" * 50, "a" * 5000, "../../x", "/etc/passwd", "%s%n",
    "{i}", "{{", "}", "';--", "<x>", "null", "NaN", "1e999", "\r\nX: y", [], {}, [[]], [None],
    {"": ""}, {"range": [0, 10**30, 1]}, {"range": [0, 3, 0]}, {"range": [5, 1, -1]}, {"items": []},
)  # fmt: skip
_POLICIES = (
    "Rank = 1", "Rank = ", "JobRequirements = Host.NumCpus > 1", "Rank = Rank", "Concurrency = -1",
    "Deadline = 1/0", "X = {1,2}; Rank = X[0]", 'JobRequirements = regexp("(", "x")', "[",
    "Rank = 1;;",
    "JobRequirements = " + "(" * 150 + "1" + ")" * 150, "Rank = strcat(Rank, Rank)",
)  # fmt: skip
_DEEPEST = 6


class Values:
    """Makes values of the schemas of one document."""

    def __init__(self, document: Mapping[str, Any], known: Sequence[Any], rng: random.Random):
        self._schemas: Mapping[str, Schema] = document["components"]["schemas"]
        self.known = list(known)  # what is somewhere on the server: numbers, names, hashes
        self.rng = rng

    def junk(self) -> Any:
        """Make something that hardly anybody expects."""
        if self.rng.random() < 0.1:
            nested: Any = []
            for _ in range(self.rng.choice((10, 200, 900))):
                nested = [nested]
            return nested
        return self.rng.choice(_JUNK)

    def make(self, schema: Schema, depth: int = 0, name: str = "") -> Any:
        """Make a value that the schema allows, mostly."""
        if self.rng.random() < 0.04 or depth > _DEEPEST:
            return self.junk()
        if name == "policy" and self.rng.random() < 0.8:
            return self.rng.choice(_POLICIES)
        if "$ref" in schema:
            return self.make(self._schemas[schema["$ref"].rpartition("/")[2]], depth, name)
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema:
                return self.make(self.rng.choice(schema[word]), depth + 1, name)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.rng.choice(schema["enum"])
        return self._of_type(schema, depth, name)

    def _of_type(self, schema: Schema, depth: int, name: str) -> Any:
        rng = self.rng
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return [
                    self.make(schema.get("items", {}), depth + 1) for _ in range(rng.randrange(4))
                ]
            case "integer":
                least, most = schema.get("minimum", 0), schema.get("maximum", 10**6)
                return rng.choice((least, most, rng.randint(least, min(most, least + 20))))
            case "number":
                return rng.choice((0.0, 0.5, 1, 60.0, schema.get("maximum", 3600)))
            case "boolean":
                return rng.random() < 0.5
            case "null":
                return None
            case "string":
                return self._text(schema, name)
            case _:
                return rng.choice((*self.known, 1, "x", True))

    def _text(self, schema: Schema, name: str) -> str:
        pattern, known = schema.get("pattern", ""), [x for x in self.known if isinstance(x, str)]
        if "[0-9a-f]{64}" in pattern:
            return self.rng.choice([*(x for x in known if len(x) == 64), "0" * 64, "f" * 64])
        return self.rng.choice([*known, name or "x", "a-b.c", "linux-x86_64", "echo", "{i}"])

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        wanted, made = set(schema.get("required", ())), {}
        for name, inner in schema.get("properties", {}).items():
            if self.rng.random() < (0.97 if name in wanted else 0.35):
                made[name] = self.make(inner, depth + 1, name)
        if "additionalProperties" in schema or not schema.get("properties"):
            made |= {self.rng.choice(("i", "x", "", "Name")): self.junk() for _ in range(2)}
        if self.rng.random() < 0.03:
            made[self.rng.choice(("unknown", "__proto__", ""))] = self.junk()
        return made
