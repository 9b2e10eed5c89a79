"""The commands in the fenced blocks of README.md and docs/, and which test executes each.

A command that no test executes says what it needs; `TESTED` names the test file that runs it, with its options, in a
world of its own.
"""

RUN = (
    "distill init photos && cd photos-distill",
    "distill init photos",
    "distill init shards",
    "distill init questions.csv --gpu L4",
    "distill init photos --teacher http://127.0.0.1:8000/v1#Qwen/Qwen3-VL-8B-Thinking",
    "distill generate recipe.toml --limit 200",
    "distill generate recipe.toml --check",
    "distill generate recipe.toml",
    "distill filter recipe.toml",
    "distill filter RECIPE --what-if other.toml",
    "distill filter RECIPE --what-if RECIPE --set filter.select.per_question=1",
    "distill filter RECIPE --run runs/mine",
    "distill split all.jsonl --test 0.1 --seed 0 --out parts",
    "distill split recipe.toml --data questions --out parts",
    "distill split all.csv --images-root images --column image=photo --column question=ask --out parts",
    """grep -E '"level":"(warning|error)"' runs/tiny/log.jsonl""",
)
"""Executed by the test, in this order where one needs another."""

FORMS = ("distill check RECIPE [--run DIR] [--gpu NAME] [--json]",)
"""Not commands: which options there are, of which the test finds out whether they exist."""

_ASK = 'distill ask runs/photos-distill photo.jpg "What is the total?"'
TESTED = {
    "distill check recipe.toml": "tests/distill/checks/test_checks.py",
    "distill plan RECIPE --engine ray --agents 64 --set store.price.writes=0.005 --set store.price.reads=0.0004": (
        "tests/distill/planning/test_scale_plan.py"
    ),
    "distill plan RECIPE --run DIR --gain": "tests/distill/planning/test_gain.py",
    "distill run recipe.toml": "tests/integration/test_eval.py",
    "distill export runs/photos-distill --out student --verify": "tests/integration/test_export.py",
    "distill export runs/mine --out student --verify": "tests/integration/test_export.py",
    "distill export runs/mine --out student": "tests/integration/test_export.py",
    "distill export runs/mine --dataset trl-pairs --dataset ms-swift-pairs --out pairs": (
        "tests/filters/dataset/test_pairs.py"
    ),
    "distill export runs/mine --out tasks --lmms-eval test": "tests/integration/test_lmms_eval.py",
    "distill export runs/mine --out student-gguf --gguf f16 --verify": "tests/integration/test_export_gguf.py",
    "distill eval my-recipe": "tests/integration/test_eval.py",
    "distill eval my-recipe --student before=Qwen/Qwen3-VL-2B-Instruct --student "
    "big=http://127.0.0.1:8000/v1#Qwen3-VL-8B": "tests/integration/test_eval.py",
    _ASK: "tests/distill/commands/test_ask.py",
    f"{_ASK} --model after --json": "tests/distill/commands/test_ask.py",
    f"{_ASK} --student http://127.0.0.1:8000/v1#Qwen3-VL-8B": "tests/distill/commands/test_ask.py",
    'distill ask student photo.jpg "What is the total?"': "tests/distill/commands/test_ask.py",
    "distill view runs/tiny": "tests/distill/view/test_server.py",
}

TRAINS = "trains for minutes; its functions are tested in tests/distill/ablation/test_runner.py and tests/student"
NETWORK = "network: installs or downloads"
STORE = "an object store; test_store_run.py, test_filter_store_run.py, test_store_stages.py run it on a local one"
PROCESSES = "several processes; tests/student/distributed/test_processes.py starts them on small models"
BENCHMARK = "minutes of a benchmark; its figures are in docs/log.md"
DAEMON = "a Docker daemon and network; tests/structure/test_docker.py reads the Dockerfile"
NEEDS = {
    "make demo": TRAINS,
    "make test": "it is what runs this test",
    "pip install '.[train]'": NETWORK,
    "pip install 'cot-distill[gguf]'": NETWORK,
    "python3.11 -m venv ~/vllm && ~/vllm/bin/pip install vllm": NETWORK,
    "python3.11 -m venv ~/lmms && ~/lmms/bin/pip install lmms-eval==0.7.3": NETWORK,
    "distill init hub:OWNER/NAME:SUBSET --memory 40": NETWORK,
    "llama-server --model student-gguf/model.gguf --mmproj student-gguf/mmproj.gguf --temp 0": "a llama.cpp",
    "distill ablate my-recipe": TRAINS,
    "distill ablate my-recipe --arm answers_only --arm random --seed 0": TRAINS,
    "distill ablate my-recipe --jobs 2": TRAINS,
    "distill ablate my-recipe --plan": TRAINS,
    "distill ablate my-recipe --report": TRAINS,
    "distill train recipe.toml": TRAINS,
    "distill train RECIPE --jobs 2": TRAINS,
    "distill run RECIPE --jobs 2": TRAINS,
    "distill run tiny-steps --set rounds.count=2": TRAINS,
    "torchrun --nproc-per-node 2 -m distill train RECIPE": PROCESSES,
    "accelerate launch -m distill train RECIPE": PROCESSES,
    "distill generate RECIPE --run s3://bucket/run": STORE,
    "distill filter RECIPE --run s3://bucket/run": STORE,
    "distill train RECIPE --run s3://bucket/run": STORE,
    "distill train RECIPE --run s3://bucket/run --engine ray --nodes 4": "a cluster; test_ray_training.py starts one",
    "distill train RECIPE --run s3://bucket/run --engine slurm --nodes 4": "a Slurm; test_real_slurm.py starts one",
    "torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m -- "
    "distill train RECIPE --run s3://bucket/run": PROCESSES,
    "distill eval RECIPE --run s3://bucket/run": STORE,
    "distill run RECIPE --run s3://bucket/run": STORE,
    "distill pull s3://bucket/run runs/mine --recipe RECIPE": STORE,
    "distill push runs/mine s3://bucket/other --recipe RECIPE": "tests/teacher/test_pushed_traces.py",
    "docker build --target cpu -t cot-distill:cpu .": DAEMON,
    "docker build --target gpu -t cot-distill:gpu .": DAEMON,
    'docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" -e HOME=/tmp '
    "cot-distill:cpu check recipe.toml": DAEMON,
    'docker run --rm -v "$PWD:/work" --gpus all --ipc host cot-distill:gpu run recipe.toml': DAEMON,
    "python benchmarks/answers/answers.py": BENCHMARK,
    "python benchmarks/answers/answers.py --by family --split held-out": BENCHMARK,
    "python benchmarks/answers/answers.py distill mine.py:my_function": BENCHMARK,
    "python benchmarks/answers/conditions.py distill.answers.texts.asked_roles": BENCHMARK,
}
"""What a command needs that no test has."""
