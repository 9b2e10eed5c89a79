"""What no client can beat: every body encoded beforehand, a fixed number in flight, nothing written down.

    python bare_client.py run job.json

Writes the arrival time and the tokens of every answer to `bare.json` in the job's folder once all is over.
"""

import argparse
import asyncio
import base64
import time
from pathlib import Path
from typing import Any

import aiohttp
import orjson


def bodies(job: dict[str, Any]) -> list[bytes]:
    """The requests of a job as `generate` sends them, a vLLM server's sampling values written out."""
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    fixed = {"model": job["model"], "temperature": job["temperature"], "max_tokens": job["max_tokens"], **neutral}
    made = []
    for line in Path(job["rows"]).read_bytes().splitlines():
        row = orjson.loads(line)
        url = "data:image/png;base64," + base64.b64encode(Path(row["image"]).read_bytes()).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": row["question"]}]
        messages = [{"role": "user", "content": content}]
        made.append(orjson.dumps({**fixed, "messages": messages, "seed": row["seed"]}))
    return made


async def send(job: dict[str, Any], ready: list[bytes]) -> dict[str, Any]:
    """Ask everything. A request that fails ends the measurement."""
    arrived: list[tuple[float, int]] = []
    texts: dict[str, str] = {}
    waiting = iter(enumerate(ready))
    url = f"{job['url']}/chat/completions"
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        headers={"content-type": "application/json"},
        timeout=aiohttp.ClientTimeout(total=600),
    )
    async with session:

        async def work() -> None:
            for number, body in waiting:
                async with session.post(url, data=body) as response:
                    payload = await response.read()
                    response.raise_for_status()
                answer = orjson.loads(payload)
                arrived.append((time.time(), answer["usage"]["completion_tokens"]))
                texts[str(number)] = answer["choices"][0]["message"]["content"]

        started, cpu = time.time(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(job["in_flight"]):
                group.create_task(work())
        spent = {"started": started, "ended": time.time(), "cpu_s": time.process_time() - cpu}
    return {**spent, "arrived": arrived, "texts": texts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run",))
    parser.add_argument("job", type=Path, help="written by benchmarks/generate/peers.py and others")
    job = orjson.loads(parser.parse_args().job.read_bytes())
    ready = bodies(job)
    (Path(job["out"]) / "bare.json").write_bytes(orjson.dumps(asyncio.run(send(job, ready))))


if __name__ == "__main__":
    main()
