import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from worlds.run_fixtures import default, recipe, sample, trace

from distill.errors import ModelError
from filters.signals import registry
from filters.signals.families.length import Length

STUDENT = '[student]\nmodel = "student"\n'


@pytest.fixture
def folder(tmp_path):
    """A student whose tokenizer makes one token of each character, saved with the settings of a training run."""
    tokenizer = Tokenizer(models.WordLevel({**{chr(code): code for code in range(32, 127)}, "[UNK]": 0}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=50)
    (tmp_path / "student").mkdir()
    tokenizer.save(str(tmp_path / "student" / "tokenizer.json"))
    return tmp_path


def test_lengths_are_counted_in_the_students_tokens_without_padding_or_truncation(folder):
    length = Length.from_recipe(recipe(folder, STUDENT))
    rows = length.measure(
        sample(), [trace(reasoning="four words of text", answer="ten"), trace(reasoning="", answer="4")]
    )
    assert rows == [
        {"length_state": "ok", "rationale_tokens": 18, "answer_tokens": 3},
        {"length_state": "ok", "rationale_tokens": 0, "answer_tokens": 1},
    ]


def test_without_a_student_lengths_are_words_and_say_so(folder):
    (row,) = Length.from_recipe(recipe(folder)).measure(
        sample(), [trace(reasoning="four words of text", answer="ten")]
    )
    assert row == {"length_state": "words", "rationale_tokens": 4, "answer_tokens": 1}


def test_the_tokenizer_counts_by_its_content_not_by_its_place(folder):
    here = Length.from_recipe(recipe(folder, STUDENT))
    (folder / "moved").mkdir()
    (folder / "student").rename(folder / "moved" / "student")
    moved = Length.from_recipe(recipe(folder / "moved", STUDENT))
    assert registry.identity((here,)) == registry.identity((moved,))
    assert here.tokenizer_sha256


def test_a_student_without_a_tokenizer_file_is_named(folder):
    (folder / "student" / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"student: no tokenizer\.json.*leave 'length' out"):
        Length.from_recipe(recipe(folder, STUDENT))


def test_an_unreadable_tokenizer_is_an_error_before_anything_is_measured(folder):
    (folder / "student" / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    with pytest.raises(ModelError, match="cannot be read as a tokenizer"):
        Length.from_recipe(recipe(folder, STUDENT))


def test_a_failed_request_has_no_length(folder):
    (row,) = default(Length).measure(sample(), [trace(outcome="error", reasoning="", answer="")])
    assert row == {"length_state": "not_applicable"}
