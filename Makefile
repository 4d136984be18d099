# Set-up, run, test and measure. Each target does the set-up it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: run base test setup lint packages unit bench score clean
run: base setup
	@if ls /sys/class/infiniband/* >/dev/null 2>&1; then exec $(BIN)/fabricd up; else exec $(BIN)/fabricd up --twin incast; fi

test: packages setup lint unit

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV) || { deploy/debian-packages base && $(PYTHON) -m venv --clear $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[aggregator,snmp,ui,placement,dev]'
	touch $@

base:
	deploy/debian-packages base

packages:
	deploy/debian-packages all

lint: setup
	$(BIN)/ruff check fabricd tests benchmarks
	$(BIN)/mypy --strict fabricd

unit: setup
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

bench: packages setup
	$(BIN)/python -m benchmarks

score: setup
	$(BIN)/python -m benchmarks.score

clean:
	rm -rf $(VENV)
