# What people and CI run. Each target sets the project up first, once.
# Options: make test ARGS="-k name", make bench ONLY=name.

.DEFAULT_GOAL := help
.PHONY: help setup demo test check accept bench lock clean environment

PYTHON_BIN := .venv/bin/python
# Variables of the caller's own Python set-up do not reach ours.
unexport PYTHONPATH PYTHONHOME

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*##  *\(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r target text; do \
	  printf '%-14s %s\n' "$$target" "$$text"; done

setup:  ## make .venv with everything the project needs
	@scripts/setup.sh

environment:
	@scripts/setup.sh --quiet-when-current

demo: environment  ## compile the example and run its session on Ray, under a minute
	@$(PYTHON_BIN) -m scripts.demo

test: environment  ## all tests, on a real Ray, nsjail and MCP server
	$(PYTHON_BIN) -m pytest $(ARGS)

check: environment  ## format, lint, types, import layers, generated files
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PYTHON_BIN) -m scripts.generate --check

accept: environment  ## rewrite golden files, snapshots and generated files from what the code does now
	$(PYTHON_BIN) -m scripts.generate
	SUBAKO_ACCEPT=1 $(PYTHON_BIN) -m pytest -q --snapshot-update $(ARGS) \
	  $$(grep -rlE 'SUBAKO_ACCEPT|snapshot' --include='test_*.py' tests)

bench: environment  ## the project's figures beside their peers', one JSON line each
	@$(PYTHON_BIN) -m benchmarks $(if $(ONLY),--only "$(ONLY)")

lock: environment  ## pin every package and its hashes (ARGS=--upgrade raises versions)
	@scripts/lock.sh $(ARGS)

clean:  ## remove .venv and every cache
	rm -rf .venv .set-up.lock .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
