# Everything a checkout needs: `make run` and `make test` set up what they use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 1000
SECONDS ?= 60
RUNS ?= 20000
LEAVES ?= 10000
# A test waits for processes: twice as many workers as cores. Each takes 330 MB, and 11 s of a processor to begin.
PYTEST_WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 6 ? 2 * cores : 12)))
# Compiled files are kept even where the environment says not to: each of hundreds of processes would compile all again.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
CONFIG ?= config/demo
CHECKS := tests/test_tidy.py tests/test_docs.py tests/test_layers.py tests/test_origins.py tests/test_typing.py
IMAGE ?= tenure
BUILDER ?= docker
LOCK = uv pip compile --quiet --generate-hashes --no-header --no-annotate --no-emit-index-url --universal --python-version 3.11

.DEFAULT_GOAL := help
.PHONY: help run test test-long test-lowest test-mutants collected lint types house check unit sim sim-mutants mutations model e2e e2e-systemd e2e-container init-check chaos bench bench-election bench-presence bench-imports bench-schedules bench-workers chaos-workers rolling-update chaos-fan-out cron-scan deploy-check lock audit dist sbom chart image checksums clean

help:  ## Show this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

# The interpreter's own message about an old Python is a syntax error deep inside a module; say it first.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Tenure needs Python 3.11 or newer, this is %s; run make PYTHON=/path/to/python3.11" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'

# Only files whose digests the locks name; `make lock` renews them.
INSTALL := -m pip install --quiet --disable-pip-version-check
LOCKED := $(INSTALL) --require-hashes --requirement
OURSELVES := $(INSTALL) --no-deps --no-build-isolation --editable .

$(VENV)/.run: pyproject.toml requirements/image.txt requirements/build.txt | $(BIN)/python
	$(BIN)/python $(LOCKED) requirements/image.txt --requirement requirements/build.txt
	$(BIN)/python $(OURSELVES)
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	$(BIN)/python $(LOCKED) requirements/dev.txt
	@touch $@

run: $(VENV)/.run  ## Run the demo: embedded server, identity jobs on SQLite, http://127.0.0.1:8080
	exec $(BIN)/tenure run --config $(CONFIG)

test: $(VENV)/.dev  ## Run every check and every test but the long ones (4 to 6 minutes on 2 cores)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=recurse lint collected
	$(PYTEST) -n $(PYTEST_WORKERS) --dist loadgroup --durations 10

test-long: $(VENV)/.dev  ## Run the tests that take long because they must, and properties on more examples; nightly in CI
	$(PYTEST) -m "long or hypothesis" --hypothesis-profile deep --timeout 600 -n 2 --dist loadgroup --durations 10

# Once, before each worker of pytest compiles all tests for itself.
collected: $(VENV)/.dev
	@$(PYTEST) --collect-only -q > $(VENV)/collected.txt || { cat $(VENV)/collected.txt; exit 1; }

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

types: $(VENV)/.dev  ## Have pyright judge the calls of users in tests/typing, as make check has mypy; needs a package index
	$(BIN)/python $(LOCKED) requirements/typing.txt
	$(BIN)/python -m tests.typing.judge pyright

house: $(VENV)/.dev  ## Measure the size and shape of the product: folders, names, docstrings, duplicated code
	$(BIN)/python -m bench.house

check: lint  ## Lint, types, import contracts, tidy limits, documents that resolve; part of make test
	$(PYTEST) -q -p no:randomly -p no:cacheprovider $(CHECKS)

test-lowest:  ## Run units, simulation and one tree on the lowest versions that pyproject.toml allows; needs Python 3.11
	$(PYTHON) -m venv $(VENV)/lowest
	$(VENV)/lowest/bin/python $(LOCKED) requirements/lowest.txt
	$(VENV)/lowest/bin/python $(OURSELVES)
	PYTHONDONTWRITEBYTECODE= $(VENV)/lowest/bin/python -m pytest -q -n $(PYTEST_WORKERS) --dist loadgroup tests/unit tests/simulation tests/e2e/test_one_command.py

unit: $(VENV)/.dev  ## Run the unit layer only (seconds)
	$(PYTEST) -q -n 2 tests/unit

sim: $(VENV)/.dev  ## Simulate elections and fires: make sim SEEDS=10000
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

sim-mutants: $(VENV)/.dev  ## Break scripts and state machine one at a time; each break must be caught
	$(BIN)/python -m tests.simulation --mutants
	$(PYTEST) -q -m "" tests/integration/store/queues/test_store_mutants.py

test-mutants: $(VENV)/.dev  ## Change one token of core/, store/ or roles/ at a time, drawn by a seed; the nearest tests must see it: COUNT=30
	$(BIN)/python -m tests.mutation_sample $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

mutations: $(VENV)/.dev  ## Give pools envelopes that something broke: make mutations TENURE_MUTATIONS=10000
	TENURE_MUTATIONS=$(or $(TENURE_MUTATIONS),10000) $(PYTEST) -q tests/integration/roles/worker/test_worker_mutations.py tests/integration/store/queues/test_store_hostile_values.py

model: $(VENV)/.dev  ## Explore the lease and fire protocol exhaustively, beyond the bounds of make test (minutes)
	$(BIN)/python -m tests.model

e2e: $(VENV)/.dev  ## Run whole trees as a user would: kill -9, two replicas, crontab
	$(PYTEST) -q tests/e2e

e2e-systemd: $(VENV)/.dev  ## Boot a real systemd and hold the unit against its comments; needs root, systemd-nspawn, mmdebstrap
	$(BIN)/python -m tests.machines systemd

e2e-container: $(VENV)/.dev  ## Build and run the image; needs root, podman, runc, mmdebstrap
	$(BIN)/python -m tests.machines container

init-check: $(VENV)/.dev  ## Do what README and tenure init say, from a wheel, in an empty environment, timed; needs a package index
	$(BIN)/python -m tests.machines init

chaos: $(VENV)/.dev  ## Kill, pause and restart everything at random: make chaos SECONDS=120
	$(BIN)/python -m tests.e2e.chaos --seconds $(SECONDS)

chaos-workers: $(VENV)/.dev  ## Kill, pause and restart all around many runs: make chaos-workers RUNS=100000 SECONDS=300
	$(BIN)/python -m tests.e2e.chaos_workers --runs $(RUNS) --seconds $(SECONDS)

rolling-update: $(VENV)/.dev  ## Update from an older revision under load, go back, and update again: make rolling-update OLD=v0.1.0
	$(BIN)/python -m tests.e2e.rolling_update --old $(OLD)

bench: $(VENV)/.dev  ## Measure; prints medians and ratios
	$(BIN)/python -m bench

bench-election: $(VENV)/.dev  ## Measure the election against its goals (10 minutes): make bench-election ROWS=handover,killed
	$(BIN)/python -m bench.election $(if $(ROWS),--rows $(ROWS))

bench-presence: $(VENV)/.dev  ## Count wrong takeovers by presence under stalls, reconnects and restarts: SECONDS=300
	$(BIN)/python -m bench.presence --seconds $(SECONDS)

bench-imports: $(VENV)/.dev  ## Measure what importing tenure, declaring a job and connecting cost
	$(BIN)/python -m bench.imports

bench-schedules: $(VENV)/.dev  ## Measure schedules against their goals (minutes): make bench-schedules ROWS=rate-1000,cost
	$(BIN)/python -m bench.schedules $(if $(ROWS),--rows $(ROWS))

bench-workers: $(VENV)/.dev  ## Measure queues and workers against their goals (minutes): make bench-workers ROWS=async,killed
	$(BIN)/python -m bench.workers $(if $(ROWS),--rows $(ROWS))

$(VENV)/peers/bin/gunicorn: | $(BIN)/python
	$(PYTHON) -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip install --quiet --disable-pip-version-check gunicorn uvicorn circus supervisor 'setuptools<81'

bench-supervision: $(VENV)/.dev $(VENV)/peers/bin/gunicorn  ## Measure the process tree against its goals and beside its peers (10 minutes): ROWS=death,idle
	$(BIN)/python -m bench.supervision_peers $(VENV)/peers/bin
	$(BIN)/python -m bench.supervision $(if $(ROWS),--rows $(ROWS))

chaos-fan-out: $(VENV)/.dev  ## Kill workers at random under a tree of ten thousand runs; its counters must be exact: make chaos-fan-out LEAVES=10000
	$(BIN)/python -m tests.e2e.chaos_fan_out --leaves $(LEAVES)

cron-scan: $(VENV)/.dev  ## Compare the cron engine with brute force in every time zone, 2024 to 2030 (minutes)
	$(BIN)/python -m tests.cron_scan

deploy-check: $(VENV)/.dev  ## Render kustomize and chart, validate them, test the alert rules; needs kubectl >= 1.27 and promtool
	@command -v kubectl >/dev/null && command -v promtool >/dev/null || { echo "deploy-check needs kubectl (>= 1.27) and promtool in PATH; install them, or run make test, which checks the files without them" >&2; exit 2; }
	@for each in base overlays/dev overlays/production overlays/replicas-dev overlays/split-roles; do \
		kubectl kustomize deploy/kustomize/$$each > $(VENV)/rendered.yaml \
		&& $(BIN)/kubernetes-validate --strict --quiet -k 1.33 $(VENV)/rendered.yaml && echo "$$each: valid" || exit 1; done
	@for each in deploy/helm/examples/*.yaml; do \
		$(BIN)/python tests/integration/deploy/charting.py render $$each > $(VENV)/rendered.yaml 2> $(VENV)/rendered.log || { cat $(VENV)/rendered.log; exit 1; }; \
		$(BIN)/kubernetes-validate --strict --quiet -k 1.33 $(VENV)/rendered.yaml && echo "$$each: valid" || exit 1; done
	promtool check rules deploy/prometheus/tenure.rules.yaml
	promtool test rules deploy/prometheus/tenure.tests.yaml

lock:  ## Renew requirements/*.txt from pyproject.toml; needs uv
	$(LOCK) pyproject.toml --output-file requirements/image.txt
	$(LOCK) --group build --output-file requirements/build.txt
	$(LOCK) --group audit --output-file requirements/audit.txt
	$(LOCK) --group typing --output-file requirements/typing.txt
	$(LOCK) pyproject.toml --group dev --group deploy --group release --group build \
		--constraints requirements/image.txt --output-file requirements/dev.txt
	$(LOCK) --resolution lowest-direct pyproject.toml --all-extras --group test --group build --output-file requirements/lowest.txt

audit: | $(BIN)/python  ## Ask for known vulnerabilities of what is locked, and for weaknesses of the workflows
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python $(LOCKED) requirements/audit.txt
	$(VENV)/audit/bin/pip-audit --disable-pip --require-hashes --requirement requirements/image.txt
	$(VENV)/audit/bin/zizmor --offline --min-severity medium .github/workflows

dist: $(VENV)/.dev  ## Build wheel and sdist into dist/, and check that the version is a release's: make dist TAG=v0.1.0
	$(if $(TAG),$(BIN)/python -m tests.releasing $(TAG))
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

sbom: dist  ## Write dist/tenure.cdx.json: what an installation of the wheel brings, as CycloneDX
	rm -rf $(VENV)/sbom && $(PYTHON) -m venv --without-pip $(VENV)/sbom
	$(BIN)/python -m pip --python $(VENV)/sbom/bin/python install --quiet --disable-pip-version-check --require-hashes --requirement requirements/image.txt
	$(BIN)/python -m pip --python $(VENV)/sbom/bin/python install --quiet --disable-pip-version-check --no-deps dist/*.whl
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o dist/tenure.cdx.json $(VENV)/sbom/bin/python

chart: $(VENV)/.dev  ## Package the chart into dist/
	mkdir -p dist
	$(BIN)/python tests/integration/deploy/charting.py package dist

image:  ## Build the image with docker or podman: make image IMAGE=tenure:0.1.0 BUILDER=podman
	$(BUILDER) build --tag $(IMAGE) .

checksums: sbom chart  ## Write dist/SHA256SUMS over everything that is released as a file
	rm -f dist/SHA256SUMS
	sums=$$(cd dist && sha256sum -- *) && printf '%s\n' "$$sums" > dist/SHA256SUMS && cat dist/SHA256SUMS

clean:  ## Remove the virtual environment, caches and the demo's data
	rm -rf $(VENV) .tenure .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
