"""Usual ranges: what is shipped is inside, what is far out is named first."""

import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distill.recipe import loading
from distill.recipe.effects import recipe_keys
from distill.recipe.recipe import Recipe
from distill.recipe.usual_values import UnusualValue, is_range, unusual_values, usual_text
from distill.reports.unusual_settings import findings_of

PARTS = ("data", "teachers", "generate", "filter", "student", "stages", "eval", "rounds")
RECIPE = """
[data.questions]
source = "q.jsonl"
[data.test]
source = "t.jsonl"
[[teachers]]
name = "a"
backend = "embedded"
model = "m"
[[teachers]]
name = "b"
backend = "embedded"
model = "m"
[student]
model = "s"
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
"""


def recipe(folder: Path, **values: str) -> Recipe:
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return loading.load(folder / "recipe.toml", {name.replace("__", "."): value for name, value in values.items()})


@pytest.mark.parametrize("name", loading.shipped())
def test_every_shipped_recipe_is_inside_of_the_usual_ranges(name: str) -> None:
    assert unusual_values(loading.load(name), *PARTS) == []


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values of a TOML document by their keys; items of a list have the keys of the list."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for item in value:
            yield from leaves(item, path)
    else:
        yield path, value


def documented_values() -> list[tuple[str, tuple[str, ...], Any]]:
    """The values of the examples in the documents that begin with a section of a recipe."""
    pages = [page for page in Path("docs").glob("*.md") if page.name != "log.md"]
    blocks = [
        (page.name, block)
        for page in pages
        for block in re.findall(r"```(?:toml)?\n(\[.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        if re.match(r"\[+[a-z.]+\]", block)
    ]
    return [(name, *leaf) for name, block in blocks for leaf in leaves(tomllib.loads(block))]


def test_examples_of_the_documents_are_inside_of_the_usual_ranges() -> None:
    usual = {tuple(part for part in key.path.split(".") if part != "*"): key.usual for key in recipe_keys(Recipe)}
    checked = [
        UnusualValue(path=f"{page}: {'.'.join(path)}", name="", value=value, usual=usual[path], about="")
        for page, path, value in documented_values()
        if is_range(usual.get(path, ()))
    ]
    assert len(checked) > 20
    assert [each.path for each in checked if each.times > 1] == []


def test_defaults_are_inside_of_the_usual_ranges(tmp_path: Path) -> None:
    assert unusual_values(recipe(tmp_path), *PARTS) == []


def test_the_most_extreme_setting_comes_first_and_only_of_the_asked_parts(tmp_path: Path) -> None:
    found = recipe(
        tmp_path, stages__reason__weight_decay="100.0", stages__reason__max_length="64", eval__temperature="2.0"
    )
    decay, length = unusual_values(found, "stages")
    assert (decay.path, decay.name, decay.times) == ("stages.reason.weight_decay", "stages.*.weight_decay", 500.0)
    assert length.text == "stages.reason.max_length is 64, and 128 or more is usual"
    assert [each.path for each in unusual_values(found, "eval")] == ["eval.temperature"]


def test_what_several_keys_give_together_has_a_range_too(tmp_path: Path) -> None:
    scaled = recipe(tmp_path, stages__reason__lora__rank="64", stages__reason__lora__alpha="4")
    (adapters,) = unusual_values(scaled, *PARTS)
    assert (adapters.path, adapters.value) == ("stages.reason.lora.alpha", 0.0625)
    greedy = recipe(tmp_path, teachers__a__samples="4", teachers__a__sampling__temperature="0.0")
    assert [each.path for each in unusual_values(greedy, *PARTS)] == ["teachers.a.sampling.temperature"]
    replayed = recipe(tmp_path, stages__reason__replay__test="0.9")
    assert [each.path for each in unusual_values(replayed, *PARTS)] == ["stages.reason.replay"]
    traces = {"stages__reason__replay__test": "0.9", "data__test__format": "traces"}
    assert not unusual_values(recipe(tmp_path, **traces), *PARTS)  # as a round learns the traces of earlier passes


def unusual(value: object, *usual: object, path: str = "stages.reason.x") -> UnusualValue:
    return UnusualValue(path=path, name="stages.*.x", value=value, usual=usual, about="What it is")


@pytest.mark.parametrize(
    ("value", "times"),
    [(unusual(1, 0, 2), 1), (unusual(6, 0, 2), 3), (unusual(0, 1, 2), math.inf), (unusual(3, 12, None), 4)],
)
def test_the_distance_is_a_factor(value: UnusualValue, times: float) -> None:
    assert value.times == times


def test_ranges_and_choices_are_printed_in_words() -> None:
    assert [usual_text(each) for each in ((1e-6, 0.005), (20, None), (False,), ((),))] == [
        "1e-06 to 0.005",
        "20 or more",
        "false",
        "not set",
    ]


def test_a_setting_that_is_little_out_of_range_or_a_choice_is_named_of_a_bad_result_alone() -> None:
    little, choice, far = unusual(3, 0, 2), unusual(True, False), unusual(5, 0, 2)
    assert list(findings_of([little, choice], is_bad=False)) == []
    assert [finding.certainty for finding in findings_of([little], is_bad=True)] == ["possible"]
    (finding,) = findings_of([far], is_bad=False)
    assert finding.text.startswith("stages.reason.x is 5, and 0 to 2 is usual: what it is (possible). Change")
    assert [each.certainty for each in findings_of([unusual(50, 0, 2)], is_bad=False)] == ["likely"]


def test_a_description_that_begins_with_capitals_keeps_them() -> None:
    weight = UnusualValue(path="x", name="x", value="k", usual=("1.0",), about="SQL expression over signals")
    (finding,) = findings_of([weight], is_bad=True)
    assert finding.problem.endswith(": SQL expression over signals")


def test_items_that_share_a_setting_are_named_at_once() -> None:
    both = [unusual(9, 0, 2, path="teachers.a.x"), unusual(9, 0, 2, path="teachers.b.x")]
    (finding,) = findings_of(both, is_bad=True)
    assert "(and teachers.b.x)" in finding.problem and finding.name == "unusual stages.*.x"
