"""The dataset as a whole: a handful warns of nothing, nor does what is not known; intervals are right."""

import random

import duckdb
import orjson
import pyarrow.parquet as pq
import pytest
from worlds.run_fixtures import generate_folder, recipe, sample, small_world, trace

from distill.recipe.loading import load
from filters.apply import apply
from filters.dataset.card import _elsewhere
from filters.decisions.dataset_checks import (
    _SAMPLED,
    DatasetCheck,
    Health,
    _conclusions,
    _leak_check,
    _related_check,
    _template_notes,
    _upper_check,
    _words,
)
from filters.decisions.limits import Limit
from filters.signals.families.answer_consistency import Conclusion

PAIRS = [
    (
        sample(f"What is the {word} of the {other} bar?", domain="charts"),
        f"The {other} bar: its {word} is {len(word)}.",
    )
    for word in ("height", "width", "colour", "pattern", "depth", "label")
    for other in ("red", "green", "blue", "orange", "black", "white")
]


def test_a_share_warns_when_its_interval_lies_beyond_the_limit_and_enough_is_known() -> None:
    def warned(count: int, checked: int) -> bool:
        return bool(_upper_check("wrong", "", (count, checked), 0.05, "{share} {count}").warning)

    assert warned(6, 20) and not warned(2, 20)
    assert warned(20, 20) and not warned(19, 19) and not warned(0, 0)
    assert _upper_check("wrong", "", (300, 1000), 0.05, "{share} ({count})").warning == "30 % (300 of 1,000)"
    assert _upper_check("wrong", "", (300, 1000), 0.05, "").bound == "at most 5 %"


@pytest.mark.parametrize(("wrong", "warned"), [(1, False), (6, True)])
def test_a_dataset_with_a_fifth_of_wrong_answers_warns_and_one_with_a_single_one_does_not(
    tmp_path, wrong: int, warned: bool
) -> None:
    asked = [sample(f"How many dots are in number {number}?", "4", answer_type="number") for number in range(30)]
    traces = [trace(one, "5" if number < wrong else "4", f"I count in {number}.") for number, one in enumerate(asked)]
    generate_folder(tmp_path / "run", asked, traces)
    settings = '[filter]\nrules = []\nsignals = ["answer"]\n'
    assert apply(recipe(tmp_path, settings), tmp_path / "run").counts["selected.wrong"] == wrong
    warnings = orjson.loads((tmp_path / "run/filter/health.json").read_bytes())["warnings"]
    said = "20 % of the selected answers that a gold answer decides are wrong (6 of 30)"
    assert [line.startswith(said) for line in warnings] == ([True] if warned else [])


def test_a_dataset_of_one_template_is_noted_and_is_within_its_limit(tmp_path) -> None:
    asked = [sample(f"How many dots are in number {number}?", str(number)) for number in range(30)]
    said = "The picture shows several rows of dots, and counting every one of them row by row gives {} in all."
    generate_folder(
        tmp_path / "run", asked, [trace(one, one.answers[0], said.format(one.answers[0])) for one in asked]
    )
    settings = '[filter]\nrules = []\nsignals = ["corpus"]\n'
    assert apply(recipe(tmp_path, settings), tmp_path / "run").counts["selected.templated"] == 30
    health = orjson.loads((tmp_path / "run/filter/health.json").read_bytes())
    assert health["notes"][0].startswith("30 of 30 selected rationales (100 %) have the same words as another trace")
    assert not health["warnings"]
    (check,) = [check for check in health["checks"] if check["name"] == "templated"]
    assert check["share"] == check["limit"] == 1


def test_rationales_are_related_to_their_own_questions_and_hardly_to_others() -> None:
    own = [(asked, trace(asked, "6", said)) for asked, said in PAIRS]
    found = _related_check(own)
    assert found.share == 1 and found.checked == len(PAIRS) and not found.warning
    # Rationales that say nothing of any question, and one question asked about every image, are not judged.
    silent = _related_check([(asked, trace(asked, "6", "One sees it at once.")) for asked, _ in PAIRS])
    same = _related_check([(PAIRS[0][0], trace(PAIRS[0][0], "6", said)) for _, said in PAIRS])
    assert silent.checked == same.checked == 0 and not silent.warning and not same.warning


def test_rationales_with_equal_words_of_a_question_are_no_difference_in_any_order_of_a_set() -> None:
    words = [f"word{first}{second}" for first in "abcdefghijkl" for second in "abcdef"]
    chance, pairs = random.Random(1), []
    for number in range(2000):
        half, said = 36 * (number % 2), words[:5] + words[36:41]
        chance.shuffle(said)
        asked = sample(" ".join(chance.sample(words[half : half + 36], 30)))
        pairs.append((asked, trace(asked, "3", " ".join(said))))
    assert _related_check(pairs).checked == 0


def test_words_with_marks_are_whole_words() -> None:
    assert _words("यह दिन, Cafe\u0301s") == {"यह", "दिन", "cafe\u0301"}


def test_rationales_of_other_questions_warn_from_twenty_on() -> None:
    def mixed_up(count: int) -> DatasetCheck:
        names = [f"{'abcdefghijklmnopqrstuvwxyz'[number]}word" for number in range(count)]
        asked = [sample(f"Where is {name}?", domain="charts") for name in names]
        return _related_check([(one, trace(one, "6", names[place - 1])) for place, one in enumerate(asked)])

    assert (mixed_up(20).count, mixed_up(20).checked, mixed_up(19).checked) == (0, 20, 19)
    assert "0 of 20 have more" in mixed_up(20).warning and not mixed_up(19).warning
    assert mixed_up(20).bound == "at least 65 %"


def test_leaked_questions_that_were_dropped_are_noted_and_those_of_the_dataset_warn() -> None:
    database = duckdb.connect()
    columns = "id, sample_id, contamination, contamination_source"
    database.execute(f"""CREATE TABLE local AS SELECT * FROM (VALUES
        (1, 'a', 'pair', 'test'), (2, 'a', 'pair', 'test'), (3, 'b', 'pair', 'test'),
        (4, 'c', 'pair', 'test'), (5, 'd', 'none', NULL), (6, 'e', 'image', 'test')
    ) AS rows({columns})""")
    database.execute("CREATE TABLE decisions AS SELECT id, id IN (2, 5) AS selected FROM local")
    check, notes = _leak_check(database)
    assert (check.count, check.checked) == (
        1,
        2,
    ) and "1 question of the dataset in [data.test] with the images" in check.warning
    assert notes[0].startswith("2 questions in [data.test] with the images, but without a trace in the dataset")
    database.execute("CREATE OR REPLACE TABLE decisions AS SELECT id, true AS selected FROM local")
    check, notes = _leak_check(database)
    assert check.count == 3 and not [note for note in notes if "none of their traces" in note]


def test_only_rationales_that_come_to_a_conclusion_are_counted() -> None:
    asked = sample("How many apples?", answer_type="number")
    said = ("Two and two: 2 + 2 = 4.", "Two and three: 2 + 3 = 5.", "I think so")
    assert _conclusions([(asked, trace(asked, "4", text)) for text in said]) == (1, 2)


def test_what_was_not_measured_is_not_known_and_gives_no_warning(tmp_path) -> None:
    asked = [sample(f"What is this, number {number}?") for number in range(30)]
    generate_folder(tmp_path / "run", asked, [trace(one, f"thing {one.id}") for one in asked])
    manifest = apply(recipe(tmp_path, '[filter]\nsignals = ["format"]\n'), tmp_path / "run")
    assert not [name for name in manifest.counts if name.startswith("selected.") or name == "warnings"]
    card = (tmp_path / "run/filter/dataset/README.md").read_text()
    assert "| answer is wrong by the gold answer | not known |" in card
    assert ">not known<" in (tmp_path / "run/filter/report.html").read_text()


def test_the_conclusion_is_a_signal_that_a_rule_can_read(tmp_path) -> None:
    asked = sample("How many apples?", answer_type="number")
    said = [
        trace(asked, "4", "Two and two: 2 + 2 = 4.", k=0),
        trace(asked, "4", "Two and three: 2 + 3 = 5.", k=1),
        trace(asked, "4", "I think so", k=2),
        trace(asked, "4", "", k=3),
    ]
    rows = Conclusion().measure(asked, said)
    states = ["ok", "ok", "undecidable", "not_applicable"]
    assert [row["conclusion_state"] for row in rows] == states
    assert [row.get("conclusion") for row in rows] == ["agrees", "contradicts", None, None]
    generate_folder(tmp_path / "run", [asked], said)
    settings = (
        '[filter]\nsignals = ["conclusion"]\nrules = [{ name = "mixed_up", drop = "conclusion = \'contradicts\'" }]\n'
    )
    assert apply(recipe(tmp_path, settings), tmp_path / "run").counts["rule.mixed_up"] == 1
    table = pq.read_table(tmp_path / "run/filter/decisions.parquet").to_pylist()
    assert {row["id"] for row in table if not row["kept"]} == {said[1].id}


def test_a_run_of_a_few_questions_has_its_checks_and_no_warning(tmp_path) -> None:
    generate_folder(tmp_path / "run", *small_world(tmp_path / "pictures"))
    manifest = apply(recipe(tmp_path), tmp_path / "run")
    assert "warnings" not in manifest.counts and "health.json" in manifest.outputs


def test_the_card_names_what_else_is_trained_on_and_was_not_compared_with_test_sets(tmp_path) -> None:
    assert _elsewhere(load("tiny-studies")) == " (`captions`, `instruct`, `readings`)"
    assert _elsewhere(load("tiny")) == " (`captions`, `instruct`, `readings`)"  # replayed beside the traces
    assert _elsewhere(recipe(tmp_path)) == ""


def test_a_tenth_of_rationales_from_a_template_is_noted_and_less_is_not() -> None:
    def noted(count: int, checked: int) -> bool:
        return bool(_template_notes(_upper_check("templated", "", (count, checked), 1.0, "")))

    assert noted(10, 100) and not noted(9, 100) and not noted(0, 0)
    (note,) = _template_notes(_upper_check("templated", "", (1_500, 4_000), 1.0, ""))
    assert note.startswith("1,500 of 4,000 selected rationales (38 %) have the same words")


def test_the_health_of_a_dataset_counts_its_faults_and_warns_of_the_size_of_a_mix_alone() -> None:
    limits = (
        Limit(name="mix", setting="the mix by teacher", before=50, after=10, kept=50, why="few"),
        Limit(name="limit", setting="limit = 5", before=10, after=5, kept=50),
    )
    checks = (
        _upper_check("wrong", "", (30, 60), 0.05, "{count} wrong"),
        _upper_check("undecided", "", (0, 60), 0.1, "never said"),
        _related_check([]),
    )
    health = Health(checks=checks, limits=limits)
    mix = "filter.select: the mix by teacher leaves 10 of 50 kept traces: few"
    assert health.warnings == ("30 of 60 wrong", mix)
    assert health.counts() == {"selected.wrong": 30, "left_out.mix": 40, "left_out.limit": 5, "warnings": 2}
    wrong, undecided, related = health.as_fields()["checks"]
    assert wrong["share"] == 0.5 and wrong["ci95"][0] < 0.5 < wrong["ci95"][1]
    assert undecided["share"] == related["share"] == 0
    (third,) = Health(checks=(_upper_check("wrong", "", (1, 3), 0.05, ""),)).as_fields()["checks"]
    assert third["share"] == 0.333333 and third["ci95"] == [0.061492, 0.79234]


def test_texts_are_read_for_the_first_two_thousand_selected_traces_by_id() -> None:
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE decisions AS SELECT lpad(i::VARCHAR, 5, '0') AS id, i % 2 = 0 AS selected "
        "FROM range(10000) AS numbers(i) ORDER BY hash(i)"
    )
    assert [name for (name,) in database.execute(_SAMPLED).fetchall()] == [f"{2 * n:05}" for n in range(2000)]
