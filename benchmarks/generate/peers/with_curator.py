"""curator (bespokelabs-curator) over a job: an online LLM with multimodal prompts.

    python with_curator.py run|read job.json      (in an environment with bespokelabs-curator)

Without a network curator stops where it loads a tokenizer from the web, only to estimate tokens. LiteLLM, which
curator needs anyway, brings that very file; the job's `bundled_tokenizer` says whether to point to it. Rate limits,
which curator sets to small defaults, are lifted.
"""

import argparse
import json
import os
import sys
from pathlib import Path


def run(job: dict) -> None:
    os.environ |= {
        "OPENAI_API_KEY": "none",
        "CURATOR_CACHE_DIR": f"{job['out']}/cache",
        "CURATOR_DISABLE_RICH_DISPLAY": "1",
        "TELEMETRY_ENABLED": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HOME": job["out"],
    }
    if job.get("bundled_tokenizer", True):
        import litellm

        folder = Path(litellm.__file__).parent / "litellm_core_utils" / "tokenizers"
        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    from bespokelabs import curator
    from datasets import Dataset

    class Ask(curator.LLM):
        return_completions_object = True

        def prompt(self, row: dict) -> tuple:
            return row["question"], curator.types.Image(url=row["image"], mime_type="image/png")

        def parse(self, row: dict, response: dict) -> dict:
            choice = response["choices"][0]
            return {
                "question": row["question"],
                "text": choice["message"].get("content"),
                "reasoning": choice["message"].get("reasoning"),
                "finish_reason": choice["finish_reason"],
                "tokens": response["usage"]["completion_tokens"],
            }

    rows = [json.loads(line) for line in Path(job["rows"]).read_text().splitlines()]
    fixed = {"temperature": job["temperature"], "max_tokens": job["max_tokens"]}
    for row in rows:
        row["generation_params"] = json.dumps({"seed": row.pop("seed")})
    ask = Ask(
        model_name=job["model"],
        backend="openai",
        generation_params=fixed,
        backend_params={
            "base_url": job["url"],
            "max_concurrent_requests": job["in_flight"],
            "max_requests_per_minute": 10_000_000,
            "max_tokens_per_minute": 1_000_000_000_000,
            "require_all_responses": False,
        },
    )
    made = ask(Dataset.from_list(rows))
    getattr(made, "dataset", made).to_parquet(f"{job['out']}/curator.parquet")


def read(job: dict) -> list[dict]:
    import pyarrow.parquet as pq

    return pq.read_table(f"{job['out']}/curator.parquet").to_pylist()


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
