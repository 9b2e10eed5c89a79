"""A recipe of the tiny world with few rows, few steps and an ablation."""

from pathlib import Path

TINY = Path(__file__).parents[3] / "recipes" / "tiny"
RECIPE = f"""
[data.questions]
source = "{TINY}/data/questions.parquet"
limit = 24
[data.captions]
source = "{TINY}/data/captions.parquet"
limit = 16
[data.instruct]
source = "{TINY}/data/instruct.parquet"
limit = 16
[data.test]
source = "{TINY}/data/test.parquet"
limit = 9

[[teachers]]
name = "reader"
backend = "embedded"
model = "{TINY}/teachers/reader"
domains = ["digits"]
samples = 2
[teachers.sampling]
temperature = 1.5
max_tokens = 96
[[teachers]]
name = "analyst"
backend = "embedded"
model = "{TINY}/teachers/analyst"
domains = ["charts"]
[teachers.sampling]
temperature = 0.5
max_tokens = 96

[filter.select]
per_question = 1

[student]
vision = "{TINY}/tower"
language = "{TINY}/decoder"
pixel_shuffle = 2
dtype = "float32"

[[stages]]
name = "align"
data = "captions"
train = ["projector"]
max_steps = 2
batch_size = 4
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
epochs = 2
batch_size = 4

[eval]
data = "test"
max_new_tokens = 6
batch_size = 9

[ablate]
seeds = [0, 1]
arms = ["untouched", "random", "merged", "nothing"]
gallery = 5
[ablate.own.nothing]
about = "no trace is good enough"
set = {{ "filter.rules" = [{{ name = "all", drop = "true" }}] }}
[ablate.studies.choice]
question = "Does choosing help?"
arms = ["random", "distilled"]
claims = [{{ text = "Chosen traces teach more", better = "distilled", than = "random" }}]
"""
