"""The vocabulary: frozen values, no behaviour. Import from the modules below it."""
