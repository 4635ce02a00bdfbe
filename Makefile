PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-chaos test-rest check format lint typecheck layers chaos bench wheel-check clean

demo: $(STAMP)
	$(BIN)/exeunt run configs/plan.toml
	$(BIN)/exeunt run configs/research.toml

# Two halves side by side: each waits for processes most of its time.
test: check
	$(MAKE) --jobs=2 --output-sync=target test-chaos test-rest

test-chaos: $(STAMP)
	$(BIN)/python -P -m pytest -q tests/chaos tests/chaos_tree

test-rest: $(STAMP)
	$(BIN)/python -P -m pytest -q --ignore=tests/chaos --ignore=tests/chaos_tree

check: lint typecheck layers

chaos: $(STAMP)
	EXEUNT_KILL_POINTS=5000 EXEUNT_TREE_POINTS=5000 $(BIN)/python -P -m pytest -q tests/chaos tests/chaos_tree
	$(BIN)/python -P -m pytest -q -m long

bench: $(STAMP)
	$(BIN)/python examples/bench.py
	$(BIN)/python examples/bench_tree.py
	$(BIN)/python examples/bench_window.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

typecheck: $(STAMP)
	$(BIN)/pyright

layers: $(STAMP)
	$(BIN)/lint-imports

# The wheel holds just the two packages: build it, install it elsewhere, and run the tests there.
wheel-check: $(STAMP)
	rm -rf build/wheel-check && mkdir -p build/wheel-check
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir build/wheel-check .
	$(PYTHON) -m venv build/wheel-check/venv
	build/wheel-check/venv/bin/pip install --quiet "$$(ls build/wheel-check/*.whl)[dev]"
	cp -r tests configs examples pyproject.toml build/wheel-check/
	cd build/wheel-check && venv/bin/python -P -m pytest -q

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache
