"""What is said of a recipe that cannot be used: the key as the recipe has it, one line for each value."""

from pathlib import Path

import pytest

from distill.errors import RecipeError
from distill.local_paths import from_home
from distill.recipe import loading

BEGIN = '[data.questions]\nsource = "q.jsonl"\n[[teachers]]\nname = "a"\nmodel = "m"\n{}\n'
STAGE = '[student]\nmodel = "m"\n[[stages]]\nname = "s"\ndata = "questions"\ntrain = ["language"]\n{}\n'


def refused(folder: Path, text: str, **overrides: str) -> list[str]:
    """The lines about the keys of a recipe."""
    path = folder / "mine.toml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        loading.load(path, overrides)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STAGE.format("stages = 1"), "stages.s.stages: unknown key; did you mean 'target'?"),
        (BEGIN.format("teachers = 1"), "teachers.a.teachers: unknown key (known: after, "),
        (
            '[data.columns]\nsource = "q"\nimages = "x"\n',
            "data.columns.images: unknown key; did you mean 'images_root'",
        ),
        ("[data.columns]\n", "data.columns.source: required key is missing"),
        ('[data."a b"]\nsource = "q"\n', "data.a b = 'a b': "),
    ],
)
def test_a_name_that_is_also_a_key_elsewhere_is_looked_up_where_it_stands(
    tmp_path: Path, text: str, expected: str
) -> None:
    (line,) = refused(tmp_path, text)
    assert line.startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            STAGE.format("micro_batch_tokens = 0"),
            "stages.s.micro_batch_tokens = 0: Input should be greater than or equal to 1 or 'auto'",
        ),
        (
            STAGE.format("[stages.validation]\nhold_out = 1.5"),
            "stages.s.validation.hold_out = 1.5: Input should be a valid integer or less than 1",
        ),
        (BEGIN.format("base_url = 5"), "teachers.a.base_url = 5: Input should be a valid string or a valid array"),
    ],
)
def test_a_value_of_no_kind_that_its_key_takes_is_one_line_under_its_key(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert refused(tmp_path, text) == [expected]


def test_names_that_come_twice_are_listed_apart_from_those_that_differ_in_case(tmp_path: Path) -> None:
    names = "".join(f'[[teachers]]\nname = "{name}"\nmodel = "m"\n' for name in ("b", "b", "C", "c", "d"))
    assert refused(tmp_path, names) == [
        "teachers must have distinct names; repeated: b; C, c, which differ only in upper and lower case"
    ]


@pytest.mark.parametrize("key", ["", "seed.", ".seed", "filter..select"])
def test_an_override_without_a_name_for_a_part_of_its_key_is_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "mine.toml").touch()
    with pytest.raises(RecipeError, match=f"--set {key}: a part of the key is empty"):
        loading.load(tmp_path / "mine.toml", {key: "1"})


@pytest.mark.parametrize(
    ("name", "said"), [("distilled", "the unchanged recipe"), ("mine_equal_seconds", "another arm in equal time")]
)
def test_an_own_arm_takes_no_name_that_means_another_arm(tmp_path: Path, name: str, said: str) -> None:
    (line,) = refused(tmp_path, f"[ablate.own.{name}.set]\nseed = 3\n")
    assert line.startswith(f"ablate: own.{name}: ") and said in line


def test_the_home_of_an_unknown_user_is_a_path_like_any_other(tmp_path: Path) -> None:
    assert from_home("~") == Path.home()
    assert from_home("~nobody-of-this-name/x") == Path("~nobody-of-this-name/x")
    with pytest.raises(RecipeError, match="no recipe at ~nobody-of-this-name/x"):
        loading.load("~nobody-of-this-name/x")
    (tmp_path / "mine.toml").write_text('[data.questions]\nsource = "~nobody-of-this-name/q.jsonl"\n')
    recipe = loading.load(tmp_path / "mine.toml")
    assert recipe.local(recipe.data["questions"].source) == tmp_path.resolve() / "~nobody-of-this-name/q.jsonl"
