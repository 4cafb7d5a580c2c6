"""The configuration: what an operator may say, read once from a file, the environment and flags, checked and shown."""
