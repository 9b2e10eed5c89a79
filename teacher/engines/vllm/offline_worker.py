"""The program that vLLM's interpreter runs for `vllm_offline.py`: JSON lines in and out over two descriptors.

    python offline_worker.py REQUESTS ANSWERS [OPTIONS OF VLLM]

It imports only vLLM: its interpreter has no packages of this project.
"""

import json
import os
import select
import sys
from typing import Any

import vllm  # type: ignore[import-not-found, unused-ignore]
from vllm.engine.arg_utils import EngineArgs  # type: ignore[import-not-found, unused-ignore]
from vllm.sampling_params import RepetitionDetectionParams  # type: ignore[import-not-found, unused-ignore]
from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found, unused-ignore]
from vllm.v1.engine.exceptions import EngineDeadError  # type: ignore[import-not-found, unused-ignore]

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "stop", "seed")


class OfflineWorker:
    """One `vllm.LLM` and the requests in it."""

    def __init__(self, sink: int, options: list[str]) -> None:
        parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
        self.llm = vllm.LLM.from_engine_args(EngineArgs.from_cli_args(parser.parse_args(options)))
        self._tokenizer, config = self.llm.get_tokenizer(), self.llm.model_config.hf_config
        self._image_token = getattr(config, "image_token_id", getattr(config, "image_token_index", None))
        self._sink = sink
        self.asked: dict[str, tuple[str, int]] = {}
        """For vLLM's id of a request: our id, and the number of likeliest tokens that it asks for."""
        self._send({"version": vllm.__version__, "max_model_len": self.llm.model_config.max_model_len})

    def _send(self, value: dict[str, Any]) -> None:
        line = json.dumps(value).encode() + b"\n"
        while line:
            line = line[os.write(self._sink, line) :]

    def add(self, asked: dict[str, Any]) -> None:
        """Queue a request. What is wrong with it is its answer."""
        values = {key: asked[key] for key in (*_SAMPLING, "thinking_token_budget") if key in asked}
        if "repetition_detection" in asked:
            values["repetition_detection"] = RepetitionDetectionParams(**asked["repetition_detection"])
        if "top_logprobs" in asked:
            values["logprobs"] = asked["top_logprobs"]
        try:
            (name,) = self.llm.enqueue_chat(
                [asked["messages"]],
                vllm.SamplingParams(**values),
                use_tqdm=False,
                chat_template_kwargs=asked.get("chat_template_kwargs"),
                mm_processor_kwargs=asked.get("mm_processor_kwargs"),
            )
        except EngineDeadError:
            raise
        except Exception as error:  # of the prompt, its template or its images: nothing has reached the engine
            self._send({"id": asked["id"], "error": f"refused_request: {error}"})
        else:
            # Outputs carry the id without the suffix that makes it unique among processes.
            self.asked[name.partition("-")[0]] = asked["id"], asked.get("top_logprobs", 0)

    def step(self) -> None:
        """Generate one token of every request, and send the answers that are complete."""
        for output in self.llm.llm_engine.step():
            if output.finished:
                self._answer(output)

    def _answer(self, output: Any) -> None:
        made = output.outputs[0]
        name, count = self.asked.pop(output.request_id)
        steps = zip(made.logprobs or (), made.token_ids, strict=False)
        self._send(
            {
                "id": name,
                "text": made.text,
                "finish_reason": made.finish_reason or "",
                "stop_reason": "" if made.stop_reason is None else str(made.stop_reason),
                "prompt_tokens": len(output.prompt_token_ids),
                "image_tokens": sum(token == self._image_token for token in output.prompt_token_ids),
                "cached_tokens": output.num_cached_tokens,
                "completion_tokens": len(made.token_ids),
                "prompt_end": self._tokenizer.decode(output.prompt_token_ids[-16:]),
                "likely": [_likely(step, token, count) for step, token in steps],
            }
        )


def _likely(step: dict[int, Any], token: int, count: int) -> list[list[Any]]:
    """Ids and log-probabilities of one step: the sampled token, then the `count` likeliest ones in order."""
    best = sorted((each for each in step if step[each].rank <= count), key=lambda each: step[each].rank)
    ids = [token, *best[:count]]
    return [ids, [step[each].logprob for each in ids]]


def main() -> None:
    source, sink = int(sys.argv[1]), int(sys.argv[2])
    for pipe in (source, sink):
        os.set_inheritable(pipe, False)  # vLLM's own processes must not keep them open
    worker, held = OfflineWorker(sink, sys.argv[3:]), b""
    while True:
        ready, _, _ = select.select([source], [], [], 0 if worker.asked else None)
        if ready:
            piece = os.read(source, 1 << 20)
            if not piece:
                return
            *lines, held = (held + piece).split(b"\n")
            for line in lines:
                worker.add(json.loads(line))
        if worker.asked:
            worker.step()


if __name__ == "__main__":
    main()
