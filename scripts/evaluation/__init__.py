"""The parts of `scripts/paper`: the paper's evaluation (Silberstein et al., SC09, section 7)."""
