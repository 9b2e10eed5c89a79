"""Example values for every key of a recipe: data for tests/recipes/test_recipe_keys.py.

`EXAMPLES` names for each key places in the recipe `BASE` and another value; with a place that ends in a star, the
values of several keys. What a change makes stale is said by the models (distill/recipe/base.py:key).
"""

from listed import recipe_keys_of_students, recipe_keys_of_traces

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
samples = 3
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

EXAMPLES = recipe_keys_of_traces.EXAMPLES | recipe_keys_of_students.EXAMPLES
