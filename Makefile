# Two commands do all the set-up by themselves: `make audit` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WHEEL_VENV := .venv-wheel

# Public data sets for the tests that want them: unpacked once if the pack lies beside the project, else those tests skip.
DATA_PACK := $(wildcard ../shared/data/unpack.py)
TEST_DATA := .test-data
export LEAKGAUGE_DATA ?= $(CURDIR)/$(TEST_DATA)

.DELETE_ON_ERROR:
.PHONY: audit test lint types without-data unit docs wheel clean help

help:
	@echo "make audit   set up, run the default audit on embedded data, print the verdict and the report's path"
	@echo "make test    set up, run everything CI runs: lint, types, tests, docs, the built wheel"
	@echo "make clean   remove what the two made"

audit: $(VENV)/.core
	$(BIN)/leakgauge audit --out leakgauge-runs/default

test: lint types without-data unit docs wheel

lint: $(VENV)/.full
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.full
	$(BIN)/mypy

# A machine without data sets: every test that wants one must skip, none may fail or pass.
without-data: $(VENV)/.full
	$(BIN)/python -m pytest --without-data -rs

unit: $(VENV)/.full $(if $(DATA_PACK),$(TEST_DATA)/.unpacked)
	-test -d $(TEST_DATA)/lpips || $(BIN)/leakgauge data fetch lpips --data-root $(TEST_DATA)
	$(BIN)/python -m pytest -n 2 --dist worksteal

docs: $(VENV)/.full
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# The wheel must install in an empty environment and audit there.
wheel: $(VENV)/.full
	rm -rf dist build
	$(BIN)/python -m build --wheel --outdir dist . > /dev/null
	test -x $(WHEEL_VENV)/bin/python || $(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	$(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall dist/*.whl
	cd $(WHEEL_VENV) && rm -rf run && bin/leakgauge audit --data digits --trials 2 --attacks "linear idlg:steps=10" \
		--defenses gaussian:std=1 --out run --fresh > run.log && test -s run/report.html && tail -n 3 run.log

# Stamps: a second call installs nothing. Only complete installs leave one.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "leakgauge needs Python 3.11.4 or later; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing (about a minute) ..."
	$(PIP) --editable .
	touch $@

$(VENV)/.full: $(VENV)/.core
	@echo "installing what tests and docs need ..."
	$(PIP) --editable '.[test,docs]'
	touch $@

$(TEST_DATA)/.unpacked: $(DATA_PACK) | $(VENV)/.core
	$(BIN)/python $(DATA_PACK) $(TEST_DATA)
	touch $@

clean:
	rm -rf $(VENV) $(WHEEL_VENV) $(TEST_DATA) dist build docs/_build docs/_generated leakgauge-runs
