"""The wheel without extras under one Python: does it install, and do its commands and tests that need no torch work?

    pip wheel --no-deps --wheel-dir WHEELS .
    PYTHON benchmarks/project/base_install.py WHEELS/*.whl [PYTEST OPTIONS]

Needs nothing but the Python that runs it, so it can run in a `chroot` of another release. Installs the wheel into an
environment in a temporary folder, with a copy of the tests beside it, and not the packages of this checkout. Makes a
run there with a stub server: init, check (which misses a student), generate, filter, status.
Takes as long as pip and the tests of FOLDERS that need no torch take: not timed here.
"""

import argparse
import os
import platform
import shutil
import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "init generate filter train eval run ablate plan check split status pull repair explain ask view export recipes"
)
FOLDERS = ("tests/distill/answers", "tests/distill/grounding", "tests/distill/recipe", "tests/filters")
NEED_EXTRAS = (
    "tests/filters/dataset",  # torch and datasets
    "tests/filters/test_filter_store_run.py",  # a store
    "tests/filters/test_stored_dataset.py",
    "tests/filters/test_decision_units.py",
    "tests/filters/signals/test_personal_data.py",  # pii
    "tests/filters/signals/test_signal_groups.py",  # all signals
    "tests/filters/signals/test_time_limits.py",
)
TEST_PACKAGES = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "pandas", "scikit-learn")
RUN = """
import subprocess, sys
from pathlib import Path
from servers import stub_server
from PIL import Image
def distill(*arguments):
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True, check=False)
    print(f"distill {' '.join(arguments)}: exit code {done.returncode}")
    if done.returncode:
        print(done.stdout[-3000:], done.stderr[-3000:])
Path("photos").mkdir()
for number in range(12):
    Image.effect_noise((64, 64), 20.0 * number + 20).convert("RGB").save(f"photos/{number}.png")
Path("rows.jsonl").write_text("\\n".join(
    f'{{"image": "photos/{number}.png", "question": "How many circles has {number}?", "answer": "7"}}'
    for number in range(12)))
with stub_server.serve() as url:
    distill("init", "photos", "--teacher", f"{url}#stub", "--gpu", "L4", "--question", "How many circles are there?")
    Path("recipe.toml").write_text(
        f'[data.questions]\\nsource = "rows.jsonl"\\n[[teachers]]\\nname = "stub"\\nmodel = "stub"\\n'
        f'backend = "vllm"\\nbase_url = "{url}"\\n[filter]\\nrules = []\\n')
    for command in ("check", "generate", "filter"):
        distill(command, "recipe.toml", "--run", "run")
distill("status", "run")
"""


def call(*command: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    settings = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | more
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def install(folder: Path, wheel: Path) -> Path:
    """The folder of programs of a new environment that holds the wheel."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    done = call(programs / "python", "-m", "pip", "install", "--quiet", wheel.resolve(), *TEST_PACKAGES, cwd=folder)
    if done.returncode:
        raise SystemExit(f"the wheel does not install\n{done.stdout[-3000:]}")
    return programs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    given, options = parser.parse_known_args()
    if not given.wheel.is_file():
        parser.error(f"there is no wheel {given.wheel}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = install(folder / "environment", given.wheel)
        for part in ("tests", "recipes", "docs", "benchmarks/answers", "benchmarks/data", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, folder / part)
        version = call(programs / "distill", "--version", cwd=folder).stdout.strip()
        print(f"Python {platform.python_version()}: {version}", flush=True)
        for command in COMMANDS.split():
            if call(programs / "distill", command, "--help", cwd=folder).returncode:
                print(f"distill {command} --help fails", flush=True)
        print(
            call(
                programs / "python",
                "-c",
                RUN,
                programs / "distill",
                cwd=folder,
                PYTHONPATH=str(folder / "tests" / "support"),
            ).stdout,
            flush=True,
        )
        ignored = [f"--ignore={path}" for path in NEED_EXTRAS]
        done = call(programs / "python", "-m", "pytest", *FOLDERS, *ignored, *options, cwd=folder)
        print(done.stdout[-6000:])


if __name__ == "__main__":
    main()
