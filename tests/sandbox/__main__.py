"""Run the zoo at every level of this machine; print who was confined: python -m tests.sandbox."""

from __future__ import annotations

import sys

from tests.sandbox.cage import Cage, highest
from tests.sandbox.zoo import ZOO


def main(wanted: list[str]) -> int:
    """Print a table: hostile tasks by level."""
    found = highest()
    print(f"this machine offers level {found.level}: {found.text} {found.obstacle}")
    levels = range(1, found.level + 1)
    beasts = [beast for beast in ZOO if not wanted or any(word in beast.name for word in wanted)]
    confined = dict.fromkeys(levels, 0)
    for beast in beasts:
        cells = []
        for level in levels:
            cage = Cage(level)
            try:
                verdict = cage.let_in(beast)
            finally:
                cage.close()
            confined[level] += verdict.is_confined
            cells.append("held" if verdict.is_confined else "; ".join(verdict.harm)[:60])
            if wanted:
                print(verdict)
        print(f"{beast.kind:10} {beast.name:45} " + " | ".join(cells), flush=True)
    print("confined:", {level: f"{count} of {len(beasts)}" for level, count in confined.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
