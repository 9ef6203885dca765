"""The parts of `scripts/long-jobs`: a long program on machines that do not stay, and its output."""
