"""Faults that would stop a run late or spoil it, each planted into the world of tests/support/worlds/check_world.py.

Faults of one round don't touch each other, so that one check has to find all of them at once.
"""

from faults import planted_data_faults
from faults.fault_plants import (
    PlantedFault,
    add_rule,
    both,
    cut_file,
    edit,
    put,
    put_json,
    remove,
    remove_end_of_turn,
    remove_shard,
    remove_tensor,
    teacher,
    write,
    write_adapter,
)

HERE = "http://127.0.0.1:9/v1"

ROUNDS: dict[str, tuple[PlantedFault, ...]] = {
    **planted_data_faults.ROUNDS,
    "teachers": (
        PlantedFault(
            put("stages", 2, "validation", {"hold_out": 0.99}),
            "stages.reason.validation.hold_out",
            "99 % of the rows",
            "warning",
        ),
        PlantedFault(teacher("keyless", api_key_env="NO_SUCH_KEY_HERE"), "teachers.keyless", "NO_SUCH_KEY_HERE"),
        PlantedFault(
            teacher("own", base_url=None, server={"command": ["no-vllm-here", "serve"]}),
            "teachers.own",
            "no program 'no-vllm-here'",
        ),
        PlantedFault(
            teacher("port", base_url=None, server={"extra": ["--port", "8000"]}),
            "teachers.port",
            "--port is set by the run",
        ),
        PlantedFault(
            teacher("short", base_url=None, server={"arguments": {"max-model-len": "1k"}}),
            "teachers.short",
            "max_tokens = 1024 leaves no room",
        ),
        PlantedFault(teacher("bare", base_url="127.0.0.1:8000/v1"), "teachers.bare", "http://127.0.0.1:8000/v1"),
        PlantedFault(teacher("down"), "teachers.down.base_url", f"nothing answers at {HERE}", "warning"),
        PlantedFault(teacher("typo", prompt="{question} {qestion}"), "teachers.typo", "did you mean {question}"),
        PlantedFault(
            teacher("hosted", backend="openai", logprobs=3), "teachers.hosted", "logprobs needs backend 'vllm'"
        ),
        PlantedFault(
            teacher("thinker", sampling={"max_tokens": 100, "thinking_budget": 100}),
            "teachers.thinker.sampling.thinking_budget",
            "leaves nothing",
            "warning",
        ),
        PlantedFault(
            teacher("gone", backend="embedded", base_url=None, model="./nowhere"),
            "teachers.gone",
            "does not exist",
        ),
        PlantedFault(
            teacher("nearly", backend="embedded", base_url=None, model="teachers"),
            "teachers.nearly.model",
            "did you mean 'teacher'",
        ),
    ),
    "one model twice": (
        PlantedFault(both(teacher("one"), teacher("two")), "teachers", "one and two have the same model"),
        PlantedFault(remove("teacher/token*", "teacher/vocab*"), "teachers.structured", "has no tokenizer.json"),
        PlantedFault(
            write("language/model.safetensors", b"version https://git-lfs.github.com/spec/v1\n"),
            "student.language",
            "git lfs pull",
        ),
        PlantedFault(cut_file("vision/model.safetensors"), "student.vision", "cannot be loaded"),
    ),
    "teacher's weights": (
        PlantedFault(cut_file("teacher/model.safetensors"), "teachers", "cannot be loaded"),
        PlantedFault(remove_tensor, "student.language", "lacks 1 of its weights"),
        PlantedFault(
            put_json("vision/config.json", model_type="clip_vision_model"), "student.vision", "not a SigLIP"
        ),
    ),
    "own parts": (
        PlantedFault(
            put("filter", "signals", ["answer", "mine.py:Hedging"]), "filter.signals", "mine.py cannot be read"
        ),
        PlantedFault(put("filter", "exports", ["mine.py:chat"]), "filter.exports", "mine.py cannot be read"),
        PlantedFault(put("eval", "metrics", ["mine.py:short"]), "eval.metrics", "mine.py cannot be read"),
    ),
    "filter": (
        PlantedFault(add_rule("quoted", "answer_verdict = 'wrong"), "filter.rules.quoted", "not an SQL condition"),
        PlantedFault(
            add_rule("column", "answr_verdict = 'wrong'"), "filter.rules.column", "did you mean 'answer_verdict'"
        ),
        PlantedFault(add_rule("number", "rationale_tokens"), "filter.rules.number", "not true or false"),
        PlantedFault(
            put("filter", "select", "order", ["-rational_tokens"]),
            "filter.select.order",
            "did you mean 'rationale_tokens'",
        ),
        PlantedFault(
            both(
                lambda f, r: r["filter"]["signals"].extend(["sensitive", "judge", "student"]),
                put("filter", "sensitive", {"words": "words.txt"}),
            ),
            "filter.sensitive.words",
            "words.txt",
        ),
        PlantedFault(
            put("filter", "judge", {"teacher": "structured", "prompt": "{gold} {prediction} {questoin}"}),
            "filter.judge.prompt",
            r"did you mean \{question\}",
        ),
        PlantedFault(
            put("filter", "student", {"checkpoint": "runs/x/model"}),
            "filter.student.checkpoint",
            "runs/x",
        ),
        PlantedFault(
            lambda f, r: r["filter"]["select"].update(mix=[{"by": "teacher", "shares": {"strctured": 0.5}}]),
            "filter.select.mix",
            "strctured.*values: structured",
        ),
        PlantedFault(
            put("filter", "card", "license", "free"), "filter.card.license", "'free' is no licence", "warning"
        ),
    ),
    "values that mean something else": (
        PlantedFault(add_rule("all", "answer_verdict = 'x' OR TRUE"), "filter.rules.all", "may keep none", "warning"),
        PlantedFault(add_rule("long", "rationale_tokens > 0"), "filter.rules.long", "may keep none", "warning"),
        PlantedFault(remove("vision/preprocessor_config.json"), "student.vision", "mean and deviation", "warning"),
        PlantedFault(
            put("teachers", 0, "prompt", "{question} {hint}"),
            "teachers.structured.prompt",
            "{hint}",
            "warning",
        ),
        PlantedFault(
            teacher("endpoint", base_url="http://127.0.0.1:9/v1/chat/completions"),
            "teachers.endpoint",
            "leave the end of it out: http://127.0.0.1:9/v1",
        ),
        PlantedFault(
            lambda f, r: (f / "captions.jsonl").write_bytes(
                (f / "captions.jsonl").read_bytes().replace(b"Describe", b"Gr\xf6sse")
            ),
            "data.captions",
            "not valid UTF-8.*iconv",
        ),
    ),
    "a configuration that contradicts itself": (
        PlantedFault(put_json("language/config.json", num_hidden_layers=28), "student", "cannot be loaded"),
    ),
    "what is not measured": (
        PlantedFault(
            add_rule("loose", "unsupported_values > 0"),
            "filter.rules.loose",
            "filter.signals does not measure",
            "warning",
        ),
        PlantedFault(
            lambda f, r: r["filter"]["select"].update(mix=[{"by": "domain", "shares": {"scene": 0.5}}]),
            "filter.select.mix",
            "scene",
        ),
        PlantedFault(put("stages", 0, "train", ["language"]), "stages.align.train", "random weights", "warning"),
        PlantedFault(
            lambda f, r: r["filter"]["card"].pop("teachers"), "filter.card", "teachers.structured", "not checked"
        ),
    ),
    "student": (
        PlantedFault(put("student", "pixel_shuffle", 3), "student.pixel_shuffle", "choose one of: 1, 2, 4"),
        PlantedFault(put("student", "attention", "flash_attention_3"), "stages.align", "choose .auto."),
        PlantedFault(put("stages", 1, "kernels", "liger"), "stages.instruct", "pip install liger-kernel"),
        PlantedFault(put("stages", 2, "report_to", ["wandbb"]), "stages.reason", "wandbb' is not known"),
        PlantedFault(
            put("stages", 2, "loss", {"normalise": "spans"}),
            "stages.reason.loss.normalise",
            "33 % of the loss of a row",
            "warning",
        ),
    ),
    "dtype and lengths": (
        PlantedFault(put("student", "dtype", "float16"), "stages.align", "gradients overflow"),
        PlantedFault(put("stages", 0, "max_length", 5), "stages.align", "max_length is 5 tokens"),
        PlantedFault(put("stages", 2, "max_length", 20), "stages.reason.max_length", "are longer with their images"),
        PlantedFault(put("eval", "engine", "vllm"), "eval.engine", "vLLM"),
    ),
    "tokenizer": (
        PlantedFault(remove("language/token*", "language/vocab*"), "student.language", "language: this checkpoint"),
        PlantedFault(
            put("eval", "students", {"far": {"model": "./missing"}}),
            "eval.students.far",
            "there is no folder ./missing",
        ),
        PlantedFault(
            lambda f, r: r["eval"]["students"].update(
                key={"model": "m", "base_url": HERE, "api_key_env": "NO_KEY_X"}
            ),
            "eval.students.key.base_url",
            f"nothing answers at {HERE}",
            "warning",
        ),
        PlantedFault(
            lambda f, r: r["eval"]["students"].update(bad={"model": "m", "base_url": "localhost"}),
            "eval.students.bad.base_url",
            "no address of a server",
        ),
    ),
    "end of turn, shards, adapters": (
        PlantedFault(remove_end_of_turn, "student.language", "<|im_end|>"),
        PlantedFault(write_adapter, "eval.students.other", "no.such.layer"),
    ),
    "what stages and servers share": (
        PlantedFault(
            teacher("wide", base_url=None, server={"gpus": ["0"], "arguments": {"tensor_parallel_size": 2}}),
            "teachers.wide.server.arguments.tensor-parallel-size",
            "2, and a replica has 1",
        ),
        PlantedFault(
            both(put("teachers", 0, "logprobs", 5), put("stages", 2, "distill", {"weight": 0.5})),
            "stages.reason.distill",
            "has other tokens than the student",
        ),
        PlantedFault(put("eval", "max_new_tokens", 1_000_000), "eval.max_new_tokens", "knows positions", "warning"),
        PlantedFault(
            edit("captions", lambda _, row: {**row, "image": "41.png", "answer": "It is."}),
            "data.captions",
            r"11 of \d+ rows repeat",
            "warning",
        ),
        PlantedFault(
            put("teachers", 0, "sampling", "max_tokens", 4000), "stages.reason.max_length", "left out", "warning"
        ),
    ),
    "files that are not there, and an arm": (
        PlantedFault(
            write("captions.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
            "data.captions",
            "a pointer of git-lfs .*`git lfs pull`",
        ),
        PlantedFault(remove("teacher/*processor_config.json"), "teachers.structured.model", "image processor"),
        PlantedFault(
            put("ablate", "own", {"hot": {"set": {"stages.reason.learningrate": 1e-4}}}),
            "ablate",
            "arm hot.*learningrate: unknown key",
        ),
    ),
    "names in another case, options of a checkpoint, arms": (
        PlantedFault(
            edit("captions", lambda _, row: {**row, "image": row["image"].upper()}),
            "data.captions",
            "'40.png' is there: upper case matters",
        ),
        PlantedFault(put("data", "test", "split", "validation"), "data.test.split", "has no effect", "warning"),
        PlantedFault(
            teacher(
                "split",
                base_url=None,
                model="teacher",
                server={"arguments": {"tensor-parallel-size": 3, "quantization": "awq"}},
            ),
            "teachers.split.server.arguments.tensor-parallel-size",
            "3 does not divide the 4 attention heads",
        ),
        PlantedFault(lambda f, r: None, "teachers.split.server.arguments.quantization", "no quantization_config"),
        PlantedFault(put("stages", 2, "learning_rate", 2.0), "stages.reason.learning_rate", "diverge", "warning"),
        PlantedFault(
            put(
                "ablate",
                "own",
                {
                    "untold": {"set": {"eval.data": "tset"}},
                    "gone": {"set": {"data.test.source": "nothing.jsonl"}},
                },
            ),
            "ablate",
            "arm untold: .*did you mean 'test'",
        ),
        PlantedFault(lambda f, r: None, "ablate", "arm gone: .*nothing.jsonl does not exist"),
    ),
    "a shard": (PlantedFault(remove_shard, "student.language", "model-00002-of-00002"),),
    "sections": (
        PlantedFault(lambda f, r: r.pop("student"), "student", "the run would end after filter"),
        PlantedFault(
            lambda f, r: (r.update(teachers=[]), r["filter"].pop("card")), "stages.reason.data", "no .*teachers"
        ),
        PlantedFault(put("eval", "arms", {"before": "base"}), "eval.arms", "no .student."),
    ),
}
"""Faults by what they are about; every round is planted at once."""
COUNT = sum(len(faults) for faults in ROUNDS.values())
