"""The parts of `scripts/demo`: a LOD-score scan of fastlink's example families as a BOT."""
