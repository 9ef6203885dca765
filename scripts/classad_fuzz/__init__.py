"""Differential fuzzing of GridBot's ClassAd evaluator against HTCondor's library."""
