"""The inspector's page in a real browser, in front of a real gateway. `make test-page` runs it; docs/testing.md describes it."""
