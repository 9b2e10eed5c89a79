"""Questions of a test set among the training questions: leaks are found, and questions that only look so are not."""

import hashlib
import os
import pickle
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from faults.planted_leaks import RECIPE, plant
from faults.question_edits import OTHER_WORDS
from PIL import Image, ImageDraw
from worlds.run_fixtures import default, generate_folder, make_image, sample, small_world, trace
from worlds.run_fixtures import recipe as recipe_of

from distill.answers import verdicts
from distill.data.images.image_files import sha256
from distill.errors import DataError, StaleError
from distill.recipe.loading import load
from distill.types import ImageRef
from filters.apply import apply
from filters.matching import test_sets
from filters.matching.question_match import is_same_question, meaning, parse_wording
from filters.matching.question_tokens import tokenize
from filters.signals import registry
from filters.signals.families import contamination
from filters.signals.families.contamination import Contamination, prepare

pytestmark = pytest.mark.usefixtures("short_report")

ONE = [trace()]


def recipe_with(folder, *, shown=(), words=()):
    """A recipe with two test sets: questions about images (question, answer, file), and without images."""
    write(folder / "test.jsonl", shown)
    write(folder / "words.jsonl", words)
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return load(folder / "recipe.toml")


def write(path, rows):
    path.write_bytes(
        b"\n".join(orjson.dumps(dict(zip(("question", "answer", "image"), row, strict=False))) for row in rows)
    )


def measured(family, asked):
    return family.measure(asked, ONE)[0]


def resaved(folder, ref, name="again.bmp"):
    """The same image as another file."""
    path = folder / name
    Image.open(ref.path).save(path)
    return ImageRef(sha256=sha256(path.read_bytes()), path=str(path))


@pytest.fixture
def world(tmp_path):
    """A test set of one question about an image and one without; another image."""
    shown, other = make_image(tmp_path, 1, 64), make_image(tmp_path, 2, 64)
    words = "A farmer has 12 cows and 7 goats that eat hay. How much hay do the animals of the farmer eat in a week?"
    asked = ("What is the total of all bars?", "31", "00001.png")
    recipe = recipe_with(tmp_path, shown=[asked], words=[(words, "90")])
    return recipe, shown, other, words


def test_planted_leaks_are_found_and_questions_that_only_look_so_are_not(tmp_path):
    planted = plant(tmp_path, seed=7, count=24)
    family = prepare(planted.recipe, tmp_path / "index")
    missed, alarms = [], []
    for case in planted.cases:
        pair = measured(family, case.sample)["contamination"] == "pair"
        if case.leak and not pair and case.leak != "other words":
            missed.append((case.leak, case.picture, case.sample.question))
        if case.innocent and pair:
            alarms.append((case.innocent, case.sample.question))
    assert len(planted.cases) > 150
    assert missed == []
    assert alarms == []


def test_the_words_that_the_matcher_is_tried_with_are_not_in_its_lists():
    assert [(word, other) for word, other in OTHER_WORDS.items() if meaning(word) == meaning(other)] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is the TOTAL of all bars ?", "what is the total of all bars"),
        ("Whаt is thе tоtal of all bars?", "What is the total of all bars?"),  # Cyrillic letters
        ("What\u00a0is the to\u200btal of all bars?", "What is the total of all bars?"),
        ("Please tell me, what is the sum of all bars? Answer briefly.", "What is the total of all bars?"),
        ("What is the sum of all bars answer with a single word", "What is the total of all bars?"),
        ("What is the total of all bars?\nAnswer with a number only ?", "What is the total of all bars?"),
        ("Did exports exceed 1,200 tons in 1990?", "Did exports exceed 1200.0 tons in 1990?"),
        ("How many years had more than 5%?", "How many years had more than five percent?"),
        ("He pays $25 for twenty-one boxes", "He pays 25 dollars for 21 boxes"),
        ("What is the diference between Ghana and Peru?", "What is the difference between Ghana and Peru?"),
        ("In 1990, what was the value of coal?", "What was the value of coal in 1990?"),
        ("图中红色柱子的数值是多少？", "图中红色柱子的数值是多少"),
    ],
)
def test_a_light_edit_is_the_same_question(one, other):
    assert is_same_question(parse_wording(one), parse_wording(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is the total of all bars?", "What is the average of all bars?"),
        ("What is the value in 1990?", "What is the value in 1991?"),
        ("Which country exported coal?", "Which country did not export coal?"),
        ("What is the total of all bars?", "What is the total of all but one of the bars?"),
        ("Which bar is the highest?", "Which bar is the lowest?"),
        ("What is Ghana minus Peru plus Kenya plus Italy?", "What is Peru minus Ghana plus Kenya plus Italy?"),
        ("What color is the lamp next to the chair?", "What color is the hat next to the chair?"),
        ("What color is the lamb next to the chair?", "What color is the lamp next to the chair?"),
        ("图中红色柱子的数值是多少？", "图中蓝色柱子的数值是多少？"),
        ("сколько стоит лампа", "сколько стоит шляпа"),
    ],
)
def test_what_asks_something_else_is_another_question(one, other):
    assert not is_same_question(parse_wording(one), parse_wording(other), same_image=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("दिन में कितने घंटे हैं?", "दान में कितने घंटे हैं?"),  # "day" and "gift": vowels are marks
        ("มีไม้กี่อัน", "มีไม่กี่อัน"),
        ("△ + □ = ?", "▽ + ○ = ?"),
        ("?", "!"),
    ],
)
def test_marks_of_letters_and_signs_alone_tell_questions_apart(one, other):
    one, other = parse_wording(one), parse_wording(other)
    assert one.text != other.text and not is_same_question(one, other) and is_same_question(one, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("For which x is x <= 3?", "For which x is x >= 3?"),
        ("If a<b, what is c?", "If a>b, what is c?"),
        ("Is 3 ≠ 4?", "Is 3 = 4?"),
        ("What is √16?", "What is 16?"),
        ("What is 5! + 3?", "What is 5 + 3?"),
        ("What is a+b?", "What is a*b?"),
        ("Is A ∩ B empty?", "Is A ∪ B empty?"),
        ("What is 5 - 3?", "What is 3 - 5?"),
    ],
)
def test_another_sign_of_mathematics_and_another_order_around_it_is_another_question(one, other):
    assert not is_same_question(parse_wording(one), parse_wording(other))


def test_signs_of_mathematics_have_one_spelling():
    for one, other in [
        ("Is x ≤ 3?", "Is x <= 3?"),
        ("What is 5 + 3?", "What is 3 + 5?"),
        ("Is it 2 ⋅ 3?", "Is it 2 * 3?"),
    ]:
        assert is_same_question(parse_wording(one), parse_wording(other)), one
    moved = "Between 2010-2015, what is the total?", "What is the total between 2010-2015?"
    assert is_same_question(*map(parse_wording, moved))
    assert tokenize("Wow, 12! How many?") == tokenize("Wow, 12. How many?")


def test_points_of_arabic_and_accents_are_as_good_as_left_out():
    assert tokenize("كم عَلَمًا في الصُورة؟") == tokenize("كم علما في الصورة؟")
    assert tokenize("¿Cuántos años?") == tokenize("Cuantos anos")


def test_gold_answers_reveal_an_unknown_synonym_about_the_same_image():
    one, other = parse_wording("Which grower sold most hay?"), parse_wording("Which farmer sold most hay?")
    assert is_same_question(one, other, same_image=True, answers=lambda: "agree")
    assert not is_same_question(one, other, same_image=True)
    assert not is_same_question(one, other, same_image=True, answers=lambda: "differ")
    assert not is_same_question(one, other, answers=lambda: "unknown")


def test_letters_of_other_alphabets_stay_what_they_are():
    assert tokenize("Сколько стоит лампа?") == ["сколько", "стоит", "лампа"]
    assert tokenize("Τι δείχνει;") == ["τι", "δειχνει"]


def test_a_pair_a_image_words_and_nothing_are_four_kinds(world, tmp_path):
    recipe, shown, other, words = world
    family = prepare(recipe, tmp_path / "index")
    again = resaved(tmp_path, shown)
    kinds = {
        "pair": [
            sample("What is the sum of all the bars", images=[again]),
            sample("what is the total of all bars?", images=[other, shown]),
            sample(words),
            sample(words, images=[other]),
        ],
        "image": [sample("What is the title?", images=[shown])],
        "text": [sample("What is the total of all bars?", images=[other]), sample("What is the total of all bars?")],
        "none": [sample("What is the title?", images=[other]), sample("How much hay do the 12 cows eat in a day?")],
    }
    for kind, asked in kinds.items():
        for one in asked:
            row = measured(family, one)
            assert (row["contamination"], row["contamination_state"]) == (kind, "ok"), one
    row = measured(family, kinds["pair"][0])
    assert row["contamination_source"] == "test"
    assert row["contamination_sample"] == sample("What is the total of all bars?", images=[shown]).id
    assert measured(family, kinds["none"][0]).get("contamination_sample") is None


def test_a_image_of_one_colour_matches_with_its_question_only_and_a_sparse_page_by_itself(tmp_path):
    page = Image.new("RGB", (700, 1000), "white")
    page.save(tmp_path / "blank.png")
    ImageDraw.Draw(page).text((300, 400), "Total 37", fill="black")
    page.save(tmp_path / "sparse.png")
    asked = "What is the total of all bars?"
    recipe = recipe_with(
        tmp_path, shown=[(asked, "31", name) for name in ("blank.png", "sparse.png")], words=[("Who?", "I")]
    )
    family = prepare(recipe, tmp_path / "index")
    kinds = [
        measured(family, sample(question, images=[ImageRef(sha256=sha256(path.read_bytes()), path=str(path))]))
        for question in (asked, "Who wrote this letter?")
        for path in (tmp_path / "blank.png", tmp_path / "sparse.png")
    ]
    assert [row["contamination"] for row in kinds] == ["pair", "pair", "none", "image"]


def test_shared_runs_of_words_are_a_number_and_decide_nothing(world, tmp_path):
    recipe, _, _, words = world
    family = prepare(recipe, tmp_path / "index")
    row = measured(family, sample(words.rpartition(" in ")[0] + " and who sells it?"))
    # 21 words stand in the test set, so 14 runs of 8 and 9 of 13; each of the 4 new ones ends one run more.
    assert row["contamination_ngram8"] == pytest.approx(14 / 18)
    assert row["contamination_ngram13"] == pytest.approx(9 / 13)
    assert measured(family, sample("How many?"))["contamination_ngram8"] is None
    assert row["contamination"] == "none"


def test_each_trace_of_a_question_gets_a_row_of_its_own(world, tmp_path):
    family = pickle.loads(pickle.dumps(prepare(world[0], tmp_path / "index")))  # as workers get it
    rows = family.measure(sample("Why?"), [trace(k=0), trace(k=1)])
    assert rows[0] == rows[1]
    assert rows[0] is not rows[1]


def test_images_are_decoded_only_where_the_recipe_and_the_words_ask_for_it(world, tmp_path):
    recipe, shown, _, _ = world
    again = resaved(tmp_path, shown)
    gone = ImageRef(sha256="0" * 64, path=str(tmp_path / "gone.png"))
    asked, unlike = "What is the total of all bars?", "Who is the man?"
    found = {}
    for images in ("all", "matching", "bytes"):
        recipe = load_with(recipe, f'images = "{images}"')
        family = prepare(recipe, tmp_path / images)
        rows = [measured(family, sample(text, images=[ref])) for text in (asked, unlike) for ref in (again, gone)]
        found[images] = [row["contamination"] or row["contamination_state"] for row in rows]
    assert found == {
        "all": ["pair", "text", "image", "undecidable"],
        "matching": ["pair", "text", "none", "none"],
        "bytes": ["text", "text", "none", "none"],
    }
    family = prepare(load_with(recipe, 'images = "matching"'), tmp_path / "matching")
    assert measured(family, sample(asked, images=[gone]))["contamination_state"] == "undecidable"


def load_with(recipe, settings):
    recipe.path.write_text(f"{RECIPE}\n{settings}\n")
    return load(recipe.path)


def test_a_image_is_looked_at_however_common_the_words_of_its_question_are(tmp_path):
    shown = make_image(tmp_path, 1, 64)
    common = [(f"What is the {letter}{other}x of Kenya?", "1") for letter in "bcdfghjklm" for other in "aeiou"] * 2
    common += [(f"What is the {letter}{other}z of Kenya?", "1") for letter in "bcdfghjklm" for other in "aeiou"]
    asked = ("What is the value of Kenya?", "31", "00001.png")
    family = prepare(recipe_with(tmp_path, shown=[asked], words=common), tmp_path / "index")
    misspelt = sample("What is the vlaue of Kenya?", images=[resaved(tmp_path, shown)])
    assert measured(family, misspelt)["contamination"] == "pair"


def contents(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_a_template_asked_of_many_images_is_compared_once(tmp_path, monkeypatch):
    make_image(tmp_path, 1, 64)
    asked = ("How many dots are left of the tallest tower?", "3", "00001.png")
    family = prepare(recipe_with(tmp_path, shown=[asked], words=[("What is it?", "it")]), tmp_path / "index")
    judged = []
    equivalent = verdicts.equivalent
    monkeypatch.setattr(verdicts, "equivalent", lambda *pair: judged.append(pair) or equivalent(*pair))
    contamination._is_same_answer.cache_clear()
    test_sets.TestSetIndex.proposals.cache_clear()
    index = test_sets.load_index(family.index, family.index_sha256)
    shown = [sample("How many dots are left of the narrow tower?", "4") for _ in range(3)]
    matches = [contamination.find_best_match(each, (), index) for each in shown]
    assert len({(match.kind, match.sample, match.similarity) for match in matches}) == 1
    assert judged == [("4", "3")]
    assert test_sets.TestSetIndex.proposals.cache_info().misses == 1


def test_the_index_is_the_same_bytes_and_is_made_once(world, tmp_path):
    recipe = world[0]
    first = prepare(recipe, tmp_path / "one")
    before, made = contents(tmp_path / "one"), (tmp_path / "one/index.json").stat().st_ino
    assert prepare(recipe, tmp_path / "one") == first
    assert (tmp_path / "one/index.json").stat().st_ino == made
    second = prepare(recipe, tmp_path / "two")
    assert second.index_sha256 == first.index_sha256
    assert contents(tmp_path / "two") == before
    # Killed before its last file: it is made again.
    (tmp_path / "one/index.json").unlink()
    (tmp_path / "one/hashes.npy").write_bytes(b"")
    assert prepare(recipe, tmp_path / "one") == first
    assert contents(tmp_path / "one") == before


def test_the_index_is_made_again_when_the_test_data_change(world, tmp_path):
    recipe, shown, _, words = world
    first = prepare(recipe, tmp_path / "index")
    os.utime(shown.path, (1, 1))
    same = prepare(recipe, tmp_path / "index")
    assert same.index_sha256 == first.index_sha256
    Path(shown.path).write_bytes(Path(make_image(tmp_path, 9, 64).path).read_bytes())
    pictured = prepare(recipe, tmp_path / "index")
    write(tmp_path / "words.jsonl", [(words, "90"), ("Who was the first?", "Ada")])
    worded = prepare(recipe, tmp_path / "index")
    assert len({first.index_sha256, pictured.index_sha256, worded.index_sha256}) == 3
    assert measured(worded, sample("who was the first"))["contamination"] == "pair"
    with pytest.raises(DataError, match="changed while it was in use"):
        test_sets.load_index.__wrapped__(str(tmp_path / "index"), first.index_sha256)


def test_without_a_test_set_there_is_nothing_to_measure(tmp_path):
    plain = recipe_of(tmp_path)
    assert prepare(plain, tmp_path / "index") == default(Contamination)
    assert not (tmp_path / "index").exists()
    assert measured(default(Contamination), sample()) == {"contamination_state": "not_applicable"}
    assert prepare(recipe_of(tmp_path, '[eval]\ndata = "questions"\n'), tmp_path / "index") == default(Contamination)


def test_a_test_set_that_cannot_be_read_says_how_to_go_on(tmp_path):
    missing = recipe_of(tmp_path, '[data.test]\nsource = "nothing.jsonl"\n')
    with pytest.raises(DataError, match=r"filter\.contamination\.sources"):
        prepare(missing, tmp_path / "index")
    with pytest.raises(DataError, match="other"):
        Contamination.from_recipe(recipe_of(tmp_path, '[filter.contamination]\nsources = ["other"]\n'))
    off = recipe_of(tmp_path, '[data.test]\nsource = "nothing.jsonl"\n[filter.contamination]\nsources = []\n')
    assert prepare(off, tmp_path / "index") == default(Contamination)


def test_the_filter_drops_the_traces_of_leaked_questions(tmp_path):
    samples, traces = small_world(tmp_path / "pictures")
    generate_folder(tmp_path / "run", samples, traces)
    resaved(tmp_path, samples[2].images[0])
    row = {"question": "question 2: How many dots", "answer": "2", "image": "again.bmp"}
    (tmp_path / "test.jsonl").write_bytes(orjson.dumps(row))
    settings = '[data.test]\nsource = "test.jsonl"\n[filter]\npartition_rows = 6\nworkers = 1\n'
    recipe = recipe_of(tmp_path, settings)
    manifest = apply(recipe, tmp_path / "run")
    assert manifest.counts["rule.contaminated"] == 4
    table = pq.read_table(tmp_path / "run/filter/decisions.parquet").to_pylist()
    leaked = {row["sample_id"] for row in table if "contaminated" in {reason["rule"] for reason in row["reasons"]}}
    assert leaked == {samples[2].id}
    assert apply(recipe, tmp_path / "run") == manifest
    index = f"run/filter/{registry.TEST_SETS}/index.json"
    made = (tmp_path / index).stat().st_ino
    again = apply(recipe, tmp_path / "run", fresh=True)
    assert (tmp_path / index).stat().st_ino == made
    assert (again.counts["measured"], again.fields) == (0, manifest.fields)
    (tmp_path / "test.jsonl").write_bytes(orjson.dumps(row | {"question": "Who?"}))
    with pytest.raises(StaleError, match=r"extractors\.contamination\.index_sha256"):
        apply(recipe, tmp_path / "run")


def test_a_image_that_can_be_read_again_is_compared_again(tmp_path):
    samples, traces = small_world(tmp_path / "pictures")
    generate_folder(tmp_path / "run", samples, traces)
    resaved(tmp_path, samples[2].images[0])
    row = {"question": samples[2].question, "answer": "2", "image": "again.bmp"}
    (tmp_path / "test.jsonl").write_bytes(orjson.dumps(row))
    recipe = recipe_of(tmp_path, '[data.test]\nsource = "test.jsonl"\n[filter]\nworkers = 1\n')
    image_file = Path(samples[2].images[0].path)
    image_file.rename(tmp_path / "away.png")
    assert apply(recipe, tmp_path / "run").counts["rule.contaminated"] == 0
    (tmp_path / "away.png").rename(image_file)
    again = apply(recipe, tmp_path / "run", fresh=True).counts
    assert (again["rule.contaminated"], again["measured"], again["reused"]) == (4, 4, len(traces) - 4)
    assert apply(recipe, tmp_path / "run", fresh=True).counts["measured"] == 0
