"""What a file of signals was made with: it decides whether its signatures are used again."""

from distill.recipe.loading import find, load
from filters.signals import registry
from filters.tables.measure import _made_by
from filters.text.minhash import Scheme

FAMILIES = {"format": {"version": 1}}


def test_other_families_columns_or_signatures_are_another_make_of_a_file() -> None:
    made = _made_by(FAMILIES, ["id", "format_valid"], Scheme())
    assert made == _made_by(dict(FAMILIES), ["id", "format_valid"], Scheme())
    others = [
        _made_by({"format": {"version": 2}}, ["id", "format_valid"], Scheme()),
        _made_by(FAMILIES, ["id"], Scheme()),
        _made_by(FAMILIES, ["id", "format_valid"], Scheme(shingle=4)),
        _made_by(FAMILIES, ["id", "format_valid"], None),
    ]
    assert len({made, *others}) == 5


def test_the_identity_of_a_signal_names_no_module_so_that_moved_code_measures_nothing_again() -> None:
    recipe = load(find("tiny"))
    identity = repr(registry.identity(registry.build(recipe)))
    assert len(registry.build(recipe)) > 8
    assert not [package for package in ("filters.", "distill.", "student.", "/") if package in identity]
