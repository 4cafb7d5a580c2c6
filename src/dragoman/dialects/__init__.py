"""Wire dialects. Each is a package that does not import the others; `registry` lists them."""
