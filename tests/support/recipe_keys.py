"""Example values for every key of a recipe: data for tests/recipes/test_recipe_keys.py.

`EXAMPLES` names for each key places in the recipe `BASE` and another value; with a place that ends in a star, the
values of several keys. What a change makes stale is said by the models (distill/recipe/base.py:key).
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
[data.checked]
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
[[teachers]]
name = "scorer"
model = "owner/scorer"
backend = "embedded"

[filter]
signals = ["answer", "repetition", "duplicates", "agreement", "grounding", "contamination", "corpus", "sensitive",
    "student", "judge"]
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
[stages.visual]
teacher = "scorer"
[stages.validation]
data = "test"
hold_out = 4
metric = "accuracy"
patience = 3
[[stages]]
name = "prefers"
data = "traces:pairs"
train = ["language"]
[stages.preference]
[[stages]]
name = "rolls"
data = "traces:rollouts"
train = ["language"]
[stages.rollouts]
teacher = "scorer"
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

[rounds]
count = 1
validation = "checked"

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

_PARTS = (
    "*",
    {"student": {"vision": "a", "language": "b", "pixel_shuffle": 2}, "filter.student.checkpoint": "owner/untuned"},
)
EXAMPLES: dict[str, list[tuple[str, Any]]] = {
    "seed": [("seed", 2)],
    "data.*.source": [("data.questions.source", "other.jsonl"), ("data.test.source", "other.jsonl")],
    "data.*.subset": [("data.questions.subset", "x")],
    "data.*.split": [("data.questions.split", "test")],
    "data.*.format": [("data.questions.format", "llava"), ("data.test.format", "llava")],
    "data.*.images_root": [("data.questions.images_root", "others"), ("data.test.images_root", "others")],
    "data.*.columns.image": [("data.questions.columns.image", "other")],
    "data.*.columns.question": [("data.questions.columns.question", "other")],
    "data.*.columns.answer": [("data.questions.columns.answer", "other")],
    "data.*.columns.answer_type": [("data.questions.columns.answer_type", "kind")],
    "data.*.columns.domain": [("data.questions.columns.domain", "other")],
    "data.*.columns.difficulty": [("data.questions.columns.difficulty", "other")],
    "data.*.earlier_turns": [
        ("data.questions.earlier_turns", True),
        ("*", {"data.test.format": "llava", "data.test.earlier_turns": True}),
    ],
    "data.*.domain": [("data.questions.domain", "x")],
    "data.*.answer_type": [("data.questions.answer_type", "number")],
    "data.*.limit": [("data.questions.limit", 1)],
    "data.*.part": [("data.questions.part", [0.0, 0.5])],
    "data.*.allow_outside_root": [("data.questions.allow_outside_root", True)],
    "data.*.max_pixels": [("data.questions.max_pixels", 99)],
    "data.*.max_bad_share": [("data.questions.max_bad_share", 0.5)],
    "teachers.*.name": [("teachers.started.name", "renamed")],
    "teachers.*.model": [
        ("teachers.started.model", "owner/else"),
        ("teachers.second.model", "owner/else"),
    ],
    "teachers.*.revision": [("teachers.started.revision", "v2"), ("teachers.second.revision", "v2")],
    "teachers.*.server.arguments": [
        ("teachers.started.server.arguments", {"quantization": "fp8"}),
        ("teachers.started.server.arguments", {"max-model-len": 4096}),
    ],
    "teachers.*.server.extra": [("teachers.started.server.extra", ["--dtype=half"])],
    "teachers.*.server.environment": [("teachers.started.server.environment", {"A": "b"})],
    "teachers.*.domains": [("teachers.own.domains", ["a"])],
    "teachers.*.difficulty": [("teachers.own.difficulty", ["a"])],
    "teachers.*.modality": [("teachers.own.modality", "image")],
    "teachers.*.weight": [("teachers.own.weight", 0.5)],
    "teachers.*.fallback": [("teachers.own.fallback", True)],
    "teachers.*.after": [("teachers.second.after", "started")],
    "teachers.*.when": [("teachers.second.when", "failed")],
    "teachers.*.sure_share": [("teachers.second.sure_share", 0.5)],
    "teachers.*.samples": [("teachers.own.samples", 3)],
    "teachers.*.until.correct": [("teachers.started.until.correct", 2)],
    "teachers.*.until.agree": [("teachers.started.until.agree", 2)],
    "teachers.*.until.at_once": [("teachers.started.until.at_once", 2)],
    "teachers.*.system": [("teachers.own.system", "x"), ("teachers.second.system", "x")],
    "teachers.*.prompt": [("teachers.own.prompt", "x {question}")],
    "teachers.*.cues": [("teachers.own.*", {"cues": "caption", "prompt": "{question} {cues}"})],
    "teachers.*.hinted": [("teachers.own.*", {"hinted": True, "prompt": "{question} {answer}"})],
    "teachers.*.reasoning": [("teachers.own.reasoning", "none")],
    "teachers.*.sampling.temperature": [("teachers.own.sampling.temperature", 0.1)],
    "teachers.*.sampling.top_p": [("teachers.own.sampling.top_p", 0.5)],
    "teachers.*.sampling.top_k": [("teachers.own.sampling.top_k", 5)],
    "teachers.*.sampling.min_p": [("teachers.own.sampling.min_p", 0.5)],
    "teachers.*.sampling.repetition_penalty": [("teachers.own.sampling.repetition_penalty", 1.5)],
    "teachers.*.sampling.max_tokens": [("teachers.own.sampling.max_tokens", 5)],
    "teachers.*.sampling.stop": [("teachers.own.sampling.stop", ["x"])],
    "teachers.*.sampling.stop_repetition": [("teachers.own.sampling.stop_repetition", False)],
    "teachers.*.sampling.thinking_budget": [("teachers.started.sampling.thinking_budget", 5)],
    "teachers.*.chat_template_kwargs": [
        ("teachers.own.chat_template_kwargs", {"a": 1}),
        ("teachers.second.chat_template_kwargs", {"a": 1}),
    ],
    "teachers.*.extra_body": [("teachers.second.extra_body", {"reasoning_effort": "high"})],
    "teachers.*.extra_headers": [("teachers.second.extra_headers", {"x-beta": "yes"})],
    "teachers.*.omit": [("teachers.second.omit", ["temperature"])],
    "teachers.*.mm_processor_kwargs": [("teachers.started.mm_processor_kwargs", {"a": 1})],
    "teachers.*.logprobs": [("teachers.started.logprobs", 3)],
    "teachers.*.dtype": [
        ("teachers.own.dtype", "bfloat16"),
        ("*", {"teachers.own.dtype": "bfloat16", "filter.judge.teacher": "own"}),
    ],
    "generate.outcomes.truncated_thinking": [("generate.outcomes.truncated_thinking", "drop")],
    "generate.outcomes.truncated_answer": [("generate.outcomes.truncated_answer", "drop")],
    "generate.outcomes.empty_answer": [("generate.outcomes.empty_answer", "drop")],
    "generate.outcomes.repetition": [("generate.outcomes.repetition", "drop")],
    "generate.outcomes.refusal": [("generate.outcomes.refusal", "drop")],
    "generate.outcomes.malformed": [("generate.outcomes.malformed", "drop")],
    "generate.outcomes.attempts": [("generate.outcomes.attempts", 3)],
    "generate.outcomes.cap_factor": [("generate.outcomes.cap_factor", 3.0)],
    "generate.outcomes.budget_share": [("generate.outcomes.budget_share", 0.3)],
    "filter.signals": [
        ("filter.signals", ["answer", "contamination"]),
        ("filter.signals", ["answer", "format", "judge"]),
    ],
    "filter.answer.relative_tolerance": [("filter.answer.relative_tolerance", 0.1)],
    "filter.repetition.ngram": [
        ("filter.repetition.ngram", 5),
        ("*", {"filter.repetition.ngram": 5, "filter.signals": ["answer"]}),
    ],
    "filter.duplicates.threshold": [("filter.duplicates.threshold", 0.5)],
    "filter.duplicates.shingle": [("filter.duplicates.shingle", 5)],
    "filter.grounding.table": [
        ("filter.grounding.table", "t"),
        ("*", {"filter.grounding.table": "t", "filter.signals": ["answer"]}),
    ],
    "filter.grounding.relative_tolerance": [("filter.grounding.relative_tolerance", 0.1)],
    "filter.contamination.sources": [("filter.contamination.sources", ["more"])],
    "filter.contamination.images": [("filter.contamination.images", "all")],
    "filter.corpus.threshold": [("filter.corpus.threshold", 0.5)],
    "filter.corpus.shingle": [("filter.corpus.shingle", 4)],
    "filter.sensitive.words": [("filter.sensitive.words", "words.txt")],
    "filter.student.checkpoint": [("filter.student.checkpoint", "owner/else")],
    "filter.student.batch_tokens": [("filter.student.batch_tokens", 99)],
    "filter.student.max_length": [("filter.student.max_length", 99)],
    "filter.student.dtype": [("filter.student.dtype", "float16")],
    "filter.student.per_teacher": [("filter.student.per_teacher", 9)],
    "filter.judge.teacher": [("filter.judge.teacher", "started")],
    "filter.judge.prompt": [("filter.judge.prompt", "{gold} {prediction}")],
    "filter.judge.max_tokens": [("filter.judge.max_tokens", 9)],
    "filter.rules.*.name": [("filter.rules.wrong.name", "else")],
    "filter.rules.*.drop": [("filter.rules.wrong.drop", "refusal")],
    "filter.select.per_question": [("filter.select.per_question", 1)],
    "filter.select.per_teacher": [("filter.select.per_teacher", 1)],
    "filter.select.order": [("filter.select.order", ["k"])],
    "filter.select.mix.*.by": [("filter.select.mix.0.by", "domain")],
    "filter.select.mix.*.shares": [("filter.select.mix.0.shares", {"own": 0.1})],
    "filter.select.limit": [("filter.select.limit", 1)],
    "filter.select.curriculum": [("filter.select.curriculum", ["k"])],
    "filter.select.weight": [("filter.select.weight", "2.0")],
    "filter.rationale": [("filter.rationale", "plain")],
    "filter.exports": [("filter.exports", ["llava"])],
    "filter.card.license": [("filter.card.license", "mit")],
    "filter.card.license_name": [("filter.card.license_name", "x")],
    "filter.card.license_link": [("filter.card.license_link", "x")],
    "filter.card.language": [("filter.card.language", ["en"])],
    "filter.card.sources": [("filter.card.sources", {"test": "mit"})],
    "filter.card.teachers": [("filter.card.teachers", {"own": "mit"})],
    "student.model": [("student.model", "owner/else")],
    "student.vision": [
        (
            "*",
            {
                "student": {"vision": "a", "language": "b", "pixel_shuffle": 2},
                "filter.student.checkpoint": "owner/untuned",
            },
        ),
    ],
    "student.language": [
        (
            "*",
            {
                "student": {"vision": "a", "language": "b", "pixel_shuffle": 2},
                "filter.student.checkpoint": "owner/untuned",
            },
        ),
    ],
    "student.pixel_shuffle": [
        (
            "*",
            {
                "student": {"vision": "a", "language": "b", "pixel_shuffle": 2},
                "filter.student.checkpoint": "owner/untuned",
            },
        ),
    ],
    "student.revision": [("student.revision", "v2")],
    "student.dtype": [("student.dtype", "float32")],
    "student.attention": [("student.attention", "sdpa")],
    "student.trust_remote_code": [("student.trust_remote_code", True)],
    "stages.*.name": [("stages.watched.name", "renamed")],
    "stages.*.data": [("stages.first.data", "more")],
    "stages.*.train": [("stages.first.train", ["language", "projector"])],
    "stages.*.start": [("stages.watched.start", "first")],
    "stages.*.target": [("stages.first.target", "answer")],
    "stages.*.lora.rank": [("stages.first.lora.rank", 3)],
    "stages.*.lora.alpha": [("stages.first.lora.alpha", 3)],
    "stages.*.lora.dropout": [("stages.first.lora.dropout", 0.3)],
    "stages.*.lora.rslora": [("stages.first.lora.rslora", True)],
    "stages.*.lora.dora": [("stages.first.lora.dora", True)],
    "stages.*.lora.quantize": [("stages.first.lora.quantize", "nf4")],
    "stages.*.learning_rate": [("stages.first.learning_rate", 0.1)],
    "stages.*.epochs": [("stages.first.epochs", 3.0)],
    "stages.*.max_steps": [("stages.first.max_steps", 3)],
    "stages.*.max_tokens": [("stages.first.max_tokens", 300)],
    "stages.*.batch_size": [("stages.first.batch_size", 3)],
    "stages.*.batch_tokens": [("stages.first.batch_tokens", 99999)],
    "stages.*.micro_batch_tokens": [("stages.first.micro_batch_tokens", 99)],
    "stages.*.micro_batch_images": [("stages.first.micro_batch_images", 9)],
    "stages.*.line_tokens": [("stages.first.line_tokens", 99)],
    "stages.*.order": [("stages.first.order", "data")],
    "stages.*.replay": [("stages.first.replay", {"more": 0.1})],
    "stages.*.teachers": [("stages.second.teachers", {"own": 0.1, "scorer": 1.0})],
    "stages.*.no_think": [("stages.second.no_think", 0.1)],
    "stages.*.loss.rationale": [("stages.first.loss.rationale", 2.0)],
    "stages.*.loss.answer": [("stages.first.loss.answer", 2.0)],
    "stages.*.loss.format": [("stages.first.loss.format", 2.0)],
    "stages.*.loss.normalise": [("stages.first.loss.normalise", "spans")],
    "stages.*.loss.final.rationale": [("stages.first.loss.final.rationale", 2.0)],
    "stages.*.loss.final.answer": [("stages.first.loss.final.answer", 2.0)],
    "stages.*.loss.final.format": [("stages.first.loss.final.format", 2.0)],
    "stages.*.loss.sample_weights": [("stages.first.loss.sample_weights", False)],
    "stages.*.distill.weight": [("stages.second.distill.weight", 0.1)],
    "stages.*.distill.top_k": [("stages.second.distill.top_k", 3)],
    "stages.*.visual.teacher": [("stages.second.visual.teacher", "started")],
    "stages.*.visual.strength": [("stages.second.visual.strength", 0.1)],
    "stages.*.visual.least": [("stages.second.visual.least", 0.1)],
    "stages.*.visual.most": [("stages.second.visual.most", 3.0)],
    "stages.*.preference.beta": [("stages.prefers.preference.beta", 0.2)],
    "stages.*.preference.sft": [("stages.prefers.preference.sft", 0.5)],
    "stages.*.rollouts.teacher": [("stages.rolls.rollouts.teacher", "started")],
    "stages.*.rollouts.top_k": [("stages.rolls.rollouts.top_k", 5)],
    "stages.*.rollouts.attempts": [("stages.rolls.rollouts.attempts", 2)],
    "stages.*.rollouts.temperature": [("stages.rolls.rollouts.temperature", 0.5)],
    "stages.*.rollouts.answered": [("stages.rolls.rollouts.answered", 9)],
    "stages.*.rollouts.max_new_tokens": [("stages.rolls.rollouts.max_new_tokens", 9)],
    "stages.*.max_length": [("stages.first.max_length", 9)],
    "stages.*.too_long": [("stages.first.too_long", "error")],
    "stages.*.warmup_share": [("stages.first.warmup_share", 0.3)],
    "stages.*.schedule": [("stages.first.schedule", "linear")],
    "stages.*.weight_decay": [("stages.first.weight_decay", 0.3)],
    "stages.*.max_grad_norm": [("stages.first.max_grad_norm", 0.3)],
    "stages.*.gradient_checkpointing": [("stages.first.gradient_checkpointing", True)],
    "stages.*.kernels": [("stages.first.kernels", "compile")],
    "stages.*.limit": [("stages.first.limit", 3)],
    "stages.*.validation.every_steps": [
        ("stages.second.validation.every_steps", 3),
        ("stages.watched.validation.every_steps", 3),
    ],
    "stages.*.validation.data": [("stages.second.validation.data", "more")],
    "stages.*.validation.questions": [("stages.second.validation.questions", 3)],
    "stages.*.validation.max_new_tokens": [("stages.second.validation.max_new_tokens", 3)],
    "stages.*.validation.batch_size": [("stages.second.validation.batch_size", 3)],
    "stages.*.validation.hold_out": [
        ("stages.second.validation.hold_out", 3),
        ("stages.watched.validation.hold_out", 3),
    ],
    "stages.*.validation.metric": [("stages.second.validation.metric", "loss")],
    "stages.*.validation.patience": [("stages.second.validation.patience", 4)],
    "stages.*.validation.keep": [("stages.second.validation.keep", "best")],
    "eval.data": [("eval.data", "more")],
    "eval.max_new_tokens": [("eval.max_new_tokens", 3)],
    "eval.batch_size": [("eval.batch_size", 3)],
    "eval.arms": [("eval.arms", {"base": "base", "two": "second"})],
    "eval.students.*.model": [("eval.students.hub.model", "owner/else")],
    "eval.students.*.revision": [("eval.students.hub.revision", "v2")],
    "eval.students.*.adapter": [("eval.students.hub.adapter", "adapter")],
    "eval.students.*.base_url": [("eval.students.served.base_url", "http://127.0.0.1:2/v1")],
    "eval.engine": [("eval.engine", "vllm")],
    "eval.temperature": [("*", {"eval.students": {"hub": {"model": "owner/hub"}}, "eval.temperature": 0.5})],
    "eval.think": [("eval.think", False)],
    "eval.without_image": [("eval.without_image", False)],
    "eval.metrics": [("eval.metrics", ["mine.py:own_metric"])],
    "rounds.count": [("rounds.count", 2)],
    "rounds.stage": [("rounds.stage", "second")],
    "rounds.questions": [("rounds.questions", "more")],
    "rounds.validation": [("rounds.validation", "more")],
    "rounds.hold_out": [("rounds.hold_out", 0.3)],
    "rounds.answered": [("rounds.answered", 9)],
    "rounds.attempts": [("rounds.attempts", 3)],
    "rounds.temperature": [("rounds.temperature", 0.3)],
    "rounds.most_right": [("rounds.most_right", 0.3)],
    "rounds.returned": [("rounds.returned", 9)],
    "rounds.teachers": [("rounds.teachers", ["own"])],
    "rounds.samples": [("rounds.samples", 3)],
    "rounds.prompt": [("rounds.prompt", "{question} Not this: {reply}")],
    "rounds.start": [("rounds.start", "base")],
    "rounds.steps_share": [("rounds.steps_share", 0.3)],
    "rounds.new_share": [("rounds.new_share", 0.3)],
    "rounds.ageing": [("rounds.ageing", 0.3)],
    "rounds.min_gain_points": [("rounds.min_gain_points", 1.0)],
    "rounds.max_length_growth": [("rounds.max_length_growth", 1.0)],
    "rounds.max_common_answer_growth": [("rounds.max_common_answer_growth", 0.3)],
    "ablate.seeds": [("ablate.seeds", [5])],
    "ablate.stage": [("ablate.stage", "second")],
    "ablate.equal_steps": [("ablate.equal_steps", False)],
    "ablate.arms": [("ablate.arms", ["mine"])],
    "ablate.own.*.about": [("ablate.own.mine.about", "x")],
    "ablate.own.*.change": [("ablate.own.mine.change", "mine.py:arm")],
    "ablate.own.*.set": [("ablate.own.mine.set", {"seed": 4})],
    "ablate.studies.*.question": [("ablate.studies.one.question", "x")],
    "ablate.studies.*.arms": [("ablate.studies.one.arms", ["distilled", "mine", "random"])],
    "ablate.studies.*.reference": [("ablate.studies.one.reference", "mine")],
    "ablate.studies.*.claims.*.text": [("ablate.studies.one.claims.0.text", "x")],
    "ablate.studies.*.claims.*.better": [("ablate.studies.one.claims.0.better", "distilled")],
    "ablate.studies.*.claims.*.than": [("ablate.studies.one.claims.0.than", "mine")],
    "ablate.studies.*.claims.*.domain": [("ablate.studies.one.claims.0.domain", "x")],
    "ablate.studies.*.kind": [("ablate.studies.one.kind", "scaling")],
    "ablate.studies.*.notes": [("ablate.studies.one.notes", ["x"])],
    "ablate.gallery": [("ablate.gallery", 3)],
    "teachers.*.backend": [("teachers.own.backend", "vllm")],
    "teachers.*.base_url": [("teachers.second.base_url", "http://127.0.0.1:2/v1")],
    "teachers.*.server.command": [
        ("teachers.started.server.command", ["else", "serve"]),
        ("teachers.started.server.command", ["vllm", "serve", "--dtype=half"]),
    ],
    "teachers.*.server.gpus": [("teachers.started.server.gpus", ["0"])],
    "teachers.*.server.start_timeout_s": [("teachers.started.server.start_timeout_s", 5.0)],
    "teachers.*.server.restarts": [("teachers.started.server.restarts", 1)],
    "teachers.*.api_key_env": [("teachers.second.api_key_env", "HOME")],
    "teachers.*.headers_env": [("teachers.second.headers_env", {"x-api-key": "HOME"})],
    "teachers.*.max_completion_tokens": [("teachers.second.max_completion_tokens", True)],
    "teachers.*.batch.max_requests": [("teachers.second.batch.max_requests", 9)],
    "teachers.*.batch.max_mb": [("teachers.second.batch.max_mb", 9.0)],
    "teachers.*.batch.at_once": [("teachers.second.batch.at_once", 9)],
    "teachers.*.batch.poll_s": [("teachers.second.batch.poll_s", 9.0)],
    "teachers.*.batch.completion_window": [("teachers.second.batch.completion_window", "12h")],
    "teachers.*.batch.price_share": [("teachers.second.batch.price_share", 0.25)],
    "teachers.*.choices": [("*", {"teachers.second.samples": 4, "teachers.second.choices": 2})],
    "teachers.*.served_model": [("teachers.second.served_model", "alias")],
    "teachers.*.images": [("teachers.second.images", "base64")],
    "teachers.*.max_in_flight": [("teachers.second.max_in_flight", 3)],
    "teachers.*.start_in_flight": [("teachers.second.start_in_flight", 3)],
    "teachers.*.timeout_s": [("teachers.second.timeout_s", 3.0)],
    "teachers.*.longest_s": [("teachers.second.longest_s", 4000.0)],
    "teachers.*.allow_other_model": [("teachers.second.allow_other_model", True)],
    "teachers.*.max_retries": [("teachers.second.max_retries", 3)],
    "teachers.*.price.input": [("teachers.second.price.input", 3.0)],
    "teachers.*.price.output": [("teachers.second.price.output", 3.0)],
    "teachers.*.price.hour": [("teachers.second.price.hour", 3.0)],
    "teachers.*.trust_remote_code": [("teachers.own.trust_remote_code", True)],
    "engine.kind": [("engine.kind", "slurm")],
    "engine.agents": [("engine.agents", 4)],
    "engine.nodes": [("engine.nodes", 4)],
    "engine.slurm": [("engine.slurm.time", "12:00:00")],
    "engine.ray": [("engine.ray.num_gpus", 8)],
    "engine.restarts": [("engine.restarts", 3)],
    "engine.scratch": [("engine.scratch", "elsewhere")],
    "engine.seal_s": [("engine.seal_s", 5.0)],
    "engine.lease_s": [("engine.lease_s", 30.0)],
    "engine.retries": [("engine.retries", 2)],
    "engine.unit_rows": [("engine.unit_rows", 100)],
    "store.endpoint": [("store.endpoint", "https://store.example")],
    "store.region": [("store.region", "eu-central-1")],
    "store.allow_http": [("store.allow_http", True)],
    "store.addressing": [("store.addressing", "virtual")],
    "store.price.writes": [("store.price.writes", 0.005)],
    "store.price.reads": [("store.price.reads", 0.0004)],
    "store.price.gb_month": [("store.price.gb_month", 0.02)],
    "report_to": [("report_to", ["tensorboard"])],
    "generate.flush_interval_s": [("generate.flush_interval_s", 0.3)],
    "generate.patience_s": [("generate.patience_s", 30.0)],
    "generate.max_failure_share": [("generate.max_failure_share", 0.3)],
    "filter.partition_rows": [("filter.partition_rows", 9)],
    "filter.workers": [("filter.workers", 2)],
    "student.image_memory_gb": [("student.image_memory_gb", 1.0)],
    "student.image_disk_gb": [("student.image_disk_gb", 1.0)],
    "student.image_tokens": [("student.image_tokens", "off")],
    "student.image_tokens_gb": [("student.image_tokens_gb", 1.0)],
    "student.card.license": [("student.card.license", "mit")],
    "student.card.license_name": [("student.card.license_name", "x")],
    "student.card.license_link": [("student.card.license_link", "x")],
    "stages.*.sharding": [("stages.first.sharding", "fsdp2")],
    "stages.*.save_every_steps": [("stages.first.save_every_steps", 3)],
    "stages.*.log_every_steps": [("stages.first.log_every_steps", 3)],
    "stages.*.report_to": [("stages.first.report_to", ["tensorboard"])],
    "stages.*.validation.gallery": [("stages.second.validation.gallery", 3)],
    "eval.students.*.api_key_env": [("eval.students.served.api_key_env", "HOME")],
    "eval.allow_overlap": [("eval.allow_overlap", True)],
    "eval.gallery": [("eval.gallery", 3)],
}
