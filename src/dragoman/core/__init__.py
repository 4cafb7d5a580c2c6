"""Pure functions and machines over the vocabulary. Import from the modules below it."""
