"""The parts of `scripts/bench` and `scripts/figure7a`: what this GridBot can do, in figures."""
