"""What holds for every test."""

import gc
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from distill.machine import interrupts

pytest_plugins = ("processes.left_over",)

# As the command line sets it: torch's threads must not spin while they wait, or busy cores make them crawl.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A shell that starts the tests in the background, or `nohup`, has them ignore these; so would all commands that tests
# start, and then no signal ends them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# No test asks a hub: one that looks for a model there is answered at once, and not after many tries.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A server of vLLM on a CPU is two processes and not three: each loads the libraries, which takes eight seconds.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

# No test pulls the plug: where something has to reach the disk, a test records the calls. Waiting for a busy disk
# takes longer than most tests.
os.fsync = lambda descriptor: None  # type: ignore[assignment]

# The same examples in every run: a failure can be looked at again, and no change is blamed for another's. No limit of
# time: a busy machine would break it.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

SLOWEST = (
    "student/distributed/test_processes.py",
    "integration/test_vllm.py",
    "integration/test_server.py",
    "integration/test_export_classes.py",
    "integration/test_eval.py",
    "distill/ablation/test_method_arms.py",
    "filters/test_decision_units.py",
    "integration/test_rounds.py",
    "integration/test_store_stages.py",
    "integration/test_export.py",
    "filters/test_apply.py",
    "teacher/test_store_images.py",
    "filters/test_filter_store_run.py",
    "distill/answers/test_answer_pairs.py",
    "distill/checks/test_checks.py",
    "integration/test_windows.py",
    "distill/planning/test_scale_plan.py",
    "teacher/test_shared_units.py",
    "student/test_train.py",
    "teacher/test_store_run.py",
    "teacher/test_turns_in_store.py",
    "teacher/test_batches_in_store.py",
    "integration/test_injected_regressions.py",
    "filters/test_invariance.py",
    "filters/report/test_report_sections.py",
    "integration/test_secrets.py",
    "filters/test_signal_tables.py",
    "pages/test_label_page.py",
    "structure/test_structure.py",
    "filters/dataset/test_writer.py",
    "filters/tables/test_workers.py",
    "recipes/test_tiny_steps.py",
    "filters/decisions/test_array_decisions.py",
    "distill/test_process_end.py",
    "filters/decisions/test_diagnosed_data.py",
    "student/data/test_images.py",
    "student/evaluation/test_side_by_side.py",
    "filters/test_placed_rows.py",
    "integration/test_store_data.py",
    "distill/stats/test_paired_effects.py",
    "student/validation/test_validation.py",
    "student/models/test_gpu.py",
    "teacher/engines/test_outage.py",
    "distill/ablation/test_runner.py",
    "teacher/test_hostile.py",
    "pages/test_view_page.py",
    "integration/test_batch_vllm.py",
    "teacher/engines/test_http_client.py",
    "student/training/test_interrupts.py",
    "student/models/test_graph_breaks.py",
    "student/training/test_memory.py",
    "student/data/test_rollouts.py",
    "teacher/test_generate_interrupted.py",
    "teacher/engines/test_vllm_server.py",
    "student/test_train_jobs.py",
    "structure/test_notebooks.py",
    "integration/test_slurm_training.py",
    "distill/commands/test_ask.py",
    "filters/test_stored_dataset.py",
    "student/training/test_trainer.py",
    "student/test_odd.py",
    "distill/commands/test_repair.py",
    "distill/view/test_server.py",
    "distill/planning/test_gain.py",
    "student/data/test_batch_plan.py",
    "teacher/test_generate.py",
    "teacher/store/test_finished_runs.py",
    "teacher/engines/test_vllm_options.py",
    "filters/signals/test_user_signals.py",
    "student/training/test_kernel_choice.py",
    "student/test_damage.py",
    "student/data/test_image_tokens.py",
    "student/evaluation/test_students.py",
    "distill/test_base_install.py",
    "student/export/test_verify.py",
    "recipes/test_tiny.py",
    "filters/dataset/test_ablation_sets.py",
    "filters/matching/test_near_duplicates.py",
    "pages/test_students_page.py",
    "filters/matching/test_image_match.py",
    "distill/ablation/test_teacher_ranking.py",
    "distill/test_cli.py",
    "distill/test_cli_output.py",
    "student/test_evaluate.py",
    "teacher/engines/test_embedded.py",
    "student/data/test_distil.py",
    "distill/planning/test_plan.py",
    "teacher/engines/test_export_server.py",
    "distill/object_store/test_object_store.py",
    "filters/test_what_if.py",
    "recipes/test_recipe_keys.py",
    "filters/dataset/test_pairs.py",
    "student/models/test_classes.py",
    "filters/decisions/test_diagnosis.py",
    "student/training/test_roofline.py",
    "student/data/test_packing.py",
    "student/models/test_flops.py",
    "student/models/test_lora.py",
    "filters/run_signals/test_human_verdicts.py",
    "teacher/engines/test_batch_engine.py",
    "filters/decisions/test_limits.py",
    "teacher/test_damage.py",
    "pages/test_browser.py",
)
"""Files whose tests start servers, processes or whole runs, or take more than five seconds, the slowest first.
Workers begin with them, so that none has much left when the others are done. Each counts as `slow`, so
`make test-fast` leaves it out."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Workers are forks of one process that has loaded the tests and their libraries."""
    from processes import forked

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // len(specs))))
    loaded = forked.COLLECTED.format(python=sys.executable, arguments=config.args)
    program = forked.interpreter(loaded, forked.interpreter())
    for spec in specs:
        spec.python = str(program)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["python"] = sys.executable


def pytest_configure(config: pytest.Config) -> None:
    """What a worker starts as a command is no fork unless a test asks for it; processes of multiprocessing are."""
    if worker := getattr(config, "workerinput", None):
        from processes import forked

        sys.executable = worker["python"]
        multiprocessing.set_executable(forked.interpreter())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    root = Path(__file__).parent
    places = {root / name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(item.path, len(SLOWEST)))
    for item in items:
        if item.path in places:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What is loaded and collected stays: a search for garbage, of which a stage makes three, need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    from processes import forked

    forked.end()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Sums of several threads come in any order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student's parts, questions and a finished filter stage, never written to."""
    from worlds import student_worlds

    folder = student_worlds.parts(tmp_path_factory.mktemp("world"))
    student_worlds.data(folder)
    return folder


@pytest.fixture
def vllm_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that start a vLLM take the one of the tests."""
    from servers import vllm_server

    vllm_server.use_it(monkeypatch)


@pytest.fixture
def short_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in the place of the report, which takes a third of the time of a small filter run.

    For tests that look at other files; `tests/filters/report`, `tests/filters/test_apply.py` and tests that compare a
    store with a folder (`tests/filters/test_filter_store_run.py`) write whole reports.
    """
    from worlds import run_fixtures

    from filters.report import page

    monkeypatch.setattr(page, "write", run_fixtures.short_report)


@pytest.fixture
def place(world: Path, tmp_path: Path) -> Path:
    """A copy of the world for one test."""
    return Path(shutil.copytree(world, tmp_path / "w"))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster on this machine, without nodes for work."""
    from ray.cluster_utils import Cluster

    root = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{root}{os.pathsep}{root / 'tests' / 'support'}")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    try:
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture(autouse=True)
def forgotten_interrupts() -> Iterator[None]:
    """An interrupt that a test makes ends no wait of the next one."""
    yield
    interrupts.forget()
