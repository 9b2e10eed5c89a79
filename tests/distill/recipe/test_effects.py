"""Which settings a fingerprint of an effect holds, and what a key says of itself."""

from distill.recipe.effects import affecting, recipe_keys
from distill.recipe.recipe import Recipe
from distill.recipe.sections.sampling import Sampling
from distill.recipe.sections.teachers import Teacher

KEYS = {key.path: key for key in recipe_keys(Recipe)}


def test_a_fingerprint_holds_a_setting_at_its_default_but_not_one_that_was_added_later() -> None:
    assert affecting(Sampling(), "traces") == {"temperature": 0.8, "max_tokens": 1024}
    assert affecting(Sampling(top_k=5), "traces") == {"temperature": 0.8, "max_tokens": 1024, "top_k": 5}


def test_a_fingerprint_holds_the_settings_of_inner_sections_and_none_that_is_compared_by_something_else() -> None:
    teacher = Teacher(name="t", model="m", backend="embedded", system="Be brief.", logprobs=3)
    assert affecting(teacher, "traces") == {
        "sampling": {"temperature": 0.8, "max_tokens": 1024},
        "chat_template_kwargs": {},
        "logprobs": 3,
    }


def test_a_key_says_what_a_fingerprint_holds_instead_of_its_value() -> None:
    assert KEYS["teachers.*.system"].compared_by == "the rendered prompt"
    assert KEYS["teachers.*.sampling.temperature"].compared_by == ""
