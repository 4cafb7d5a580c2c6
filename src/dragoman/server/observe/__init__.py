"""What is written down of requests: the log, the metrics and the dump."""
