# What a developer does here. Every target works on a fresh machine with python3, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := .cache
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# tests start the program some hundred times: without compiled files each start takes twice as long
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run check test test-on-kubernetes mutants branches pictures probe image test-in-image faults soak fuzz bench profile bench-compare hardware hardware-wheels lint format protos docs golden dashboards reference dictionary lock release clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { \
		line = sprintf("%-23s", "make " $$1); count = split($$2, words, " "); \
		for (i = 1; i <= count; i++) { \
			if (length(line) + length(words[i]) > 78) { print line; line = sprintf("%23s", "") } \
			line = line " " words[i] } \
		print line }' $(MAKEFILE_LIST)

run: $(VENV)/installed  ## a simulated GPU node with the exporter in front of it, on :9400
	@$(BIN)/pod-gpu-metrics-exporter demo $(ARGS)

# The tests of what decides wait for nobody. They try the same random examples each time: a hundred of each history, and a
# fifth of the others. Lint runs beside them, and its output comes after theirs.
PURE := $(wildcard $(addprefix tests/,accounts dcgm dividing exposition model outputs ownership report usage))
HALF_OF_CHECK := $(addprefix tests/,accounts dividing ownership usage)
CHECKED := $(filter-out $(HALF_OF_CHECK),$(PURE)) $(addprefix tests/repository/test_,sizes.py tests.py mutants.py) \
	$(addprefix --ignore=tests/report/,test_command.py history/test_prometheus_api.py)
check: $(VENV)/installed-dev  ## lint, and the tests of the rooms that decide, in a minute: before each commit
	@mkdir -p $(CACHE)
	@$(MAKE) --no-print-directory lint >$(CACHE)/lint.log 2>&1 & lint=$$!; failed=0; \
		$(BIN)/python -m tests.support.side_by_side $(BIN)/pytest -q --quick + $(CHECKED) + $(HALF_OF_CHECK) || failed=1; \
		wait $$lint || failed=1; cat $(CACHE)/lint.log; exit $$failed

# A + begins the arguments of one pytest. First comes what no line names, then the longest runs; the last ones are short, so
# that no processor rests at the end.
# The kernel has one set of probes for all programs of a machine, so that tests of the CUDA probe run one after the other.
OF_PROBE := $(addprefix tests/,probe cuda end_to_end/test_cuda_probe.py end_to_end/test_hostile_programs.py)
LONG := tests/end_to_end
HALF_OF_LONG := $(filter-out $(OF_PROBE),$(wildcard $(LONG)/test_[a-h]*.py))
HALF_OF_NODE := $(wildcard tests/node/test_[a-l]*.py)
RUNS := + $(HALF_OF_LONG) \
	+ $(filter-out $(HALF_OF_LONG) $(OF_PROBE),$(wildcard $(LONG)/test_*.py)) \
	+ $(addprefix tests/,accounts report simulator bundle) \
	+ $(addprefix tests/,sources allocated cluster hardware) \
	+ $(OF_PROBE) \
	+ tests/faults \
	+ tests/browser \
	+ $(filter-out $(HALF_OF_NODE),$(wildcard tests/node/test_*.py)) \
	+ $(addprefix tests/,cli doctor top web) \
	+ $(HALF_OF_NODE) \
	+ tests/operator \
	+ tests/rules \
	+ tests/kubectl \
	+ $(addprefix tests/,exposition fuzz outputs ownership)
OF_IMAGE := tests/image
test: $(VENV)/installed-dev  ## every test but those of the image; first it fetches Prometheus and others into .cache
	@tests/get-real-components $(CACHE)/real
	@release/compile-probe --if-possible
ifdef ARGS
	@$(BIN)/pytest $(ARGS)
else
	@$(BIN)/python -m tests.support.side_by_side $(BIN)/pytest -q \
		+ $(patsubst %,--ignore=%,$(OF_IMAGE) $(filter-out +,$(RUNS))) $(RUNS)
endif

# The tests that ask a Kubernetes API: whole folders, and elsewhere the files that know a real one (IS_REAL) or ask it alone
# (pytest's marker `kubernetes`).
KUBERNETES := $(CURDIR)/$(CACHE)/kubernetes
ASK_KUBERNETES := $(addprefix tests/,kubectl operator sources/kubernetes)
ALSO_ASK = $(addprefix tests/node/test_,admin_access.py claims.py) $(filter-out $(ASK_KUBERNETES:%=%/%), \
	$(shell grep -rlE 'IS_REAL|mark\.kubernetes' --include='test_*.py' tests))
test-on-kubernetes: export KUBEBUILDER_ASSETS := $(or $(KUBEBUILDER_ASSETS),$(KUBERNETES))
test-on-kubernetes: $(VENV)/installed-dev  ## the tests that ask a Kubernetes API, on a real one, which it builds once; SOURCE=folder of a clone
	@tests/get-real-components $(CACHE)/real
	@[ "$$KUBEBUILDER_ASSETS" != $(KUBERNETES) ] || tests/build-kubernetes $(KUBERNETES)
	@$(BIN)/python -m tests.support.side_by_side $(BIN)/pytest \
		+ $(or $(ARGS),$(filter-out %/operator,$(ASK_KUBERNETES)) $(ALSO_ASK) + $(filter %/operator,$(ASK_KUBERNETES)))

# A fork for each change runs only the tests that reach it, so 200 changes take ten minutes or more. tests/mutants/ says more.
ROOM := ownership
SAMPLE := 200
SEED := 1
mutants: $(VENV)/installed-dev  ## the changes of ROOM's code that no test of `make check` notices, of SAMPLE=200 chosen by SEED=1; FAULTS=1: which of 31 faults made by hand
	@$(BIN)/python -m tests.mutants $(if $(FAULTS),--faults,--room "$(ROOM)" --sample $(SAMPLE) --seed $(SEED)) $(ARGS) \
		-- --quick $(HALF_OF_CHECK) $(CHECKED)

# To count branches takes as long again as the tests, and fails nothing: it is for reading. Of some tests alone the figure
# of the rooms that they are not about says nothing.
WHERE := $(PURE)
branches: $(VENV)/installed-dev  ## the branches that the tests in WHERE do not take, those of the rooms that decide by default
	@mkdir -p $(CACHE)
	@$(BIN)/coverage run -m pytest -q -p no:cacheprovider $(WHERE)
	@$(BIN)/coverage json -q -o $(CACHE)/coverage.json
	@$(BIN)/python -m tests.support.branches $(CACHE)/coverage.json

pictures: $(VENV)/installed-dev  ## the pictures in docs/img, and samples in docs/: the page and the report by Chromium, dashboards, top
	@tests/get-real-components $(CACHE)/real
	@$(BIN)/python -m tests.browser.pictures docs/img
	@$(BIN)/python -m tests.browser.top_picture docs/img/top.svg

probe:  ## the CUDA probe's program, for x86-64 and arm64; it needs clang, llvm and libbpf-dev
	@release/compile-probe

image: $(VENV)/installed-dev  ## the image, built without a container engine, in .cache/image; as root
	@tests/get-real-components $(CACHE)/real
	@tests/build-image $(CACHE)/image localhost/pod-gpu-metrics-exporter >/dev/null

# The tests that another Python may answer otherwise: those of TLS, sockets, the event loop and programs. What needs the
# machine's own tools stays outside: curl, ip, tmux, kubectl, Helm's engine, a second program, a compiler. So does arithmetic.
# They run as two pytests side by side.
SOCKETS := $(addprefix web/test_,connections.py guard.py protection.py) $(addprefix sources/test_,pause.py polled.py single_flight.py worker.py) \
	sources/pages $(addprefix sources/kubelet/test_,kubelet_pods.py pod_resources.py socket.py) \
	$(addprefix sources/kubernetes/test_,api.py node_objects.py) sources/kernel_log/test_kernel_log_source.py \
	cluster/exporters/test_exporters_source.py $(addprefix cluster/keda/test_,connections.py tls.py) report/history/test_prometheus_api.py \
	test_pulse.py test_reload.py test_threads.py $(addprefix end_to_end/test_,many_nodes.py restart.py)
PROGRAMS := $(addprefix cli/test_,command_line.py completion.py first_minutes.py) $(addprefix report/test_,command.py interrupt.py) \
	$(addprefix doctor/test_,asked_exporter.py bundling.py doctor.py doctor_of_api.py running_settings.py) \
	$(addprefix top/test_,once.py real_exporter.py terminal.py transport.py) end_to_end/test_textfile.py
CAN_BE_IN_IMAGE := not test_curl and not nvml_alone and not without_dcgm and not cut_anywhere
test-in-image: image  ## the tests of the image as it is run, and some of the others on its Python; as root
	@$(BIN)/pytest -q $(OF_IMAGE) >$(CACHE)/image.log 2>&1 & of_image=$$!; failed=0; \
	tests/run-in-image $(CURDIR)/$(CACHE)/image localhost/pod-gpu-metrics-exporter -q \
		-k '$(CAN_BE_IN_IMAGE)' $(ARGS) + $(SOCKETS:%=tests/%) + $(PROGRAMS:%=tests/%) || failed=1; \
	wait $$of_image || failed=1; cat $(CACHE)/image.log; exit $$failed

lint: $(VENV)/installed-dev  ## ruff, mypy --strict, import-linter, drift of generated code, the docs' site
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory protos OUT=$(CACHE)/protos
	@diff -r -x __pycache__ -x __init__.py $(CACHE)/protos/exporter/_gen exporter/_gen \
		|| { echo "exporter/_gen is not what protos/ make of it: run 'make protos'"; exit 1; }
	@$(MAKE) --no-print-directory docs

format: $(VENV)/installed-dev  ## format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

faults: $(VENV)/installed-dev  ## every fault, what a scraper saw of it, and whether the promise was held
	@$(BIN)/python -m tests.faults $(ARGS)

MINUTES := 10
soak: $(VENV)/installed-dev  ## churn, restarts and 20 scrapers for MINUTES; memory, files and tasks over time
	@$(BIN)/python -m tests.faults.soak --minutes $(MINUTES)

SECONDS := 60
fuzz: $(VENV)/installed-dev  ## the readers of pages, device ids and others' answers, for SECONDS
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

bench: $(VENV)/installed-dev  ## speed and memory against what a user would pick instead, as ratios
	@$(BIN)/python -m benchmarks $(ARGS)

profile: $(VENV)/installed-dev  ## where the time of a steady scrape goes: a listing and a flame graph
	@$(BIN)/python -m benchmarks.profile

bench-compare: $(VENV)/installed-dev  ## the last `make bench` against a saved one: WITH=saved.json
	@$(BIN)/python -m benchmarks.compare $(WITH)

# On a bare machine: its own Python is left as it is, and nothing is fetched. tests/hardware/README.md
HARDWARE := .cache/hardware
PYTHONS := 3.12
MACHINE := x86_64
hardware:  ## the exporter on this machine's GPU beside nvidia-smi, in less than five minutes; OUT=folder, LIBRARY=a mock
	@PYTHONDONTWRITEBYTECODE=1 $(firstword $(wildcard $(BIN)/python) $(PYTHON)) -m tests.hardware \
		--out $(if $(filter .,$(OUT)),hardware-report,$(OUT)) $(if $(LIBRARY),--library $(LIBRARY)) $(ARGS)

hardware-wheels: | $(VENV)/bin/pip  ## what `make hardware` takes along to a machine without a network; PYTHONS="3.11 3.12", MACHINE=aarch64
	@release/compile-probe --if-possible
	@$(BIN)/python -m tests.hardware.wheels $(HARDWARE)/wheels $(PYTHONS:%=--python %) --machine $(MACHINE)

OUT := .
protos: $(VENV)/installed-dev  ## generate exporter/_gen from protos/
	@mkdir -p $(OUT)/exporter/_gen
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -Iexporter/_gen=protos \
		--python_out=$(OUT) --mypy_out=quiet:$(OUT) protos/*.proto

docs: $(VENV)/installed-dev  ## the docs as a site, in .cache/site/html; a link or an anchor that leads nowhere fails
	@$(BIN)/python -m docs.generator.site
	@cd $(CACHE)/site && $(CURDIR)/$(BIN)/zensical build --strict

# A file is made before what is made of it: first dashboards and counters files, then the DaemonSet, then what the operator
# ships, then goldens and the chart's copies. A test compares a file with the bytes that it would write, so a second run
# changes nothing.
golden: $(VENV)/installed-dev dashboards reference  ## write anew all that is made of something else: goldens, copies, pages, dashboards
	@$(BIN)/pytest -q -rs --update-golden tests/dcgm/test_table.py tests/operator/test_shipped.py
	@$(BIN)/pytest -q -rs --update-golden $$(grep -rl 'golden: Golden' tests --include='test_*.py')

dashboards: $(VENV)/installed-dev  ## the part of `make golden` that writes the dashboards, deploy/grafana/*.json, with the chart's copies
	@$(BIN)/python -m deploy.grafana.generator
	@cp deploy/grafana/*.json deploy/helm/pod-gpu-metrics-exporter/files/dashboards/

reference: $(VENV)/installed-dev  ## the part of `make golden` that writes docs/: flags, endpoints, metrics, health, operator-fields, the map of rooms
	@$(BIN)/python -m docs.generator

dictionary: $(VENV)/installed-dev  ## DCGM's dictionary and the names in table.json, from DCGM's headers in HEADERS (release/dictionary.py)
	@$(BIN)/python -m release.dictionary $(HEADERS)

LOCK := pip-compile -q --generate-hashes --strip-extras --allow-unsafe --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host pyproject.toml
# CUDA 13.0: what compiles programs for the tests of the CUDA probe, and the library that these call
CUDA := cuda-nvcc==13.0.88 cuda-runtime==13.0.96 cuda-crt==13.0.88 nvvm==13.0.88
lock: $(VENV)/installed-dev  ## lock the dependencies of the image and of CI, with hashes
	@$(BIN)/$(LOCK) -o requirements.lock
	@$(BIN)/$(LOCK) --extra dev -o requirements-dev.lock
	@echo 'cyclonedx-bom' | $(BIN)/$(subst pyproject.toml,-,$(LOCK)) -o requirements-sbom.lock
	@printf 'nvidia-%s\n' $(CUDA) | $(BIN)/$(subst pyproject.toml,-,$(LOCK)) -o requirements-cuda.lock

release: $(VENV)/installed-dev  ## what a release consists of, in dist/, and its installation from there alone (as root)
	@tests/get-real-components $(CACHE)/real
	@release/build $(ARGS)

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(CACHE) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
		rm -rf $(VENV); \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing python3-venv ..."; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv \
				>/dev/null && $(PYTHON) -m venv $(VENV); \
		else \
			echo "python3-venv is missing: install it (Debian: apt-get install python3-venv), then run make again"; exit 1; \
		fi; }

$(VENV)/installed: pyproject.toml | $(VENV)/bin/pip
	@echo "Installing into $(VENV) ..."
	@$(BIN)/pip install -q -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml requirements-dev.lock | $(VENV)/bin/pip
	@echo "Installing what development needs into $(VENV) ..."
ifeq ($(CI),true)
	@$(BIN)/pip install -q --require-hashes -r requirements-dev.lock
	@$(BIN)/pip install -q --no-deps --no-build-isolation -e .
else
	@$(BIN)/pip install -q -e '.[dev]'
endif
	@touch $@ $(VENV)/installed
