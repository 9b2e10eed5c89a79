"""datatrove over a job: InferenceRunner on an endpoint, the payload written by a rollout function, checkpoints on.

    python with_datatrove.py run|read job.json      (with datatrove, orjson, xxhash, aiofiles, aiosqlite, httpx)

The extra datatrove[inference] would bring vLLM and SGLang along; an endpoint needs neither. Without
`skip_bad_requests` the first refused request ends the whole run, so it is set.
"""

import argparse
import base64
import gzip
import json
import sys
from pathlib import Path


async def ask(document, generate, fixed):  # type: ignore[no-untyped-def]
    url = "data:image/png;base64," + base64.b64encode(Path(document.metadata["image"]).read_bytes()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": document.text}]
    messages = [{"role": "user", "content": content}]
    return await generate({"messages": messages, "seed": document.metadata["seed"], **fixed})


def run(job: dict) -> None:
    from datatrove.data import Document
    from datatrove.pipeline.inference.run_inference import InferenceConfig, InferenceRunner
    from datatrove.pipeline.writers import JsonlWriter

    def documents():  # type: ignore[no-untyped-def]
        for number, line in enumerate(Path(job["rows"]).read_text().splitlines()):
            row = json.loads(line)
            yield Document(text=row["question"], id=str(number), metadata={k: row[k] for k in ("image", "seed")})

    runner = InferenceRunner(
        rollout_fn=ask,
        shared_context={"fixed": {"temperature": job["temperature"], "max_tokens": job["max_tokens"]}},
        config=InferenceConfig(
            server_type="endpoint",
            endpoint_url=job["url"].removesuffix("/v1"),
            model_name_or_path=job["model"],
            max_concurrent_generations=job["in_flight"],
        ),
        output_writer=JsonlWriter(f"{job['out']}/made", output_filename="${rank}_chunk_${chunk_index}.jsonl"),
        checkpoints_local_dir=f"{job['out']}/checkpoints",
        skip_bad_requests=True,
    )
    runner.run(documents())


def read(job: dict) -> list[dict]:
    found = []
    for path in sorted(Path(job["out"], "made").iterdir()):
        data = path.read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        for line in text.splitlines():
            row = json.loads(line)
            (result,) = row["metadata"]["rollout_results"]
            found.append(
                {
                    "question": row["text"],
                    "text": result.get("text"),
                    "reasoning": result.get("reasoning"),
                    "finish_reason": result.get("finish_reason"),
                    "tokens": (result.get("usage") or {}).get("completion_tokens"),
                }
            )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "read"))
    parser.add_argument("job", type=Path, help="written by benchmarks/generate/peers.py")
    options = parser.parse_args()
    job = json.loads(options.job.read_text())
    if options.action == "run":
        run(job)
    else:
        json.dump(read(job), sys.stdout)
