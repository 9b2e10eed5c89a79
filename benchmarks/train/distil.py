"""What learning from stored distributions costs, on a GPU if there is one.

    python benchmarks/train/distil.py [step|read] [--shapes tiny]

step: forward and backward of a language model with its head, plain and with a teacher's top 20 at every second token
(responses), in turns, for shapes from a toy's to Qwen2.5-0.5B's. read: `student.data.teacher_logprobs.collect` from a
journal. On a CPU one thread and its own seconds.
Takes 70 s with `step --shapes tiny` (two shared cores).
"""

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from distill.artifacts.journal import Journal
from distill.trace_records.logprobs import encode
from student.data.teacher_logprobs import TraceRow, collect
from student.loss import training_loss
from student.loss.teacher_divergence import from_teacher

SHAPES = {
    # hidden, feed-forward, layers, heads, vocabulary, tokens, turns: on a CPU, on a GPU
    "tiny": ((128, 384, 4, 4, 512), (2048, 20), (16384, 20)),
    "small": ((384, 1536, 8, 6, 16_000), (1024, 6), (16384, 20)),
    "0.5B": ((896, 4864, 24, 14, 151_936), (256, 3), (8192, 10)),
}
TOP_K = 20
TRACES, TOKENS = 4000, 500


def step(name: str) -> None:
    (hidden, wide, layers, heads, vocabulary), on_cpu, on_gpu = SHAPES[name]
    gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if gpu else ("cpu", torch.float32)
    tokens, turns = on_gpu if gpu else on_cpu
    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=hidden,
        intermediate_size=wide,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
    )
    with torch.device(device):
        model = Qwen2ForCausalLM(config).to(dtype).train()
    training_loss.attach(model)
    ids = torch.randint(0, vocabulary, (max(1, tokens // 512), min(512, tokens)), device=device)
    at = torch.arange(0, tokens, 2, device=device)
    labels = ids.flatten()[at]
    weights = torch.full((len(at),), 1 / len(at), device=device)
    values = (torch.randn(len(at), TOP_K, device=device) * 3).log_softmax(-1)
    places = torch.rand(len(at), vocabulary, device=device).topk(TOP_K).indices
    teacher = {"ids": places, "logprobs": values - 0.01, "weights": weights / 2}

    def once(distil: bool) -> float:
        model.zero_grad(set_to_none=True)
        begun = now(device)
        model(
            input_ids=ids,
            at=at,
            labels=labels,
            weights=weights / 2 if distil else weights,
            extra=from_teacher(**teacher) if distil else None,
        ).loss.backward()
        return now(device) - begun

    once(False), once(True)
    pairs = [(once(False), once(True)) for _ in range(turns)]
    plain, distilled = (statistics.median(times) for times in zip(*pairs, strict=True))
    more = statistics.median(with_teacher / without for without, with_teacher in pairs) - 1
    fewest = min(b for _, b in pairs) / min(a for a, _ in pairs) - 1
    print(
        f"{name}: {tokens:,} tokens, {len(at):,} with a teacher, on {device}: {1e3 * plain:,.1f} ms plain, "
        f"{1e3 * distilled:,.1f} ms with it; {more:+.1%} (fastest against fastest {fewest:+.1%})",
        flush=True,
    )


def now(device: str) -> float:
    """Seconds; of the one thread's own on a CPU, so that others on the machine count little."""
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def read() -> None:
    chance = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        generate, names, responses = Path(folder, "generate"), [], []
        with Journal(generate / "teacher" / "part-00000.jsonl") as journal:
            for number in range(TRACES):
                ids = (chance.zipf(1.3, (TOKENS, 1 + TOP_K)) % 150_000).astype(np.int32)
                values = -np.sort(chance.exponential(3.0, ids.shape), axis=1).astype(np.float32)
                names.append(f"{number:032x}")
                journal.append({"id": names[-1], "teacher": "teacher", "text": "", "logprobs": encode(ids, values)})
                responses.append(np.concatenate([[1, 2, 3], ids[:, 0], [4, 5, 6]]).astype(np.int32))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.process_time()
        found, _ = collect(
            generate,
            list(map(TraceRow, names, responses)),
            top_k=TOP_K,
            decode=lambda ids: "",
            folder=Path(folder, "table"),
        )
        seconds = time.process_time() - begun
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        sizes = [sum(f.stat().st_size for f in Path(folder, name).rglob("*.*")) for name in ("generate", "table")]
        begun = time.process_time()
        for row, response in enumerate(responses):
            found.of(row, len(response))
        looked = time.process_time() - begun
    print(
        f"{TRACES:,} traces of {TOKENS} tokens, top {TOP_K}: {1e3 * seconds / TRACES:.2f} ms a trace, "
        f"{grown / 1e3:.0f} MB more memory; {sizes[0] / TRACES / 1e3:.0f} kB a trace in the journal, "
        f"{sizes[1] / TRACES / 1e3:.0f} kB in the table; a row of a batch {1e6 * looked / TRACES:.0f} µs"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("step", "read"), help="default: both")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="of step")
    options = parser.parse_args()
    if options.what != "step":
        read()
    if options.what != "read":
        for name in options.shapes:
            step(name)
