"""Observability: the log, the metrics and the dump."""
