# make help says what there is. Everything runs from .venv, made from requirements.lock.

PYTHON ?= python3
# Two test processes suit two cores: `make test JOBS=8` on a larger machine, JOBS=0 to run in one process.
JOBS ?= 2
# More arguments for pytest: make test ARGS="-k names -x"
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -n $(JOBS)
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check test-slow bench format lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1 | \2/p' Makefile | column -t -s '|' 2>/dev/null || grep '## ' Makefile

demo: $(STAMP) ## train, kill, resume: the weights of a run that was never killed
	$(BIN)/python examples/demo.py

test: check ## the linters, then all tests but the slow ones
	$(PYTEST) $(ARGS)

check: $(STAMP) ## format, lint, types, and the walls between the rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# pytest exits with 5 when there is nothing to run; any other failure to collect shows in the run itself.
test-slow: $(STAMP) ## the slow tests
	@$(BIN)/python -m pytest -m slow --collect-only -qq $(ARGS) >/dev/null 2>&1; \
	if [ $$? -eq 5 ]; then echo "There is no slow test."; \
	else echo '$(PYTEST) -m slow $(ARGS)'; $(PYTEST) -m slow $(ARGS); fi

bench: $(STAMP) ## speed, beside Orbax in the same run
	$(BIN)/python bench/run.py

format: $(STAMP) ## format, and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## requirements.lock anew, with the newest versions that pyproject.toml allows
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip --disable-pip-version-check install '.[dev]'
	.venv-lock/bin/python -m pip --disable-pip-version-check freeze --exclude storax \
		| tr 'A-Z_' 'a-z-' | LC_ALL=C sort > requirements.lock
	rm -rf .venv-lock

clean: ## everything that make made
	rm -rf .venv .venv-lock dist demo .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A Python whose venv cannot bring pip (ensurepip is a package of its own on some systems) lends its own pip.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "storax needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1)." >&2; \
		echo "Name another one: make PYTHON=python3.12 $(or $(MAKECMDGOALS),test)" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "Making .venv with $$($(PYTHON) --version)"; \
		$(PYTHON) -m venv --clear .venv >/dev/null 2>&1 || { \
			$(PYTHON) -m venv --clear --without-pip .venv && \
			$(PYTHON) -m pip --python .venv/bin/python install pip; }; }
	$(PIP) install --quiet --no-deps -r requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@
