# Every target is quick when there is nothing to do. Needed: python3 (3.11 or newer), pip, git.
#
#   make run          start API and proxy        DATA_DIR=  API_PORT=  PROXY_PORT=
#   make demo         the same, with an account and a thousand records in it
#   make test         run all tests: many minutes
#   make test-fast    those that start no service: under a minute on two idle cores
#   make fuzz         throw hostile bytes at every parser    FUZZ_SECONDS=
#   make simulate     run proxies and API from new seeds     SECONDS=
#   make mutants      plant faults that the simulation has to find
#   make bench        measure what is claimed: one table per script of bench/
#   make check        lint, format, types, import rules
#   make web          bundle the scripts of the proxy's pages; needs Node 20 or newer
#   make docs         the documents as a site, in build/site; a link that leads nowhere fails
#   make wheel        the package with them in it, in dist/, and what each side needs, with digests
#   make environment  make .venv with all that tests need
#   make clean        remove the environment; data stays

# What is downloaded from different places is installed at the same time.
MAKEFLAGS += --jobs=4

# The Python of the environment. PYTHON=python3 takes the first of the search path.
PYTHON ?= $(shell scripts/find-python)
DATA_DIR ?= .data
FUZZ_SECONDS ?= 600
SECONDS ?= 600
UV_VERSION := 0.13.8
BOTH_SIDES := --extra proxy --extra api

VENV := .venv
BIN := $(VENV)/bin
# Written when the environment holds what the lock file says.
FOR_RUN := $(VENV)/.for-run
FOR_TEST := $(VENV)/.for-test

PORTS := $(if $(API_PORT),--api-port $(API_PORT)) $(if $(PROXY_PORT),--proxy-port $(PROXY_PORT))

# Written when the pages' scripts are those of web/. Where they cannot be built, pages say so.
STATIC := src/encrypted_records/proxy/pages/static
WEB := $(STATIC)/built/LICENCES.txt
# Asked for once per environment; it says so where none can be installed.
CHROMIUM := $(VENV)/.chromium
# What tests generate clients with; where it cannot be installed, these tests fail.
CLIENTS := tests/clients/node/node_modules/.installed
WEB_SOURCES := $(wildcard web/*.json web/build.mjs web/src/*)
# Written when the package has the documents as they are.
TEXTS := src/encrypted_records/proxy/pages/help_texts/.copied
DOCUMENTS := $(wildcard *.md docs/*.md docs/*/*)

.PHONY: run demo test test-fast fuzz simulate mutants bench check docs web wheel environment clean
.DEFAULT_GOAL := run

run: $(FOR_RUN) $(WEB)
	@exec $(BIN)/ers up --data-dir "$(DATA_DIR)" $(PORTS)

demo: $(FOR_RUN) $(WEB)
	@exec $(BIN)/ers demo --data-dir "$(DATA_DIR)" $(PORTS)

test: $(FOR_TEST) $(WEB) $(TEXTS) $(CHROMIUM) $(CLIENTS)
	@exec $(BIN)/python -m pytest --numprocesses auto --dist loadfile

# Folders that need no database and no browser; what starts a service there is left out.
FAST := $(addprefix tests/,model crypto index ingest reference client)

test-fast: $(FOR_TEST)
	@exec $(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "not service and not slow" $(FAST)

fuzz: $(FOR_TEST)
	@FUZZ_SECONDS="$(FUZZ_SECONDS)" HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests/fuzz

simulate: $(FOR_TEST)
	@$(BIN)/python -m tests.simulation --seconds "$(SECONDS)"

mutants: $(FOR_TEST)
	@$(BIN)/python -m tests.simulation.breaking

bench: $(FOR_TEST)
	@$(BIN)/uv sync --quiet --frozen --inexact $(BOTH_SIDES) --group docs --group bench
	@for script in $(wildcard bench/*.py); do \
	  name=$$(basename $$script .py); echo "== $$name"; $(BIN)/python -m bench.$$name || exit 1; echo; done

check: $(FOR_TEST)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(FOR_TEST)
	@$(BIN)/python -m scripts.site build/site

web:
	@scripts/build-web --required

wheel: web $(TEXTS) | $(BIN)/uv
	@$(BIN)/uv build --quiet --clear --wheel
	@for side in api proxy; do $(BIN)/uv export --quiet --frozen --no-dev --no-emit-project \
	  --extra $$side $$([ $$side = api ] && echo --extra s3) \
	  --output-file dist/requirements-$$side.txt >/dev/null; done
	@ls dist/*.whl

environment: $(FOR_TEST) $(WEB) $(TEXTS) $(CHROMIUM) $(CLIENTS)

clean:
	rm -rf $(VENV) web/node_modules tests/clients/node/node_modules $(STATIC)/built .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# --inexact: whatever else was put into the environment stays, uv itself included.
$(FOR_RUN): pyproject.toml uv.lock | $(BIN)/uv
	@$(BIN)/uv sync --quiet --frozen --inexact --no-dev $(BOTH_SIDES)
	@touch $@

# Tests start some hundred processes. Where Python may not write what it compiles, as in many
# containers, each of them would compile a thousand files.
$(FOR_TEST): pyproject.toml uv.lock | $(BIN)/uv
	@$(BIN)/uv sync --quiet --frozen --inexact --compile-bytecode $(BOTH_SIDES) --group docs
	@$(BIN)/python -m compileall -q src tests
	@touch $(FOR_RUN) $@

$(CHROMIUM): scripts/install-chromium
	@scripts/install-chromium
	@mkdir -p $(VENV) && touch $@

$(CLIENTS): scripts/install-clients $(wildcard tests/clients/node/*.json)
	@scripts/install-clients

$(WEB): scripts/build-web $(WEB_SOURCES)
	@scripts/build-web

$(TEXTS): scripts/copy-documents $(DOCUMENTS)
	@scripts/copy-documents

# uv is pinned and lives inside the environment, so that nothing is installed outside of it.
$(BIN)/uv:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: there is no $(PYTHON); install Python 3.11 or newer, or set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is older than 3.11; install a newer one, or set PYTHON=" >&2; exit 1; }
	@echo "making the environment in $(VENV) (once, about a minute)" >&2
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "error: $(PYTHON) cannot make environments; on Debian: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
