"""Every key of a recipe, and what changing it makes anew: data for tests/recipes/test_recipe_keys.py.

`CHANGES` names for each key a place in the recipe `BASE`, another value, and what is not the same any more:

    trace     the ids of traces, so they are asked anew      plan      the questions, which are read anew
    generate  the settings of the stage; so for filter, train, eval and ablate
    engine    the options of a started server that change its answers; its traces are refused
              (teacher/engines/provenance.py)
    pictures  the pictures of a source, which finished stages compare (distill/data/source_images.py)
    card      card and exports of the dataset, which are written anew without filtering again

`UNCHANGED` names the keys that change no result, and why. What follows from a stage that was made anew is left out:
filter starts from generate, and so on.
"""

from typing import Any

BASE = """
seed = 1
[data.questions]
source = "questions.jsonl"
images_root = "images"
[data.test]
source = "test.jsonl"
images_root = "images"
[data.more]
source = "more.jsonl"
images_root = "images"

[[teachers]]
name = "own"
model = "owner/embedded"
backend = "embedded"
[[teachers]]
name = "started"
model = "owner/started"
logprobs = 2
[teachers.until]
correct = 1
[[teachers]]
name = "second"
model = "owner/second"
backend = "openai"
base_url = "http://127.0.0.1:1/v1"
after = "own"
when = "unsure"

[filter]
signals = ["answer", "repetition", "duplicates", "grounding", "contamination", "corpus", "sensitive", "student",
    "judge"]
student.checkpoint = "owner/untuned"
judge.teacher = "second"
[[filter.rules]]
name = "wrong"
drop = "answer_verdict = 'wrong'"
[[filter.select.mix]]
by = "teacher"
shares = { own = 0.5 }

[student]
model = "owner/student"

[[stages]]
name = "first"
data = "questions"
train = ["language"]
[stages.lora]
[stages.loss]
[stages.loss.final]
[[stages]]
name = "second"
data = "traces"
train = ["language"]
[stages.lora]
[stages.distill]
[stages.validation]
data = "test"
hold_out = 4
metric = "accuracy"
patience = 3
[[stages]]
name = "watched"
data = "questions"
train = ["projector"]
[stages.validation]
data = "test"

[eval]
data = "test"
arms = { base = "base" }
[eval.students.served]
model = "served"
base_url = "http://127.0.0.1:1/v1"
[eval.students.hub]
model = "owner/hub"

[ablate.own.mine]
set = { "seed" = 3 }
[ablate.studies.one]
question = "Is it better?"
arms = ["distilled", "mine"]
[[ablate.studies.one.claims]]
text = "It is."
better = "mine"
than = "distilled"
"""

CHANGES: dict[str, tuple[str, Any, str]] = {
    "seed": ("seed", 2, "trace generate filter train eval"),
    "data.*.source": ("data.questions.source", "other.jsonl", "plan train"),
    "data.*.subset": ("data.questions.subset", "x", "generate train"),
    "data.*.split": ("data.questions.split", "test", "generate train"),
    "data.*.format": ("data.questions.format", "llava", "generate train"),
    "data.*.images_root": ("data.questions.images_root", "others", "plan pictures"),
    "data.*.columns.image": ("data.questions.columns.image", "other", "generate pictures train"),
    "data.*.columns.question": ("data.questions.columns.question", "other", "generate train"),
    "data.*.columns.answer": ("data.questions.columns.answer", "other", "generate train"),
    "data.*.columns.answer_type": ("data.questions.columns.answer_type", "kind", "generate train"),
    "data.*.columns.domain": ("data.questions.columns.domain", "other", "generate train"),
    "data.*.columns.difficulty": ("data.questions.columns.difficulty", "other", "generate train"),
    "data.*.domain": ("data.questions.domain", "x", "generate train"),
    "data.*.answer_type": ("data.questions.answer_type", "number", "generate train"),
    "data.*.limit": ("data.questions.limit", 1, "generate train"),
    "data.*.allow_outside_root": ("data.questions.allow_outside_root", True, "generate train"),
    "data.*.max_pixels": ("data.questions.max_pixels", 99, "generate train"),
    "data.*.max_bad_share": ("data.questions.max_bad_share", 0.5, "generate train"),
    "teachers.*.name": ("teachers.started.name", "renamed", "generate"),
    "teachers.*.model": ("teachers.started.model", "owner/else", "trace generate"),
    "teachers.*.revision": ("teachers.started.revision", "v2", "trace generate"),
    "teachers.*.server.arguments": ("teachers.started.server.arguments", {"quantization": "fp8"}, "engine"),
    "teachers.*.server.extra": ("teachers.started.server.extra", ["--dtype=half"], "engine"),
    "teachers.*.domains": ("teachers.own.domains", ["a"], "generate"),
    "teachers.*.difficulty": ("teachers.own.difficulty", ["a"], "generate"),
    "teachers.*.modality": ("teachers.own.modality", "image", "generate"),
    "teachers.*.weight": ("teachers.own.weight", 0.5, "generate"),
    "teachers.*.fallback": ("teachers.own.fallback", True, "generate"),
    "teachers.*.after": ("teachers.second.after", "started", "generate"),
    "teachers.*.when": ("teachers.second.when", "failed", "generate"),
    "teachers.*.sure_share": ("teachers.second.sure_share", 0.5, "generate"),
    "teachers.*.samples": ("teachers.own.samples", 3, "trace generate"),
    "teachers.*.until.correct": ("teachers.started.until.correct", 2, "generate"),
    "teachers.*.until.agree": ("teachers.started.until.agree", 2, "generate"),
    "teachers.*.until.at_once": ("teachers.started.until.at_once", 2, "generate"),
    "teachers.*.system": ("teachers.own.system", "x", "trace generate"),
    "teachers.*.prompt": ("teachers.own.prompt", "x {question}", "trace generate"),
    "teachers.*.hinted": ("teachers.own.*", {"hinted": True, "prompt": "{question} {answer}"}, "trace generate"),
    "teachers.*.reasoning": ("teachers.own.reasoning", "none", "generate"),
    "teachers.*.sampling.temperature": ("teachers.own.sampling.temperature", 0.1, "trace generate"),
    "teachers.*.sampling.top_p": ("teachers.own.sampling.top_p", 0.5, "trace generate"),
    "teachers.*.sampling.top_k": ("teachers.own.sampling.top_k", 5, "trace generate"),
    "teachers.*.sampling.min_p": ("teachers.own.sampling.min_p", 0.5, "trace generate"),
    "teachers.*.sampling.repetition_penalty": ("teachers.own.sampling.repetition_penalty", 1.5, "trace generate"),
    "teachers.*.sampling.max_tokens": ("teachers.own.sampling.max_tokens", 5, "trace generate"),
    "teachers.*.sampling.stop": ("teachers.own.sampling.stop", ["x"], "trace generate"),
    "teachers.*.sampling.stop_repetition": ("teachers.own.sampling.stop_repetition", False, "trace generate"),
    "teachers.*.sampling.thinking_budget": ("teachers.started.sampling.thinking_budget", 5, "trace generate"),
    "teachers.*.chat_template_kwargs": ("teachers.own.chat_template_kwargs", {"a": 1}, "trace generate"),
    "teachers.*.mm_processor_kwargs": ("teachers.started.mm_processor_kwargs", {"a": 1}, "trace generate"),
    "teachers.*.logprobs": ("teachers.started.logprobs", 3, "trace generate"),
    "teachers.*.dtype": ("teachers.own.dtype", "bfloat16", "trace generate"),
    "generate.outcomes.truncated_thinking": ("generate.outcomes.truncated_thinking", "drop", "generate"),
    "generate.outcomes.truncated_answer": ("generate.outcomes.truncated_answer", "drop", "generate"),
    "generate.outcomes.empty_answer": ("generate.outcomes.empty_answer", "drop", "generate"),
    "generate.outcomes.repetition": ("generate.outcomes.repetition", "drop", "generate"),
    "generate.outcomes.refusal": ("generate.outcomes.refusal", "drop", "generate"),
    "generate.outcomes.malformed": ("generate.outcomes.malformed", "drop", "generate"),
    "generate.outcomes.attempts": ("generate.outcomes.attempts", 3, "generate"),
    "generate.outcomes.cap_factor": ("generate.outcomes.cap_factor", 3.0, "generate"),
    "generate.outcomes.budget_share": ("generate.outcomes.budget_share", 0.3, "generate"),
    "filter.signals": ("filter.signals", ["answer"], "filter"),
    "filter.answer.relative_tolerance": ("filter.answer.relative_tolerance", 0.1, "generate filter train eval"),
    "filter.repetition.ngram": ("filter.repetition.ngram", 5, "filter"),
    "filter.duplicates.threshold": ("filter.duplicates.threshold", 0.5, "filter"),
    "filter.duplicates.shingle": ("filter.duplicates.shingle", 5, "filter"),
    "filter.grounding.table": ("filter.grounding.table", "t", "filter eval"),
    "filter.grounding.relative_tolerance": ("filter.grounding.relative_tolerance", 0.1, "filter eval"),
    "filter.contamination.sources": ("filter.contamination.sources", ["more"], "filter"),
    "filter.contamination.images": ("filter.contamination.images", "all", "filter"),
    "filter.corpus.threshold": ("filter.corpus.threshold", 0.5, "filter"),
    "filter.corpus.shingle": ("filter.corpus.shingle", 4, "filter"),
    "filter.sensitive.words": ("filter.sensitive.words", "words.txt", "filter"),
    "filter.student.checkpoint": ("filter.student.checkpoint", "owner/else", "filter"),
    "filter.student.batch_tokens": ("filter.student.batch_tokens", 99, "filter"),
    "filter.student.max_length": ("filter.student.max_length", 99, "filter"),
    "filter.student.dtype": ("filter.student.dtype", "float16", "filter"),
    "filter.student.per_teacher": ("filter.student.per_teacher", 9, "filter"),
    "filter.judge.teacher": ("filter.judge.teacher", "started", "filter"),
    "filter.judge.prompt": ("filter.judge.prompt", "{gold} {prediction}", "filter"),
    "filter.judge.max_tokens": ("filter.judge.max_tokens", 9, "filter"),
    "filter.rules.*.name": ("filter.rules.wrong.name", "else", "filter"),
    "filter.rules.*.drop": ("filter.rules.wrong.drop", "refusal", "filter"),
    "filter.select.per_question": ("filter.select.per_question", 1, "filter"),
    "filter.select.per_teacher": ("filter.select.per_teacher", 1, "filter"),
    "filter.select.order": ("filter.select.order", ["k"], "filter"),
    "filter.select.mix.*.by": ("filter.select.mix.0.by", "domain", "filter"),
    "filter.select.mix.*.shares": ("filter.select.mix.0.shares", {"own": 0.1}, "filter"),
    "filter.select.limit": ("filter.select.limit", 1, "filter"),
    "filter.select.curriculum": ("filter.select.curriculum", ["k"], "filter"),
    "filter.select.weight": ("filter.select.weight", "2.0", "filter"),
    "filter.rationale": ("filter.rationale", "plain", "filter train eval"),
    "filter.exports": ("filter.exports", ["llava"], "card"),
    "filter.card.license": ("filter.card.license", "mit", "card"),
    "filter.card.license_name": ("filter.card.license_name", "x", "card"),
    "filter.card.license_link": ("filter.card.license_link", "x", "card"),
    "filter.card.language": ("filter.card.language", ["en"], "card"),
    "filter.card.sources": ("filter.card.sources", {"test": "mit"}, "card"),
    "filter.card.teachers": ("filter.card.teachers", {"own": "mit"}, "card"),
    "student.model": ("student.model", "owner/else", "train eval"),
    "student.vision": ("student", {"vision": "a", "language": "b", "pixel_shuffle": 2}, "train eval"),
    "student.language": ("student", {"vision": "a", "language": "c", "pixel_shuffle": 2}, "train eval"),
    "student.pixel_shuffle": ("student", {"vision": "a", "language": "c", "pixel_shuffle": 4}, "train eval"),
    "student.revision": ("student.revision", "v2", "train eval"),
    "student.dtype": ("student.dtype", "float32", "train eval"),
    "student.attention": ("student.attention", "sdpa", "train eval"),
    "student.trust_remote_code": ("student.trust_remote_code", True, "train eval"),
    "stages.*.name": ("stages.watched.name", "renamed", "train"),
    "stages.*.data": ("stages.first.data", "more", "train"),
    "stages.*.train": ("stages.first.train", ["language", "projector"], "train"),
    "stages.*.start": ("stages.watched.start", "first", "train"),
    "stages.*.target": ("stages.first.target", "answer", "train"),
    "stages.*.lora.rank": ("stages.first.lora.rank", 3, "train"),
    "stages.*.lora.alpha": ("stages.first.lora.alpha", 3, "train"),
    "stages.*.lora.dropout": ("stages.first.lora.dropout", 0.3, "train"),
    "stages.*.lora.rslora": ("stages.first.lora.rslora", True, "train"),
    "stages.*.lora.dora": ("stages.first.lora.dora", True, "train"),
    "stages.*.lora.quantize": ("stages.first.lora.quantize", "nf4", "train"),
    "stages.*.learning_rate": ("stages.first.learning_rate", 0.1, "train"),
    "stages.*.epochs": ("stages.first.epochs", 3.0, "train"),
    "stages.*.max_steps": ("stages.first.max_steps", 3, "train"),
    "stages.*.batch_size": ("stages.first.batch_size", 3, "train"),
    "stages.*.batch_tokens": ("stages.first.batch_tokens", 99999, "train"),
    "stages.*.micro_batch_tokens": ("stages.first.micro_batch_tokens", 99, "train"),
    "stages.*.micro_batch_images": ("stages.first.micro_batch_images", 9, "train"),
    "stages.*.line_tokens": ("stages.first.line_tokens", 99, "train"),
    "stages.*.order": ("stages.first.order", "data", "train"),
    "stages.*.replay": ("stages.first.replay", {"more": 0.1}, "train"),
    "stages.*.teachers": ("stages.second.teachers", {"own": 0.1}, "train"),
    "stages.*.no_think": ("stages.second.no_think", 0.1, "train"),
    "stages.*.loss.rationale": ("stages.first.loss.rationale", 2.0, "train"),
    "stages.*.loss.answer": ("stages.first.loss.answer", 2.0, "train"),
    "stages.*.loss.format": ("stages.first.loss.format", 2.0, "train"),
    "stages.*.loss.normalise": ("stages.first.loss.normalise", "spans", "train"),
    "stages.*.loss.final.rationale": ("stages.first.loss.final.rationale", 2.0, "train"),
    "stages.*.loss.final.answer": ("stages.first.loss.final.answer", 2.0, "train"),
    "stages.*.loss.final.format": ("stages.first.loss.final.format", 2.0, "train"),
    "stages.*.loss.sample_weights": ("stages.first.loss.sample_weights", False, "train"),
    "stages.*.distill.weight": ("stages.second.distill.weight", 0.1, "train"),
    "stages.*.distill.top_k": ("stages.second.distill.top_k", 3, "train"),
    "stages.*.max_length": ("stages.first.max_length", 9, "train"),
    "stages.*.too_long": ("stages.first.too_long", "error", "train"),
    "stages.*.warmup_share": ("stages.first.warmup_share", 0.3, "train"),
    "stages.*.schedule": ("stages.first.schedule", "linear", "train"),
    "stages.*.weight_decay": ("stages.first.weight_decay", 0.3, "train"),
    "stages.*.max_grad_norm": ("stages.first.max_grad_norm", 0.3, "train"),
    "stages.*.gradient_checkpointing": ("stages.first.gradient_checkpointing", True, "train"),
    "stages.*.kernels": ("stages.first.kernels", "compile", "train"),
    "stages.*.limit": ("stages.first.limit", 3, "train"),
    "stages.*.validation.every_steps": ("stages.second.validation.every_steps", 3, "train"),
    "stages.*.validation.data": ("stages.second.validation.data", "more", "train"),
    "stages.*.validation.questions": ("stages.second.validation.questions", 3, "train"),
    "stages.*.validation.max_new_tokens": ("stages.second.validation.max_new_tokens", 3, "train"),
    "stages.*.validation.batch_size": ("stages.second.validation.batch_size", 3, "train"),
    "stages.*.validation.hold_out": ("stages.second.validation.hold_out", 3, "train"),
    "stages.*.validation.metric": ("stages.second.validation.metric", "loss", "train"),
    "stages.*.validation.patience": ("stages.second.validation.patience", 4, "train"),
    "stages.*.validation.keep": ("stages.second.validation.keep", "best", "train"),
    "eval.data": ("eval.data", "more", "filter eval"),
    "eval.max_new_tokens": ("eval.max_new_tokens", 3, "eval"),
    "eval.batch_size": ("eval.batch_size", 3, "eval"),
    "eval.arms": ("eval.arms", {"base": "base", "two": "second"}, "eval"),
    "eval.students.*.model": ("eval.students.hub.model", "owner/else", "eval"),
    "eval.students.*.revision": ("eval.students.hub.revision", "v2", "eval"),
    "eval.students.*.adapter": ("eval.students.hub.adapter", "adapter", "eval"),
    "eval.students.*.base_url": ("eval.students.served.base_url", "http://127.0.0.1:2/v1", "eval"),
    "eval.engine": ("eval.engine", "vllm", "eval"),
    "eval.think": ("eval.think", False, "eval"),
    "eval.without_image": ("eval.without_image", False, "eval"),
    "ablate.seeds": ("ablate.seeds", [5], "ablate"),
    "ablate.stage": ("ablate.stage", "second", "ablate"),
    "ablate.equal_steps": ("ablate.equal_steps", False, "ablate"),
    "ablate.arms": ("ablate.arms", ["mine"], "ablate"),
    "ablate.own.*.about": ("ablate.own.mine.about", "x", "ablate"),
    "ablate.own.*.set": ("ablate.own.mine.set", {"seed": 4}, "ablate"),
    "ablate.studies.*.question": ("ablate.studies.one.question", "x", "ablate"),
    "ablate.studies.*.arms": ("ablate.studies.one.arms", ["distilled", "mine", "random"], "ablate"),
    "ablate.studies.*.reference": ("ablate.studies.one.reference", "mine", "ablate"),
    "ablate.studies.*.claims.*.text": ("ablate.studies.one.claims.0.text", "x", "ablate"),
    "ablate.studies.*.claims.*.better": ("ablate.studies.one.claims.0.better", "distilled", "ablate"),
    "ablate.studies.*.claims.*.than": ("ablate.studies.one.claims.0.than", "mine", "ablate"),
    "ablate.studies.*.claims.*.domain": ("ablate.studies.one.claims.0.domain", "x", "ablate"),
    "ablate.studies.*.kind": ("ablate.studies.one.kind", "scaling", "ablate"),
    "ablate.studies.*.notes": ("ablate.studies.one.notes", ["x"], "ablate"),
    "ablate.gallery": ("ablate.gallery", 3, "ablate"),
}

UNCHANGED: dict[str, tuple[str, Any, str]] = {
    "teachers.*.backend": (
        "teachers.own.backend",
        "vllm",
        "the same model asked the same thing is the same attempt, over HTTP or in this process; its "
        "engine is recorded",
    ),
    "teachers.*.base_url": (
        "teachers.second.base_url",
        "http://127.0.0.1:2/v1",
        "where a server is says nothing about its model; its address is recorded",
    ),
    "teachers.*.server.command": (
        "teachers.started.server.command",
        ["else", "serve"],
        "which program starts the server; its options are compared, its version is recorded",
    ),
    "teachers.*.server.environment": (
        "teachers.started.server.environment",
        {"A": "b"},
        "how the server is run; nothing of it may be written down, for it may hold keys",
    ),
    "teachers.*.server.gpus": ("teachers.started.server.gpus", ["0"], "where the server runs"),
    "teachers.*.server.start_timeout_s": ("teachers.started.server.start_timeout_s", 5.0, "how long is waited"),
    "teachers.*.server.restarts": ("teachers.started.server.restarts", 1, "how often a crash is mended"),
    "teachers.*.api_key_env": ("teachers.second.api_key_env", "HOME", "where the key is"),
    "teachers.*.served_model": (
        "teachers.second.served_model",
        "alias",
        "the server's name for `model`, which with `revision` says what answers; recorded on each trace",
    ),
    "teachers.*.images": ("teachers.second.images", "base64", "how the same pixels reach the server"),
    "teachers.*.max_in_flight": ("teachers.second.max_in_flight", 3, "how many at once: speed"),
    "teachers.*.timeout_s": ("teachers.second.timeout_s", 3.0, "how long is waited; what failed is asked again"),
    "teachers.*.longest_s": ("teachers.second.longest_s", 4000.0, "how long is waited; what failed is asked again"),
    "teachers.*.allow_other_model": (
        "teachers.second.allow_other_model",
        True,
        "each trace names the model that wrote it",
    ),
    "teachers.*.max_retries": ("teachers.second.max_retries", 3, "how often is tried; what failed is asked again"),
    "teachers.*.price.input": ("teachers.second.price.input", 3.0, "an estimate only"),
    "teachers.*.price.output": ("teachers.second.price.output", 3.0, "an estimate only"),
    "teachers.*.price.hour": ("teachers.second.price.hour", 3.0, "an estimate only"),
    "teachers.*.trust_remote_code": (
        "teachers.own.trust_remote_code",
        True,
        "whether a model may be loaded at all; its code is part of the checkpoint",
    ),
    "generate.flush_interval_s": ("generate.flush_interval_s", 0.3, "how soon a trace is durable"),
    "generate.patience_s": ("generate.patience_s", 30.0, "how long is waited; what waited is asked again"),
    "generate.max_failure_share": ("generate.max_failure_share", 0.3, "when a run stops early; the next one goes on"),
    "filter.partition_rows": ("filter.partition_rows", 9, "how the work is cut; the same bytes come out"),
    "filter.workers": ("filter.workers", 2, "how the work is shared; the same bytes come out"),
    "student.image_memory_gb": ("student.image_memory_gb", 1.0, "where prepared images lie"),
    "student.image_disk_gb": ("student.image_disk_gb", 1.0, "where prepared images lie"),
    "student.image_tokens": (
        "student.image_tokens",
        "off",
        "whether tokens of an image are computed once or at every step",
    ),
    "student.image_tokens_gb": ("student.image_tokens_gb", 1.0, "where tokens of images lie"),
    "stages.*.sharding": (
        "stages.first.sharding",
        "fsdp2",
        "where weights lie; sums differ by rounding, and a run may go on with other processes",
    ),
    "stages.*.save_every_steps": ("stages.first.save_every_steps", 3, "how much a kill costs"),
    "stages.*.log_every_steps": ("stages.first.log_every_steps", 3, "how much is logged"),
    "stages.*.report_to": ("stages.first.report_to", ["tensorboard"], "who else gets the log"),
    "stages.*.validation.gallery": ("stages.second.validation.gallery", 3, "how many replies the page shows"),
    "eval.students.*.api_key_env": ("eval.students.served.api_key_env", "HOME", "where the key is"),
    "eval.allow_overlap": (
        "eval.allow_overlap",
        True,
        "whether an overlap with the training data is refused; it is counted either way",
    ),
    "eval.gallery": ("eval.gallery", 3, "how many questions the page shows"),
}
