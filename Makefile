# Two commands do all the set-up by themselves: `make audit` and `make test`.
PYTHON ?= python3

# LOCKED=1 installs what locks/ names and nothing else, each file held against its hash; LOCKED=cpu does with torch for
# the CPU, where an index offers it. Empty: what constraints.txt and the bounds allow. Each has its own environment.
LOCKED ?=
VENV := .venv$(if $(LOCKED),-locked-$(LOCKED))
WHEEL_VENV := $(VENV)-wheel
BIN := $(VENV)/bin
INSTALL := python -m pip install --quiet --disable-pip-version-check
HASHED := $(INSTALL) --require-hashes --no-deps
FULL := '.[test,docs]'
HASHED_TORCH := $(if $(filter cpu,$(LOCKED)),--requirement locks/cpu.txt)

# Public data sets for the tests that want them: unpacked once if the pack lies beside the project, else those tests skip.
DATA_PACK := $(wildcard ../shared/data/unpack.py)
TEST_DATA := .test-data
export LEAKGAUGE_DATA ?= $(CURDIR)/$(TEST_DATA)

.DELETE_ON_ERROR:
.PHONY: audit test lint types without-data unit docs wheel built sbom locks clean help

help:
	@echo "make audit   set up, run the default audit on embedded data, print the verdict and the report's path"
	@echo "make test    set up, run everything CI runs: lint, types, tests, docs, the built wheel"
	@echo "make clean   remove what the two made"
	@echo "LOCKED=1     with any of them: install only files whose hashes are in locks/ (LOCKED=cpu: torch for the CPU)"
	@echo "make sbom    build the wheel and write its bill of materials (CycloneDX) beside it"
	@echo "make locks   write locks/ anew from what pip picks today"

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
wheel: built
	test -x $(WHEEL_VENV)/bin/python || $(PYTHON) -m venv $(WHEEL_VENV)
	$(call install,$(WHEEL_VENV),core,dist/*.whl)
	$(WHEEL_VENV)/bin/$(INSTALL) --no-deps --force-reinstall dist/*.whl
	cd $(WHEEL_VENV) && rm -rf run && bin/leakgauge audit --data digits --trials 2 --attacks "linear idlg:steps=10" \
		--defenses gaussian:std=1 --out run --fresh > run.log && test -s run/report.html && tail -n 3 run.log

# The same commit gives the same bytes: the times in the wheel are the last commit's, or SOURCE_DATE_EPOCH.
built: $(VENV)/.full
	rm -rf dist build
	$(BIN)/python tools/build_wheel.py dist

# What the wheel brings along, with licences and hashes: dist/leakgauge-VERSION.cdx.json.
sbom: built
	$(BIN)/python tools/sbom.py dist/*.whl

# Stamps: a second call installs nothing. Only complete installs leave one.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "leakgauge needs Python 3.11.4 or later; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt $(if $(LOCKED),$(wildcard locks/*.txt)) | $(VENV)/bin/python
	@echo "installing (about a minute) ..."
	$(call install,$(VENV),core,--editable .)
	touch $@

$(VENV)/.full: $(VENV)/.core
	@echo "installing what tests and docs need ..."
	$(call install,$(VENV),test,--editable $(FULL))
	touch $@

# $(call install,environment,lock,project). A build of torch with CUDA wants more than the lock holds; pip says so.
install = $(if $(LOCKED),$(locked),$(1)/bin/$(INSTALL) --constraint constraints.txt $(3))
define locked
$(1)/bin/$(HASHED) --requirement locks/$(2).txt $(HASHED_TORCH)
$(1)/bin/python -m pip check > /dev/null || $(1)/bin/$(HASHED) --requirement locks/cuda.txt
$(1)/bin/$(INSTALL) --no-deps --no-build-isolation $(3)
$(1)/bin/python -m pip check
endef

locks: $(VENV)/.core
	$(BIN)/python tools/lock.py $(if $(filter Linux,$(shell uname)),--cuda)

$(TEST_DATA)/.unpacked: $(DATA_PACK) | $(VENV)/.core
	$(BIN)/python $(DATA_PACK) $(TEST_DATA)
	touch $@

clean:
	rm -rf .venv .venv-* $(TEST_DATA) dist build docs/_build docs/_generated leakgauge-runs
