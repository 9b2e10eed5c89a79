"""Names of arms and of their differences."""

from pathlib import Path

import pytest

from distill.errors import RecipeError
from distill.recipe.loading import load
from student.evaluation.students import arms_of

STAGE = '[[stages]]\nname = "{}"\ndata = "questions"\ntrain = ["language"]\n'


@pytest.mark.parametrize(
    ("names", "differences"),
    [
        (
            ("small", "lora-small", "dpo", "dpo-lora"),
            "dpo-lora and small and that of dpo and lora-small would both be named dpo-lora-small",
        ),
        (("small", "lora", "dpo-lora", "dpo"), ""),
    ],
)
def test_arms_whose_differences_would_have_one_name_are_refused(
    tmp_path: Path, names: tuple[str, ...], differences: str
) -> None:
    arms = "".join(f'{name} = "first"\n' for name in names)
    data = '[data.questions]\nsource = "questions.jsonl"\n[data.test]\nsource = "test.jsonl"\n'
    student = '[student]\nvision = "v"\nlanguage = "l"\npixel_shuffle = 2\n'
    path = tmp_path / "recipe.toml"
    path.write_text(f"{data}{student}{STAGE.format('first')}[eval.arms]\n{arms}", encoding="utf-8")
    if not differences:
        assert list(arms_of(load(path))) == list(names)
        return
    with pytest.raises(RecipeError, match=differences):
        arms_of(load(path))
