"""The vocabulary: frozen values, no behaviour. Import from the modules of this package."""
