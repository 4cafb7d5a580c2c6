"""Wire dialects. Each is a package that knows nothing of the others; `registry` lists them."""
