"""Replicas on this machine: slots, input cache, processes within limits, outputs."""
