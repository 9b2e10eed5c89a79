"""The backend `batch` with vLLM's own `run-batch` behind the stand-in of a batch API."""

import os
import subprocess
from pathlib import Path

from servers import batch_server, vllm_server
from students import tiny_models
from worlds.generate_world import World

pytestmark = vllm_server.marks(timeout_s=600)


def run_batch(model: Path, folder: Path) -> batch_server.Execute:
    """`vllm run-batch` over a model, on a CPU."""
    (folder / "sitecustomize.py").write_text(vllm_server.SITE)
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }

    def execute(asked: Path, out: Path) -> None:
        command = [vllm_server.interpreter(), "-m", "vllm.entrypoints.openai.run_batch", "-i", asked, "-o", out]
        command += ["--model", model, "--served-model-name", "stub", "--dtype", "float32", "--enforce-eager"]
        command += ["--max-model-len", "512", "--limit-mm-per-prompt", '{"image":1}', "--no-enable-chunked-prefill"]
        with (folder / "log").open("ab") as log:
            subprocess.run(command, check=True, env=environment, stdout=log, stderr=subprocess.STDOUT)

    return execute


def test_vllm_answers_the_file_that_is_submitted(tmp_path: Path) -> None:
    tiny_models.build(tmp_path / "model", hidden=128, layers=2, spread=0.3, end_weight=1.3)
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world")
    world.head += "\n[generate.outcomes]\nattempts = 1"
    world.add_rows(5)
    world.sampling = {"max_tokens": 12, "temperature": 0.7}
    with batch_server.serve(tmp_path / "api", run_batch(tmp_path / "model", tmp_path)) as server:
        server.looks_until_done = 0
        world.add_teacher(server.url, backend="batch", samples=2, **{"batch.poll_s": 0.1})
        manifest = world.generate()
        assert server.sizes == [10]
    assert manifest.counts["traces"] == 10 and "error" not in manifest.counts
    records = world.records()
    assert all(record["usage"]["prompt"] for record in records)
    assert all(record["usage"]["reasoning"] + record["usage"]["answer"] for record in records)
    assert len({record["text"] for record in records}) > 1
