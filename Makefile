# Python 3.11 or newer, pip and make are all that is needed; `make check` also wants npm, for pyright.
# The work is done by scripts/, which can be run alone as well.

SHELL := bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve run venv test test-clients test-page conformance check coverage fuzz laws bench bench-core bench-curve bench-instructions bench-peers bench-store bench-stored crash faults soak house docs release image examples lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: ## run the gateway on 127.0.0.1:8787; no key and no configuration needed (ARGS="--port 9000")
	@scripts/venv serve
	@.venv/bin/python -m dragoman serve $(ARGS)

run: ## an agent in this terminal; no key and no configuration needed (PROMPT="read README.md")
	@scripts/venv serve
	@.venv/bin/python -m dragoman run $(ARGS) $${PROMPT:+"$$PROMPT"}

venv: ## make or renew .venv from the pins in requirements/
	@scripts/venv

test: ## run every test
	@scripts/test

test-clients: ## tool round trips of real clients (Codex, Claude Code, OpenCode, SDKs, frameworks) through the gateway (npm)
	@scripts/test-clients

test-page: ## the inspector's page in Chromium (apt-get, npm): both wires, hostile contents, keyboard, export
	@scripts/test-page

conformance: ## the public conformance suites for MCP clients and for the endpoints of language models (npm)
	@scripts/conformance

check: ## formatting, lint, mypy, pyright and the import rules
	@scripts/check

coverage: ## run every test and demand full line and branch coverage of the pure layers
	@scripts/coverage

fuzz: ## feed mutated bytes to every decoder, a million cases (ROUNDS=50)
	@scripts/fuzz

laws: ## run the laws on twenty times the examples of `make test` (ROUNDS=20)
	@scripts/laws

bench: ## CPU and memory of the gateway beside nginx, in one run
	@scripts/bench

bench-peers: ## the same with LiteLLM, Portkey and claude-code-router, installed in environments of their own
	@scripts/bench-peers

bench-core: ## microseconds per event of every pair of dialects, beside a baseline
	@scripts/venv
	@.venv/bin/python bench/core.py

bench-curve: ## one gateway process from 100 to 4,000 streams; writes the picture and the tables of docs/scaling.md (ROUNDS=3)
	@scripts/venv
	@.venv/bin/python bench/curve.py $(if $(ROUNDS),--rounds $(ROUNDS))
	@.venv/bin/python scripts/pictures.py
	@.venv/bin/python bench/capacity.py

bench-instructions: ## processor instructions of a small request here and in another tree (BASE=../other), whatever else runs (valgrind)
	@scripts/venv
	@.venv/bin/python bench/instructions.py $(if $(BASE),--base $(BASE))

bench-store: ## what storing costs, by engine (ROWS=1000000)
	@scripts/venv
	@.venv/bin/python bench/store.py $(if $(ROWS),--rows $(ROWS))

bench-stored: ## what storing adds to the CPU time of a streamed response
	@scripts/venv
	@.venv/bin/python bench/gateway.py --store

crash: ## kill and stop gateways on one SQLite file under load (ROUNDS=200); nothing they acknowledged is lost
	@scripts/venv
	@.venv/bin/python bench/crash.py $(if $(ROUNDS),--rounds $(ROUNDS))

faults: ## break links, stores and processes in thousands of exchanges (ROUNDS=100; SEED=1234 plays one scene again); no promise is broken
	@scripts/venv
	@.venv/bin/python bench/faults.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED))

soak: ## mixed load for a long time (MINUTES=60); memory, file handles and tasks stay flat
	@scripts/venv
	@.venv/bin/python bench/soak.py $(if $(MINUTES),--minutes $(MINUTES))

house: ## the size of the code: lines, files, modules with one importer
	@scripts/house

docs: ## build the documentation site into build/docs/site; `scripts/docs serve` also serves it
	@scripts/docs

release: ## build wheel, sdist, their hashes and a list of what the image contains (SBOM), and try them
	@scripts/release

image: ## build and try the container image; check the files for Compose, systemd and Kubernetes
	@scripts/image

examples: ## run every file in examples/
	@scripts/examples

lock: ## pin the newest versions that pyproject.toml allows
	@scripts/lock

clean: ## remove .venv, caches, build results and the peers of the bench
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov build dist .peers browser/.venv browser/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
