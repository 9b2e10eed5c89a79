"""Faults that would stop a run late or spoil it, each planted into the world of tests/support/check_world.py.

Faults of one round don't touch each other, so that one check has to find all of them at once.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import check_world as world

Plant = Callable[[Path, dict[str, Any]], object]


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """What is planted, and the key and words that the result has to hold."""

    plant: Plant
    key: str
    words: str
    state: str = "problem"


def _edit(name: str, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> Plant:
    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        path = folder / f"{name}.jsonl"
        world.write(path, [change(number, row) for number, row in enumerate(world.rows(path))])

    return plant


def _set(*path: Any) -> Plant:
    *keys, last, value = path

    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        node: Any = recipe
        for key in keys:
            node = node[key] if isinstance(key, int) or isinstance(node, list) else node.setdefault(key, {})
        node[last] = value

    return plant


def _write(name: str, content: bytes) -> Plant:
    return lambda folder, recipe: (folder / name).write_bytes(content)


def _remove(*names: str) -> Plant:
    return lambda folder, recipe: [path.unlink() for name in names for path in folder.glob(name)]


def _both(*plants: Plant) -> Plant:
    return lambda folder, recipe: [plant(folder, recipe) for plant in plants]


def _teacher(name: str, **values: Any) -> Plant:
    """One more teacher, about all questions."""
    settings = {"name": name, "backend": "vllm", "model": "some/teacher", "base_url": "http://127.0.0.1:9/v1"}

    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        made = {key: value for key, value in {**settings, **values}.items() if value is not None}
        recipe["teachers"].append(made)

    return plant


def _stage(**values: Any) -> Plant:
    settings = {"train": ["language"], "max_steps": 1, "batch_size": 4, "micro_batch_tokens": 512}
    return lambda folder, recipe: recipe["stages"].append({**settings, **values})


def _rule(name: str, drop: str) -> Plant:
    return lambda folder, recipe: recipe["filter"]["rules"].append({"name": name, "drop": drop})


def _source(name: str, rows: list[dict[str, Any]], **values: Any) -> Plant:
    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        world.write(folder / f"{name}.jsonl", rows)
        recipe["data"][name] = {"source": f"{name}.jsonl", "images_root": "images", **values}

    return plant


def _without_tensor(folder: Path, recipe: dict[str, Any]) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "language" / "model.safetensors"
    weights = load_file(path)
    weights.pop(next(name for name in sorted(weights) if "mlp" in name))
    save_file(weights, path, metadata={"format": "pt"})


def _lacking_shard(folder: Path, recipe: dict[str, Any]) -> None:
    path = folder / "language" / "model.safetensors"
    path.rename(path.with_name("model-00001-of-00002.safetensors"))
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "language" / "model.safetensors.index.json").write_text(json.dumps(index))


def _cut(name: str) -> Plant:
    return lambda folder, recipe: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


def _json(name: str, **changes: Any) -> Plant:
    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return plant


def _copied_pictures(folder: Path, recipe: dict[str, Any]) -> None:
    first = world.QUESTIONS + world.CAPTIONS
    for number in range(5):
        shutil.copyfile(folder / "images" / f"{number}.png", folder / "images" / f"{first + number}.png")


def _damaged_pictures(folder: Path, recipe: dict[str, Any]) -> None:
    for number in (1, 2, 3):
        (folder / "images" / f"{number}.png").write_bytes(b"<!DOCTYPE html><html>not found</html>")


def _adapter(folder: Path, recipe: dict[str, Any]) -> None:
    from safetensors.torch import save_file
    from torch import zeros

    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "../teacher"}))
    weights = {"base_model.model.no.such.layer.lora_A.weight": zeros(4, 4)}
    save_file(weights, folder / "adapter" / "adapter_model.safetensors")
    recipe["eval"].setdefault("students", {})["other"] = {"model": "teacher", "adapter": "adapter"}


def _no_end_of_turn(folder: Path, recipe: dict[str, Any]) -> None:
    for file in (folder / "language").glob("*token*"):
        file.write_text(file.read_text().replace("<|im_end|>", "<|stop|>"))


PICTURE = {"image": "0.png", "question": "What is there?"}
LINES = [{"image": "", "question": f"{number} + 1?", "answer": str(number + 1)} for number in range(8)]
HERE = "http://127.0.0.1:9/v1"

ROUNDS: dict[str, tuple[PlantedFault, ...]] = {
    "sources missing, without columns, empty": (
        PlantedFault(_remove("captions.jsonl"), "data.captions", r"captions\.jsonl does not exist"),
        PlantedFault(
            _edit("test", lambda _, row: {"image": row["image"], "query": row["question"], "label": row["answer"]}),
            "data.test",
            "no column 'question'.*answer.*image.*|no column 'question'.*label",
        ),
        PlantedFault(_write("questions.jsonl", b""), "data.questions", "holds no rows"),
        PlantedFault(_set("filter", "contamination", "sources", ["tset"]), "filter.contamination", "tset"),
    ),
    "no answers, copied test pictures": (
        PlantedFault(
            _edit("captions", lambda _, row: {**row, "answer": ""}),
            "data.captions.columns.answer",
            "no row has an answer; needed by stages.align.data",
        ),
        PlantedFault(_copied_pictures, "data.questions", "picture"),
        PlantedFault(
            _edit("test", lambda number, row: {**row, "answer": "" if number < 5 else row["answer"]}),
            "data.test.columns.answer",
            "5 of 12 rows have no answer, such as 'Picture 52",
            "warning",
        ),
        PlantedFault(
            _both(
                _edit("questions", lambda n, row: {**row, "domain": "maths" if n < 9 else row["domain"]}),
                _set("teachers", 0, "domains", ["scenes", "charts"]),
            ),
            "teachers.domains",
            "9 questions are for no teacher.*'maths': 9",
            "warning",
        ),
    ),
    "pictures": (
        PlantedFault(_damaged_pictures, "data.questions", "3 of 40 rows cannot be used.*DOCTYPE", "warning"),
        PlantedFault(_set("data", "captions", "images_root", "imagse"), "data.captions", "did you mean 'images'"),
        PlantedFault(
            _edit("test", lambda number, row: {**row, "image": f"gone/{number}.png"} if number < 4 else row),
            "data.test",
            r"missing_image: 4.*max_bad_share|max_bad_share.*missing_image: 4",
        ),
        PlantedFault(_set("teachers", 0, "domains", ["scene"]), "teachers.structured", "did you mean 'scenes'"),
    ),
    "broken files": (
        PlantedFault(_write("captions.jsonl", b"{not json\n" * 5), "data.captions", "malformed_row"),
        PlantedFault(
            _both(_write("test.parquet", b"PAR1 cut"), _set("data", "test", "source", "test.parquet")),
            "data.test",
            "test.parquet: cannot be read",
        ),
        PlantedFault(_set("data", "questions", "source", "questionz"), "data.questions", "did you mean 'questions"),
    ),
    "names of sources": (
        PlantedFault(
            _set("data", "captions", "source", "nobody/Captions"), "data.captions.source", "no network", "not checked"
        ),
        PlantedFault(
            _both(
                _source("more", LINES),
                _set("data", "more", "source", "nobody/more"),
                _set("data", "more", "split", "train[:9]"),
                _set("stages", 1, "replay", {"more": 0.1}),
            ),
            "data.more",
            "slices are not read; use limit",
        ),
        PlantedFault(_set("eval", "data", "tests"), "data.tests", "no such source.*did you mean 'test'"),
    ),
    "a format of its own": (
        PlantedFault(_set("data", "test", "source", "test.xlsx"), "data.test", "there is no .*test.xlsx"),
        PlantedFault(_set("data", "questions", "format", "llava"), "data.questions", "no column 'conversations'"),
    ),
    "rows of stages": (
        PlantedFault(
            _set("stages", 0, "validation", {"hold_out": 12}), "stages.align.validation.hold_out", "12 rows"
        ),
        PlantedFault(
            _both(
                _source("plain", LINES, columns={"image": ""}),
                _stage(name="blind", data="plain", train=["projector"]),
            ),
            "stages.blind.train",
            "no row of 'plain' has an image",
        ),
        PlantedFault(
            _both(_source("silent", [PICTURE]), _set("stages", 1, "replay", {"silent": 0.1})),
            "data.silent.columns.answer",
            "needed by stages.instruct.replay",
        ),
        PlantedFault(
            _both(
                _source("unasked", [PICTURE]), _set("stages", 2, "validation", {"data": "unasked", "every_steps": 1})
            ),
            "data.unasked.columns.answer",
            r"needed by stages\.reason\.validation\.data",
        ),
        PlantedFault(
            _stage(name="mute", data="captions", loss={"answer": 0.0, "format": 0.0}),
            "stages.mute.loss",
            "nothing would be learned",
        ),
    ),
    "teachers": (
        PlantedFault(_teacher("keyless", api_key_env="NO_SUCH_KEY_HERE"), "teachers.keyless", "NO_SUCH_KEY_HERE"),
        PlantedFault(
            _teacher("own", base_url=None, server={"command": ["no-vllm-here", "serve"]}),
            "teachers.own",
            "no program 'no-vllm-here'",
        ),
        PlantedFault(
            _teacher("port", base_url=None, server={"extra": ["--port", "8000"]}),
            "teachers.port",
            "--port is set by the run",
        ),
        PlantedFault(
            _teacher("short", base_url=None, server={"arguments": {"max-model-len": "1k"}}),
            "teachers.short",
            "max_tokens = 1024 leaves no room",
        ),
        PlantedFault(_teacher("bare", base_url="127.0.0.1:8000/v1"), "teachers.bare", "http://127.0.0.1:8000/v1"),
        PlantedFault(_teacher("down"), "teachers.down.base_url", f"nothing answers at {HERE}", "warning"),
        PlantedFault(_teacher("Structured"), "teachers.Structured", "in case alone", "warning"),
        PlantedFault(_teacher("typo", prompt="{question} {qestion}"), "teachers.typo", "did you mean {question}"),
        PlantedFault(
            _teacher("hosted", backend="openai", logprobs=3), "teachers.hosted", "logprobs needs backend 'vllm'"
        ),
        PlantedFault(
            _teacher("thinker", sampling={"max_tokens": 100, "thinking_budget": 100}),
            "teachers.thinker.sampling.thinking_budget",
            "leaves nothing",
            "warning",
        ),
        PlantedFault(
            _teacher("gone", backend="embedded", base_url=None, model="./nowhere"), "teachers.gone", "does not exist"
        ),
        PlantedFault(
            _teacher("nearly", backend="embedded", base_url=None, model="teachers"),
            "teachers.nearly.model",
            "did you mean 'teacher'",
        ),
    ),
    "one model twice": (
        PlantedFault(_both(_teacher("one"), _teacher("two")), "teachers", "one and two are the same model"),
        PlantedFault(_remove("teacher/token*", "teacher/vocab*"), "teachers.structured", "has no tokenizer.json"),
        PlantedFault(
            _write("language/model.safetensors", b"version https://git-lfs.github.com/spec/v1\n"),
            "student.language",
            "git lfs pull",
        ),
        PlantedFault(_cut("vision/model.safetensors"), "student.vision", "cannot be loaded"),
    ),
    "teacher's weights": (
        PlantedFault(_cut("teacher/model.safetensors"), "teachers", "cannot be loaded"),
        PlantedFault(_without_tensor, "student.language", "lacks 1 of its weights"),
        PlantedFault(_json("vision/config.json", model_type="clip_vision_model"), "student.vision", "not a SigLIP"),
    ),
    "own parts": (
        PlantedFault(
            _set("filter", "signals", ["answer", "mine.py:Hedging"]), "filter.signals", "mine.py cannot be read"
        ),
        PlantedFault(_set("filter", "exports", ["mine.py:chat"]), "filter.exports", "mine.py cannot be read"),
        PlantedFault(_set("eval", "metrics", ["mine.py:short"]), "eval.metrics", "mine.py cannot be read"),
    ),
    "filter": (
        PlantedFault(_rule("quoted", "answer_verdict = 'wrong"), "filter.rules.quoted", "not an SQL condition"),
        PlantedFault(
            _rule("column", "answr_verdict = 'wrong'"), "filter.rules.column", "did you mean 'answer_verdict'"
        ),
        PlantedFault(_rule("number", "rationale_tokens"), "filter.rules.number", "not true or false"),
        PlantedFault(
            _set("filter", "select", "order", ["-rational_tokens"]),
            "filter.select.order",
            "did you mean 'rationale_tokens'",
        ),
        PlantedFault(
            _both(
                lambda f, r: r["filter"]["signals"].extend(["sensitive", "judge", "student"]),
                _set("filter", "sensitive", {"words": "words.txt"}),
            ),
            "filter.sensitive.words",
            "words.txt",
        ),
        PlantedFault(
            _set("filter", "judge", {"teacher": "structured", "prompt": "{gold} {prediction} {questoin}"}),
            "filter.judge.prompt",
            r"did you mean \{question\}",
        ),
        PlantedFault(
            _set("filter", "student", {"checkpoint": "runs/x/model"}),
            "filter.student.checkpoint",
            "runs/x",
        ),
        PlantedFault(
            lambda f, r: r["filter"]["select"].update(mix=[{"by": "teacher", "shares": {"strctured": 0.5}}]),
            "filter.select.mix",
            "strctured.*there: structured",
        ),
        PlantedFault(
            _set("filter", "card", "license", "free"), "filter.card.license", "'free' is no licence", "warning"
        ),
    ),
    "values that mean something else": (
        PlantedFault(_rule("all", "answer_verdict = 'x' OR TRUE"), "filter.rules.all", "may keep none", "warning"),
        PlantedFault(_rule("long", "rationale_tokens > 0"), "filter.rules.long", "may keep none", "warning"),
        PlantedFault(_remove("vision/preprocessor_config.json"), "student.vision", "mean and deviation", "warning"),
        PlantedFault(
            _set("teachers", 0, "prompt", "{question} {hint}"),
            "teachers.structured.prompt",
            "{hint}",
            "warning",
        ),
        PlantedFault(
            _teacher("endpoint", base_url="http://127.0.0.1:9/v1/chat/completions"),
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
        PlantedFault(_json("language/config.json", num_hidden_layers=28), "student", "cannot be loaded"),
    ),
    "what is not measured": (
        PlantedFault(
            _rule("loose", "unsupported_values > 0"),
            "filter.rules.loose",
            "filter.signals does not measure",
            "warning",
        ),
        PlantedFault(
            lambda f, r: r["filter"]["select"].update(mix=[{"by": "domain", "shares": {"scene": 0.5}}]),
            "filter.select.mix",
            "scene",
        ),
        PlantedFault(_set("stages", 0, "train", ["language"]), "stages.align.train", "random numbers", "warning"),
        PlantedFault(
            lambda f, r: r["filter"]["card"].pop("teachers"), "filter.card", "teachers.structured", "not checked"
        ),
    ),
    "student": (
        PlantedFault(_set("student", "pixel_shuffle", 3), "student.pixel_shuffle", "choose one of: 1, 2, 4"),
        PlantedFault(_set("student", "attention", "flash_attention_3"), "stages.align", "choose .auto."),
        PlantedFault(_set("stages", 1, "kernels", "liger"), "stages.instruct", "pip install liger-kernel"),
        PlantedFault(_set("stages", 2, "report_to", ["wandbb"]), "stages.reason", "wandbb' is not known"),
        PlantedFault(
            _set("stages", 2, "loss", {"normalise": "spans"}),
            "stages.reason.loss.normalise",
            "33% of the loss of a row",
            "warning",
        ),
    ),
    "dtype and lengths": (
        PlantedFault(_set("student", "dtype", "float16"), "stages.align", "gradients overflow"),
        PlantedFault(_set("stages", 0, "max_length", 5), "stages.align", "max_length is 5 tokens"),
        PlantedFault(_set("stages", 2, "max_length", 20), "stages.reason.max_length", "are longer with their images"),
        PlantedFault(_set("eval", "engine", "vllm"), "eval.engine", "vLLM"),
    ),
    "tokenizer": (
        PlantedFault(_remove("language/token*", "language/vocab*"), "student.language", "language: this checkpoint"),
        PlantedFault(
            _set("eval", "students", {"far": {"model": "./missing"}}),
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
        PlantedFault(_no_end_of_turn, "student.language", "<|im_end|>"),
        PlantedFault(_adapter, "eval.students.other", "no.such.layer"),
    ),
    "what stages and servers share": (
        PlantedFault(
            _teacher("wide", base_url=None, server={"gpus": ["0"], "arguments": {"tensor_parallel_size": 2}}),
            "teachers.wide.server.arguments.tensor-parallel-size",
            "2, and a replica has 1",
        ),
        PlantedFault(
            _both(_set("teachers", 0, "logprobs", 5), _set("stages", 2, "distill", {"weight": 0.5})),
            "stages.reason.distill",
            "has other tokens than the student",
        ),
        PlantedFault(_set("eval", "max_new_tokens", 1_000_000), "eval.max_new_tokens", "knows positions", "warning"),
        PlantedFault(
            _edit("captions", lambda _, row: {**row, "image": "41.png", "answer": "It is."}),
            "data.captions",
            "11 rows repeat",
            "warning",
        ),
        PlantedFault(
            _set("teachers", 0, "sampling", "max_tokens", 4000), "stages.reason.max_length", "left out", "warning"
        ),
    ),
    "a shard": (PlantedFault(_lacking_shard, "student.language", "model-00002-of-00002"),),
    "sections": (
        PlantedFault(lambda f, r: r.pop("student"), "student", "the run would end after filter"),
        PlantedFault(
            lambda f, r: (r.update(teachers=[]), r["filter"].pop("card")), "stages.reason.data", "no .*teachers"
        ),
        PlantedFault(_set("eval", "arms", {"before": "base"}), "eval.arms", "no .student."),
    ),
}
"""Faults by what they are about; every round is planted at once."""
COUNT = sum(len(faults) for faults in ROUNDS.values())
