"""Recipes: what is refused and how it is said, overrides, references, paths, the schema and the shipped files."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from distill.errors import RecipeError
from distill.recipe import loading
from distill.recipe.recipe import Recipe

SHIPPED = sorted(loading.shipped())

WHOLE = """
seed = 7

[data.questions]
source = "questions.jsonl"
images_root = "images"

[data.captions]
source = "somebody/captions"

[[teachers]]
name = "structured"
model = "somebody/teacher"

[student]
model = "somebody/student"

[[stages]]
name = "align"
data = "captions"
train = ["projector"]

[[stages]]
name = "reason"
data = "traces"
train = ["language"]
[stages.lora]
rank = 8

[eval]
data = "questions"
arms = { before = "align", distilled = "reason" }
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(WHOLE)
    return file


def refused(path: Path, old: str = "", new: str = "", **overrides: str) -> str:
    if old:
        assert old in WHOLE
        path.write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(RecipeError) as caught:
        loading.load(path, overrides)
    assert str(path) in str(caught.value) or overrides
    return str(caught.value)


def test_a_recipe_is_read_with_every_default_filled_in(path: Path) -> None:
    found = loading.load(path)
    assert (found.seed, found.name, found.path) == (7, "mine", path)
    assert found.data["questions"].split == "train"
    assert found.teachers[0].backend == "vllm"
    assert found.stages[1].lora is not None and found.stages[1].lora.rank == 8
    assert [rule.name for rule in found.filter.rules][:2] == ["incomplete", "wrong_answer"]


def test_nothing_but_an_empty_file_is_needed(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    assert loading.load(tmp_path / "empty.toml").model_dump() == Recipe().model_dump()


@pytest.mark.parametrize(
    ("old", "new", "where", "nearest"),
    [
        ('source = "questions.jsonl"', 'sorce = "questions.jsonl"', "data.questions.sorce", "source"),
        ('model = "somebody/teacher"', 'model = "a/b"\nweigth = 1.0', "teachers.structured.weigth", "weight"),
        ("rank = 8", "rnak = 8", "stages.reason.lora.rnak", "rank"),
        ("seed = 7", "sede = 7", "sede", "seed"),
        ("[eval]", "[evaluate]", "evaluate", "eval"),
    ],
)
def test_an_unknown_key_names_file_key_and_the_nearest_known_one(
    path: Path, old: str, new: str, where: str, nearest: str
) -> None:
    message = refused(path, old, new)
    assert f"{where}: unknown key; did you mean {nearest!r}?" in message
    assert "(known: " not in message


@pytest.mark.parametrize("name", ["correct", "agree", "at_once"])
def test_an_until_that_samples_never_reach_is_refused_with_both_numbers(path: Path, name: str) -> None:
    given = 'model = "somebody/teacher"\nsamples = {}\nuntil = {{ correct = 1, ' + name + " = 3 }}"
    if name == "correct":
        given = 'model = "somebody/teacher"\nsamples = {}\nuntil = {{ correct = 3 }}'
    message = refused(path, 'model = "somebody/teacher"', given.format(2))
    assert f"until.{name} = 3 is more than samples = 2" in message and "raise samples to 3 or more" in message
    path.write_text(WHOLE.replace('model = "somebody/teacher"', given.format(3)))
    assert loading.load(path).teachers[0].samples == 3


def test_every_problem_is_named_at_once(path: Path) -> None:
    message = refused(path, "seed = 7", 'seed = "7"\nunknown_thing = 1')
    assert "seed = '7'" in message
    assert "unknown_thing: unknown key (known: ablate, data, " in message


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_is_read(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert loading.load(path).seed == 7


def test_a_value_of_the_wrong_form_is_refused_with_what_a_good_one_is() -> None:
    with pytest.raises(RecipeError, match=r"card\.license = 'CC BY 4\.0': .*such as cc-by-4\.0"):
        loading.load("tiny", {"filter.card.license": '"CC BY 4.0"'})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('train = ["projector"]', 'train = ["tower"]', "'projector' or 'language'"),
        ('source = "questions.jsonl"', 'source = "q.jsonl"\nformat = "chartQA"', "'chartqa'"),
        ("rank = 8", "rank = 8.5", "stages.reason.lora.rank = 8.5"),
        ("rank = 8", "rank = 0", "stages.reason.lora.rank = 0"),
        ("seed = 7", "seed = true", "seed = True"),
        ("[[teachers]]", "[teachers]", "teachers: write [[teachers]], in double brackets"),
        ("[data.questions]", "[[data.questions]]", "data.questions: write [data.questions], in single brackets"),
        ("seed = 7", "seed = 2010-01-01", "seed = '2010-01-01'"),
        ("seed = 7", f"seed = {2**70}", "seed: the number has more than 64 bits"),
        ("seed = 7", f"seed = {'9' * 5000}", "not valid TOML"),
        ("rank = 8", "rank = 8\ndropout = nan", "stages.reason.lora.dropout = nan: give a number"),
        # These may be left out, and must not pass as keys that are not set.
        ('name = "reason"', 'name = "reason"\nmax_steps = inf', "stages.reason.max_steps = inf: give a number"),
        (
            'model = "somebody/teacher"',
            'model = "a"\nextra_body = { a = [nan] }',
            "extra_body.a.0 = nan: give a number",
        ),
        ('train = ["projector"]', 'train = ["projector"]\nwarmup_share = 1.5', "warmup_share = 1.5"),
        ('name = "structured"', 'name = "../up"', "teachers.../up.name"),
        ('model = "somebody/student"', "", "give model, or all of vision, language and pixel_shuffle"),
        ('model = "somebody/student"', 'model = "a"\nvision = "b"', "not both"),
        ('train = ["projector"]', 'train = ["projector"]\n[stages.lora]', "lora adapts the language model"),
        (
            'train = ["projector"]',
            'train = ["projector"]\nbatch_tokens = 64\nmicro_batch_tokens = 512',
            "batch_tokens 64 is less than",
        ),
        ("rank = 8", 'rank = 8\nquantize = "int8"', "stages.reason.lora.quantize = 'int8'"),
        ("[stages.lora]", 'sharding = "fsdp2"\n[stages.lora]\nquantize = "nf4"', "4 bits cannot be sharded"),
        ("rank = 8", "rank = 8\n[stages.distill]", "set logprobs under [[teachers]]"),
        (
            'data = "captions"',
            'data = "captions"\ndistill = { weight = 1 }',
            "distill needs a stage that learns from traces",
        ),
        ('data = "captions"', 'data = "captions"\nreplay = { captions = 0.2 }', "is the stage's own data"),
        ('data = "traces"', 'data = "traces"\ntarget = "answer"\ndistill = {}', "answer follows its rationale"),
        ('model = "somebody/teacher"', 'model = "a"\nprompt = "Think."', "prompt must contain {question}"),
        ('model = "somebody/teacher"', 'model = "a"\nbackend = "openai"', "needs base_url"),
        ('name = "reason"', 'name = "align"', "stages must have distinct names; repeated: align"),
        ('name = "reason"', 'name = "Align"', "repeated: Align, align, which differ only in upper and lower case"),
        (
            "[data.captions]",
            '[data.Questions]\nsource = "q.jsonl"\n[data.captions]',
            "sources must have distinct names",
        ),
        ('data = "captions"', 'data = "caption"', "did you mean 'captions'?"),
        ('distilled = "reason"', 'distilled = "raeson"', "did you mean 'reason'?"),
        ('name = "align"', 'name = "align"\nstart = "reason"', "stages.align.start = 'reason' is not known"),
    ],
)
def test_an_impossible_value_is_refused_with_the_value_and_what_is_allowed(
    path: Path, old: str, new: str, expected: str
) -> None:
    assert expected in refused(path, old, new)


def test_a_stage_may_start_from_the_untrained_student(path: Path) -> None:
    from distill.recipe.sections.stages import lineage, start_of

    path.write_text(WHOLE.replace('name = "reason"', 'name = "reason"\nstart = "base"', 1))
    stages = loading.load(path).stages
    assert [start_of(stages, stage) for stage in stages] == [None, None]
    assert [stage.name for stage in lineage(stages, "reason")] == ["reason"]


def test_a_file_that_is_not_toml_or_cannot_be_read_is_one_message(path: Path, tmp_path: Path) -> None:
    assert "not valid TOML" in refused(path, "seed = 7", "seed = ")
    (tmp_path / "latin.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(RecipeError, match="not valid TOML"):
        loading.load(tmp_path / "latin.toml")
    folder = tmp_path / "my data"
    folder.mkdir()
    with pytest.raises(RecipeError, match=r"my data is a directory; give a TOML file"):
        loading.load(folder)
    for name in ("a.toml", "recipe.toml"):
        (folder / name).touch()
    with pytest.raises(
        RecipeError, match=r"is a directory; did you mean '\S*my data/recipe\.toml'\? Otherwise give a"
    ):
        loading.load(folder)


def test_the_copy_of_a_recipe_names_the_program_of_a_server_from_anywhere(path: Path) -> None:
    for program, copied in (
        ("mine/teacher.py", str(path.parent.resolve() / "mine/teacher.py")),
        ("/opt/vllm/bin/vllm", "/opt/vllm/bin/vllm"),
        ("~/vllm/bin/vllm", "~/vllm/bin/vllm"),
        ("vllm", "vllm"),
    ):
        path.write_text(f'[[teachers]]\nname = "a"\nmodel = "m"\nserver.command = ["{program}", "serve"]\n')
        (teacher,) = loading.load(path).resolved()["teachers"]
        assert list(teacher["server"]["command"]) == [copied, "serve"]


def test_overrides_reach_every_kind_of_key(path: Path) -> None:
    found = loading.load(
        path,
        {
            "seed": "3",
            "filter.select.per_question": "2",
            "stages.reason.epochs": "2.5",
            "stages.0.learning_rate": "1e-3",
            "teachers.structured.sampling.temperature": "0.0",
            "teachers.structured.prompt": "Say it: {question}",
            "student.dtype": "float32",
            "stages.align.train": '["projector", "language"]',
        },
    )
    assert (found.seed, found.filter.select.per_question, found.stages[1].epochs) == (3, 2, 2.5)
    assert found.stages[0].learning_rate == 1e-3
    assert found.teachers[0].sampling.temperature == 0.0
    assert found.teachers[0].prompt == "Say it: {question}"
    assert found.student is not None and found.student.dtype == "float32"
    assert found.stages[0].train == ("projector", "language")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("stages.raeson.epochs", "did you mean 'reason'?"),
        ("stages.epochs", "is a list; name one of its items"),
        ("seed.value", "holds a value, not a section"),
        ("stages.reason.epoch", "did you mean 'epochs'?"),
        ("stages.align.train.0.x", "item 0 of the list is 'projector', and holds no keys"),
        ("stages.align.train.7.x", "known: 0"),
    ],
)
def test_an_override_that_points_nowhere_is_refused(path: Path, key: str, expected: str) -> None:
    assert expected in refused(path, **{key: "1"})


def test_an_item_whose_name_is_a_number_is_found_by_its_name_first() -> None:
    values = {"stages": [{"name": "align"}, {"name": "0"}]}
    loading.put(values, "stages.0.epochs", 3)
    loading.put(values, "stages.1.epochs", 4)
    assert values == {"stages": [{"name": "align"}, {"name": "0", "epochs": 4}]}


def test_an_overridden_recipe_differs_from_the_file_only_there(path: Path) -> None:
    plain, changed = loading.load(path), loading.load(path, {"seed": "8"})
    assert plain != changed
    assert changed.model_copy(update={"seed": 7}) == plain


def test_relative_paths_belong_to_the_folder_of_the_recipe(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    found = loading.load(path)
    assert found.local("images") == path.parent / "images"
    assert found.local("/elsewhere") == Path("/elsewhere")
    assert found.local_or_hub("somebody/teacher") == "somebody/teacher"
    (path.parent / "somebody" / "teacher").mkdir(parents=True)
    assert found.local_or_hub("somebody/teacher") == str(path.parent / "somebody" / "teacher")


def test_a_resolved_recipe_reads_back_as_the_same_one_from_anywhere(path: Path, tmp_path: Path) -> None:
    (path.parent / "questions.jsonl").touch()
    (path.parent / "images").mkdir()
    found = loading.load(path)
    text = found.to_toml()
    elsewhere = tmp_path / "run" / "recipe.toml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(text)
    again = loading.load(elsewhere)
    assert again.to_toml() == text
    # A default column stays one that may be absent; naming it would make it one that has to be there.
    assert all(
        again.data[name].columns.model_fields_set == source.columns.model_fields_set
        for name, source in found.data.items()
    )
    assert again.local(again.data["questions"].source) == path.parent / "questions.jsonl"
    assert tomllib.loads(text)["data"]["captions"]["source"] == "somebody/captions"
    assert again.name == "run"


def test_the_schema_lists_every_section_and_refuses_others() -> None:
    schema = loading.schema()
    assert set(schema["properties"]) == {
        "seed",
        "report_to",
        "data",
        "teachers",
        "generate",
        "filter",
        "student",
        "stages",
        "eval",
        "ablate",
        "rounds",
        "store",
        "engine",
    }
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Lora"]["properties"]["rank"]["default"] == 16
    assert schema["$defs"]["DataSource"]["required"] == ["source"]


def test_an_unknown_name_lists_the_shipped_recipes(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="none shipped under that name"):
        loading.load("no-such-recipe")
    assert loading.recipes_folder().is_dir()


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_recipe_loads_by_its_name_and_states_its_purpose(name: str) -> None:
    found = loading.load(name)
    assert found.name == name
    assert found.path.read_text().startswith("# ")
    for stage in found.stages:
        assert stage.data.partition(":")[0] == "traces" or stage.data in found.data
    assert not found.stages or found.eval.data in found.data
    assert found.filter.contamination.sources is None or set(found.filter.contamination.sources) <= set(found.data)


@pytest.mark.timing
def test_a_typo_is_reported_within_a_second_and_without_heavy_imports(path: Path) -> None:
    path.write_text(WHOLE.replace("rank", "rnak"))
    program = (
        "import sys, time; started = time.process_time()\n"  # not of other programs on the machine
        "from distill.errors import RecipeError\nfrom distill.recipe import load\n"
        "try: load(sys.argv[1])\n"
        "except RecipeError: print(time.process_time() - started)\n"
        "assert not {'torch', 'transformers', 'datasets'} & sys.modules.keys()"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True, env=environment
    )
    assert float(done.stdout) < 1.0


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("a\\u0000b.jsonl", "data.questions.source = 'a\\x00b.jsonl': holds the character NUL"),
        ("x" * 300, "data.questions.source: a path holds no name of 300 bytes, 255 at most"),
    ],
)
def test_a_path_that_no_disk_can_hold_is_refused_with_its_key(path: Path, source: str, problem: str) -> None:
    assert problem in refused(path, "questions.jsonl", source)


def test_a_recipe_of_lists_in_lists_is_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text("x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(RecipeError, match="nested too deeply"):
        loading.load(file)


def test_a_rule_is_set_only_in_a_section_of_the_filter(tmp_path: Path) -> None:
    file = tmp_path / "value.toml"
    file.write_text("filter = 3\n")
    with pytest.raises(RecipeError, match="filter holds a value, not a section"):
        loading.load(file, {"filter.rules.wrong_answer.drop": "true"})


@pytest.mark.parametrize("seeds", ["[-1]", "[0, 2147483648]"])
def test_a_seed_of_an_ablation_is_one_that_a_run_can_have(path: Path, seeds: str) -> None:
    path.write_text(f"{WHOLE}\n[ablate]\nseeds = {seeds}\n")
    with pytest.raises(RecipeError, match=r"ablate\.seeds\.\d = "):
        loading.load(path)


def test_an_empty_source_is_not_the_folder_of_the_recipe(path: Path) -> None:
    assert "source is empty; name a file, a folder or a data set of the hub" in refused(path, "questions.jsonl", " ")


def test_an_override_finds_items_whose_names_hold_dots(path: Path) -> None:
    path.write_text(WHOLE.replace('"structured"', '"qwen3.5"').replace('"align"', '"align.1"'))
    recipe = loading.load(
        path, {"teachers.qwen3.5.samples": "3", "stages.align.1.lora.rank": "4"} | {"stages.0.train": '["language"]'}
    )
    assert recipe.teachers[0].samples == 3
    assert recipe.stages[0].lora is not None and recipe.stages[0].lora.rank == 4
    with pytest.raises(RecipeError, match=r"did you mean 'qwen3\.5'"):
        loading.load(path, {"teachers.qwen3.6.samples": "3"})


def test_a_copy_in_a_run_that_an_earlier_version_wrote_can_be_corrected(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("gone = true\n")
    with pytest.raises(RecipeError) as alone:
        loading.load(tmp_path / "recipe.toml")
    (tmp_path / "generate").mkdir()
    with pytest.raises(RecipeError, match="If an earlier version wrote it, correct these keys"):
        loading.load(tmp_path / "recipe.toml")
    assert "earlier version" not in str(alone.value)
