# `make test` sets up everything and runs all checks; it is what CI runs.
PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/

# Tests start hundreds of programs. If Python is set to keep no bytecode, each of them would compile all modules again.
# The bytecode is then kept in build/.
ifneq ($(PYTHONDONTWRITEBYTECODE),)
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/build/pycache
endif

.PHONY: run test setup compiled dist lock sbom audit deb image docs man lint check laws interop bench kills stream-kills powercuts explore simulate cluster-runs fuzz guided nightly clean

# a broker with the web console, and its store in ./data; installs what is missing
run: venv/run-ready
	@venv/bin/cairnmq dev --store-dir ./data

venv/run-ready: pyproject.toml scripts/debian-packages scripts/install-debian-packages scripts/install-python-packages
	@scripts/install-debian-packages debian-packages
	@test -x venv/bin/python || $(PYTHON) -m venv venv
	@echo "make run installs CairnMQ and its Python packages in ./venv; this takes a minute or two"
	@scripts/install-python-packages venv '.[console]'
	@touch $@

test: setup
	$(MAKE) --no-print-directory --jobs=2 lint compiled
	$(MAKE) --no-print-directory check

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml scripts/debian-packages scripts/debian-packages-for-tests scripts/install-python-packages
	@scripts/install-debian-packages debian-packages debian-packages-for-tests
	$(PYTHON) -m venv $(VENV)
	scripts/install-python-packages $(VENV) '.[dev,interop]'
	touch $@

# a wheel and a source distribution, in dist/, byte by byte the same from the same commit
dist: setup
	rm -rf dist
	$(RUN)python scripts/build_dist.py dist

# programs that make and check packages, in build/tools
TOOLS = build/tools/bin/
build/tools/ready: packaging/tools.txt
	$(PYTHON) -m venv build/tools
	$(TOOLS)pip install --quiet --requirement packaging/tools.txt
	touch $@

# versions and hashes of all that the Debian package and the image contain; UPGRADE=--upgrade takes the newest versions
lock: build/tools/ready
	$(TOOLS)uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' $(UPGRADE) \
		$(patsubst %,--extra %,$(shell cat packaging/extras.txt)) --output-file packaging/requirements.lock pyproject.toml

# the contents of the packages as CycloneDX, in dist/
sbom: build/tools/ready
	mkdir -p dist
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(TOOLS)cyclonedx-py requirements \
		--pyproject pyproject.toml --output-reproducible --output-file dist/cairnmq.cdx.json packaging/requirements.lock

# the environment that builds the Debian package, without what tests need; it shares compiled wheels with the package
BUILD = build/env/bin/
build/env/ready: packaging/build-tools.txt pyproject.toml
	/usr/bin/python3 -m venv build/env
	$(BUILD)pip install --quiet --cache-dir build/pip-cache-deb --requirement packaging/build-tools.txt --editable .
	touch $@

# a Debian package for the Python of this Debian, in dist/
deb: build/env/ready
	rm -rf build/wheel
	$(BUILD)python scripts/build_dist.py build/wheel
	$(BUILD)python scripts/build_deb.py dist --wheel build/wheel/*.whl

# known vulnerabilities of the contents of the packages
audit: build/tools/ready
	$(TOOLS)pip-audit --disable-pip --require-hashes --strict --requirement packaging/requirements.lock

# the documentation site, in build/site; a broken link is an error, here and in each run of the tests
docs: setup
	NO_MKDOCS_2_WARNING=1 $(RUN)mkdocs build --strict --quiet

# man pages of all commands, in build/man
man: setup
	$(RUN)python scripts/man_pages.py build/man

lint: setup
	$(RUN)ruff check .
	$(RUN)mypy

# the bytecode of all tests, by one process beside mypy: otherwise each process of `make check` compiles all of them.
# Errors are left to `make check`, which reports them.
compiled: setup
	@$(RUN)pytest --collect-only --quiet --quiet > /dev/null 2>&1 || true

# more than there are cores: many tests wait, and explorations have processes of their own at a low priority. In a thorough
# run one process waits for the exploration of power cuts until the end.
PROCESSES ?= 6
MARKED = $(if $(shell command -v npm),(interop or not interop),not interop)
QUIET = $(filter-out 0,$(CAIRN_THOROUGH))
check: setup
	@status=0; \
	$(if $(QUIET),$(RUN)pytest -m quiet || status=$$?;) \
	$(RUN)pytest -m "$(MARKED)$(if $(QUIET), and not quiet)" -n $(PROCESSES) --dist loadfile --no-loadscope-reorder || status=$$?; \
	exit $$status

# the clients that npm has to fetch; `make check` runs them where there is npm
interop: setup
	$(RUN)pytest -m interop

# the tables of docs/explanation/benchmarks.md; takes a few minutes on a quiet machine
bench: setup
	$(RUN)python -m bench

# the laws again, over examples that no run before has drawn: make laws SEED=7
laws: setup
	CAIRN_LAWS=others $(RUN)pytest -m hypothesis --hypothesis-seed=$(SEED) -n 2 --dist loadfile

# a longer run of the SIGKILL test: make kills KILLS=2000 SEED=7
KILLS ?= 1000
SEED ?= 1
kills: setup
	CAIRN_KILLS=$(KILLS) CAIRN_SEED=$(SEED) $(RUN)pytest tests/kill --timeout=0

# a stream into Parquet, whose query is killed as often, and the broker twice as often: make stream-kills KILLS=20 SEED=7
stream-kills: KILLS = 20
stream-kills: setup
	CAIRN_QUERY_KILLS=$(KILLS) CAIRN_SEED=$(SEED) $(RUN)pytest tests/spark/test_exactly_once.py

# more power cuts on real file systems, as root: make powercuts CUTS=50000 SEED=7
CUTS ?= 2000
powercuts: setup
	CAIRN_CUTS=$(CUTS) CAIRN_SEED=$(SEED) $(RUN)pytest tests/powercut --timeout=0

# crash states beyond those of every run: make explore STATES=100000000 SEED=7; the report is in build/
STATES ?= 10000000
explore: setup
	mkdir -p build
	$(RUN)python -m tests.harness.recovery.shards --states $(STATES) --seed $(SEED) --report build/explore-$(SEED).txt

# more lives of a cluster than those of every run: make simulate RUNS=2000 SEED=7; seeds that fail are named
simulate: RUNS = 2000
simulate: setup
	$(RUN)python -m tests.harness.cluster.simulation $(SEED) $(RUNS)

# real corosync, brokers and clients in a lab, and all that can fail does: make cluster-runs RUNS=20 SEED=7; as root
cluster-runs: RUNS = 20
cluster-runs: setup
	$(RUN)python -m tests.harness.cluster.real_cluster $(SEED) $(RUNS)

# more bad input, from other seeds: make fuzz RUNS=1000000000 SEED=7; what fails is kept in build/fuzz
RUNS ?= 2000000
fuzz: setup
	$(RUN)python -m tests.fuzz.run --runs $(RUNS) --seed $(SEED)

# one target for a while, guided by coverage: make guided TARGET=message SECONDS=3600
TARGET ?= message
SECONDS ?= 600
guided: setup
	$(RUN)pip install --quiet --editable '.[fuzz]'
	$(RUN)python -m tests.fuzz.guided $(TARGET) -max_total_time=$(SECONDS)

# all tests, with more of everything random than in CI; takes hours: make nightly SEED=7
NIGHTLY = CAIRN_STATES=1000000 CAIRN_FAULTS=100000 CAIRN_FUZZ_RUNS=200000 CAIRN_SIMULATIONS=400 CAIRN_HANGS=60 \
	CAIRN_KILLS=40 CAIRN_CUTS=200 CAIRN_FORGERIES=400 CAIRN_FOLLOWED=60 CAIRN_FOLLOWINGS=60 CAIRN_FULL_DISKS=80 \
	CAIRN_NOTED_STATES=2000 CAIRN_CREATION_EVERY=4 CAIRN_CREATION_STEP=5 CAIRN_DEBIAN_13=1
nightly:
	CAIRN_THOROUGH=1 CAIRN_SEED=$(SEED) $(NIGHTLY) $(MAKE) --no-print-directory test

clean:
	rm -rf $(VENV) venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
