"""distilabel over a job: one TextGenerationWithImage step, OpenAILLM, batches as large as the requests in flight.

    python with_distilabel.py run|read job.json      (in an environment with distilabel[openai])

The image goes in as a data URL (image_type "url"), which spares distilabel from decoding and encoding it again.
`extra_body` is one for all requests, so they share one seed.
"""

import argparse
import base64
import json
import os
import sys
from pathlib import Path


def run(job: dict) -> None:
    os.environ["DISTILABEL_LOG_LEVEL"] = "WARNING"  # a log line a request is not what is measured
    os.environ["HF_HUB_OFFLINE"] = "1"
    from distilabel.models.llms import OpenAILLM
    from distilabel.pipeline import Pipeline
    from distilabel.steps import LoadDataFromDicts
    from distilabel.steps.tasks import TextGenerationWithImage

    rows = []
    for line in Path(job["rows"]).read_text().splitlines():
        row = json.loads(line)
        url = "data:image/png;base64," + base64.b64encode(Path(row["image"]).read_bytes()).decode()
        rows.append({"instruction": row["question"], "image": url})
    with Pipeline(name="peer", cache_dir=f"{job['out']}/cache") as pipeline:
        load = LoadDataFromDicts(data=rows, batch_size=job["in_flight"])
        ask = TextGenerationWithImage(
            llm=OpenAILLM(
                model=job["model"],
                base_url=job["url"],
                api_key="none",
                timeout=600,
                generation_kwargs={
                    "temperature": job["temperature"],
                    "max_new_tokens": job["max_tokens"],
                    "extra_body": {"seed": 0},
                },
            ),
            image_type="url",
            input_batch_size=job["in_flight"],
        )
        load >> ask
    made = pipeline.run(use_cache=False)
    made["default"]["train"].to_parquet(f"{job['out']}/distilabel.parquet")


def read(job: dict) -> list[dict]:
    import pyarrow.parquet as pq

    found = []
    for row in pq.read_table(f"{job['out']}/distilabel.parquet").to_pylist():
        meta = row["distilabel_metadata"]
        found.append(
            {
                "question": row["instruction"],
                "text": row["generation"],
                "reasoning": _anywhere(row, "reasoning"),
                "finish_reason": _anywhere(row, "finish_reason"),
                "tokens": _anywhere(meta, "output_tokens"),
            }
        )
    return found


def _anywhere(value: object, name: str) -> object:
    """The value of a key of this name at any depth."""
    if isinstance(value, dict):
        return value.get(name) or next(filter(None, (_anywhere(one, name) for one in value.values())), None)
    if isinstance(value, list):
        return next(filter(None, (_anywhere(one, name) for one in value)), None)
    return None


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
