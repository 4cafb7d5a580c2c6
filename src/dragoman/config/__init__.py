"""The configuration: the operator's settings, read once from a file, the environment and flags, then checked and shown."""
