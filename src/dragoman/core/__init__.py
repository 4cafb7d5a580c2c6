"""Pure functions and state machines over the vocabulary. Import from the modules of this package."""
