# Each target is enough by itself: it makes .venv and installs what it needs, once.
# ARGS="..." is handed to the command behind a target:   make demo ARGS="--seconds 30 --port 8123"

VENV := .venv
RUN := $(VENV)/bin/python
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
IS_NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'

.PHONY: help demo test test-servers test-pages screenshots test-newest faults soak bench bench-check lint format types contract migrations-check wheel check requirements clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(VENV)/.runs ## Run the example project: dashboard, API, worker, traffic
	@$(RUN) manage.py demo $(ARGS)

test: $(VENV)/.tests ## Run the tests, on an embedded Valkey and SQLite
	@$(RUN) -m pytest -n 2 $(ARGS)

test-servers: $(VENV)/.tests ## Run the tests on an installed Redis, PostgreSQL and RabbitMQ
	@$(RUN) -m tests.on_installed_servers -n 2 $(ARGS)

test-pages: $(VENV)/.tests ## Run the tests of the pages in an installed Chromium
	@$(RUN) -m pytest -n 2 tests/browser $(ARGS)

screenshots: $(VENV)/.tests ## Renew the pictures of the pages in docs/
	@$(RUN) -m pytest tests/browser/screenshots.py $(ARGS)

test-newest: ## Run the tests on the newest Django; PYTHON=python3.13 says where
	@$(MAKE) --no-print-directory VENV=.venv-newest-$(notdir $(or $(PYTHON),python3)) .test-newest

.test-newest: $(VENV)/.tests
	@$(RUN) $(PIP_INSTALL) --upgrade Django
	@$(RUN) -c 'import django, sys; print("Django", django.__version__, "on Python", sys.version.split()[0])'
	@$(RUN) -m pytest -n 2 $(ARGS)

faults: $(VENV)/.tests ## Run only the tests that break Redis, in every way; they are part of `make test`
	@$(RUN) -m pytest -n 2 tests/faults tests/test_outage.py tests/test_cases_redis.py $(ARGS)

soak: $(VENV)/.tests ## Minutes of real traffic while Redis is killed again and again; ARGS="--seconds 60"
	@$(RUN) -m tests.soak $(ARGS)

lint: $(VENV)/.tests ## Check style and formatting
	@$(RUN) -m ruff check . $(ARGS)
	@$(RUN) -m ruff format --check .

format: $(VENV)/.tests ## Format, and mend what can be mended
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

types: $(VENV)/.tests ## Check types
	@$(RUN) -m mypy $(ARGS)

contract: $(VENV)/.tests ## Check that imports go one way
	@$(VENV)/bin/lint-imports $(ARGS)

migrations-check: $(VENV)/.tests ## Check that the migrations say what the models say
	@DEBUG=1 $(RUN) manage.py makemigrations --check --dry-run $(ARGS)

wheel: $(VENV)/.tests ## Build the package into dist/
	@$(RUN) -m hatchling build --target wheel $(ARGS)

bench: ## Measure everything, beside other limiters, in under 15 minutes: docs/performance.md
	@$(MAKE) --no-print-directory VENV=.venv-bench .bench

.bench: $(VENV)/.rivals
	@$(RUN) -m bench $(ARGS)

$(VENV)/.rivals: bench/requirements.txt requirements.txt $(RUN)
	@echo "Installing bench/requirements.txt into $(VENV) ..."
	@$(RUN) $(PIP_INSTALL) -r bench/requirements.txt
	@touch $@

bench-check: $(VENV)/.tests ## Check that a decision did not become dearer, by ratios, in a minute
	@$(RUN) -m bench.regression $(ARGS)

check: lint types contract migrations-check test ## All of the above that must pass before a commit

requirements: ## Renew requirements*.txt from the ranges in pyproject.toml
	@$(MAKE) --no-print-directory VENV=.venv-requirements .requirements

.requirements: $(RUN)
	@$(RUN) $(PIP_INSTALL) '.[demo]' 'Django<6'
	@$(RUN) -m pip freeze --exclude ratelimit-app >$(VENV)/runs
	@$(RUN) $(PIP_INSTALL) --constraint $(VENV)/runs '.[test,lint]'
	@$(RUN) -m pip freeze --exclude ratelimit-app >$(VENV)/tests
	@{ sed -n '/^#/p; /;/p' requirements.txt; cat $(VENV)/runs; } >$(VENV)/new && mv $(VENV)/new requirements.txt
	@{ sed -n '/^[#-]/p' requirements-dev.txt; grep -vxFf $(VENV)/runs $(VENV)/tests; } >$(VENV)/new && \
		mv $(VENV)/new requirements-dev.txt
	@rm -r $(VENV)

clean: ## Remove what these targets made
	rm -rf .venv .venv-* .demo dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# --- The environment ---------------------------------------------------------------------------

$(VENV)/.runs: requirements.txt $(RUN)
	@echo "Installing requirements.txt into $(VENV) ..."
	@$(RUN) $(PIP_INSTALL) -r requirements.txt
	@touch $@

$(VENV)/.tests: requirements-dev.txt requirements.txt $(RUN)
	@echo "Installing requirements-dev.txt into $(VENV) ..."
	@$(RUN) $(PIP_INSTALL) -r requirements-dev.txt
	@touch $@ $(VENV)/.runs

# A target without prerequisites is made once and never again, whatever its date.
$(RUN):
	@python="$(PYTHON)"; \
	for name in python3 python3.13 python3.12 python3.11; do \
		if [ -z "$$python" ] && "$$name" $(IS_NEW_ENOUGH) 2>/dev/null; then python="$$name"; fi; \
	done; \
	if [ -z "$$python" ] || ! "$$python" $(IS_NEW_ENOUGH) 2>/dev/null; then \
		echo "Python 3.11 or newer is needed, and $${python:-python3} is not; PYTHON=/path/to/python names another." >&2; \
		exit 1; \
	fi; \
	if "$$python" -c 'import ensurepip' 2>/dev/null; then \
		"$$python" -m venv $(VENV); \
	elif "$$python" -m pip --version >/dev/null 2>&1; then \
		"$$python" -m venv --without-pip $(VENV) && \
		"$$python" -m pip --quiet --disable-pip-version-check --python $(VENV)/bin/python install pip; \
	else \
		echo "This Python has neither venv nor pip; on Debian: apt install python3-venv" >&2; \
		exit 1; \
	fi
