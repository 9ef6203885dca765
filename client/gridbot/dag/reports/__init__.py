"""The files that DAGMan's users know: rescue DAG, node status, job state log, DOT, metrics."""
