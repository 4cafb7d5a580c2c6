"""Bodies: each reads the blocks of a family of formats."""
