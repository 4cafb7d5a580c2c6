"""What stands in a block: the machines that read it."""
