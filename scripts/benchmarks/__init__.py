"""The parts of `scripts/bench`: what this GridBot can do, in figures."""
