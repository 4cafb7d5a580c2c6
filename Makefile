# Python 3.11 or newer, pip and make are all that is needed; `make check` also wants npm, for pyright.
# The work is done by scripts/, which can be run alone as well.

SHELL := bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv test check coverage fuzz bench-core examples lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: ## make or renew .venv from the pins in requirements/
	@scripts/venv

test: ## run every test
	@scripts/test

check: ## formatting, lint, mypy, pyright and the import rules
	@scripts/check

coverage: ## run every test and demand full line and branch coverage of the pure layers
	@scripts/coverage

fuzz: ## feed mutated bytes to every decoder, a million cases (ROUNDS=10)
	@scripts/fuzz

bench-core: ## microseconds per event of every pair of dialects, beside a baseline
	@scripts/venv
	@.venv/bin/python bench/core.py

examples: ## run every file in examples/
	@scripts/examples

lock: ## pin the newest versions that pyproject.toml allows
	@scripts/lock

clean: ## remove .venv, caches and build results
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
