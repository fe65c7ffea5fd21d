# Every target does its own set-up: a virtual environment in .venv, pinned by constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
INSTALLED := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-all test-gpu lint docs system-deps fuzz bench bench-all torture clean help

help:
	@echo "make demo         install, then run the demo: a sweep on the embedded model, its verdict and report"
	@echo "make test         install, then style, types, import contracts and all fast tests"
	@echo "make test-all     the same with the slow tests (two more virtual environments)"
	@echo "make docs         install, then write the documentation as a site into build/site; it needs no network"
	@echo "make test-gpu     the tests of the engine on a CUDA device, where there is one"
	@echo "make fuzz         install, then 10,000 generated bad inputs to every command and file (ten minutes)"
	@echo "make bench        install, then measure decoding against a reference and the machine's limit (15 minutes)"
	@echo "make bench-all    the same and every other benchmark (more than an hour)"
	@echo "make torture      install, then kill, fill and close things a thousand times, and find nothing lost (half an hour)"
	@echo "make system-deps  optional Debian packages: bubblewrap for model-written code; SLURM and Chromium for tests (as root)"

# torch comes first and pinned: an open range would fetch gigabytes of another build.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install torch -c constraints.txt
	$(PIP) install -e ".[dev,docs,eval,plot,slurm]" -c constraints.txt
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/unmask demo

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict
	@echo "build/site/index.html is written."

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

test-all: lint
	$(BIN)/pytest -n 2 --dist worksteal --durations 10

test-gpu: $(INSTALLED)
	UNMASK_TEST_DEVICE=cuda $(BIN)/pytest tests/engine tests/policies tests/device/on_device.py tests/device/on_families.py

fuzz: $(INSTALLED)
	nice -n 10 $(BIN)/python tests/fuzz/fuzz.py

bench: $(INSTALLED)
	$(BIN)/python benchmarks/decode.py

BENCHMARKS := batching canvas prefix growth where_time_goes memory layouts reuse scoring store

bench-all: bench
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done

# As root it also fills and closes file systems of its own; elsewhere the summary counts those rounds as skipped.
torture: $(INSTALLED)
	$(BIN)/python tests/torture/torture.py

# Tests use these where they are present: a private SLURM with and without accounting, a browser, and the sandbox
# of model-written programs.
SYSTEM_PACKAGES := slurmctld slurmd slurm-client munge slurmdbd mariadb-server chromium bubblewrap

system-deps:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(SYSTEM_PACKAGES)

clean:
	rm -rf $(VENV) .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
