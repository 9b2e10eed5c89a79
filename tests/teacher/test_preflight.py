"""`generate --check`: what it finds, what it estimates, and that it costs the run nothing."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from servers import stub_server
from students import tiny_models
from worlds.generate_world import asked_of

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.errors import ModelError, RecipeError, StaleError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from teacher.generate import generate
from teacher.preflight import preflight
from teacher.store import question_plan


def recipe(folder: Path, teacher: dict[str, Any], rows: int = 20, domains: Sequence[str] = ("",)) -> Recipe:
    for number in range(4):
        tiny_models.make_image(folder / f"{number}.png", number, size=8)
    made: list[dict[str, Any]] = [
        {"image": f"{n % 4}.png", "question": f"How many? {n}", "answer": "1", "domain": domains[n % len(domains)]}
        for n in range(rows)
    ]
    made.append({"image": "gone.png", "question": "Where?"})
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in made))
    values = {"name": "t", "model": "stub", "samples": 2, **teacher}
    price = values.pop("price", {})
    server = values.pop("server", {})
    command = values.pop("command", ["vllm", "serve"])
    lines = ["[data.questions]", 'source = "rows.jsonl"', "[[teachers]]"]
    lines += [f"{key} = {orjson.dumps(value).decode()}" for key, value in values.items()]
    lines += ["[teachers.price]", *(f"{key} = {value}" for key, value in price.items())]
    lines += [
        "[teachers.server]",
        f"command = {orjson.dumps(command).decode()}",
        "[teachers.server.arguments]",
        *(f"{key} = {orjson.dumps(value).decode()}" for key, value in server.items()),
    ]
    (folder / "recipe.toml").write_text("\n".join(lines))
    return load(folder / "recipe.toml")


def line_of(text: str, name: str = "t") -> list[str]:
    """The cells of a teacher's line: questions, traces at most, there, prompt and output tokens, disk, time, cost."""
    return re.split(r"\s{2,}", next(line for line in text.splitlines() if line.startswith(f"{name} ")))[1:]


def size_of(folder: Path) -> int:
    return sum(part.stat().st_size for part in folder.glob("part-*"))


def test_without_traces_it_counts_and_gives_upper_bounds_and_needs_no_server_or_torch(tmp_path: Path) -> None:
    chosen = recipe(tmp_path, {"base_url": "http://127.0.0.1:9/v1"})
    text = preflight(chosen, tmp_path / "run")
    rows = {" ".join(line.split()) for line in text.splitlines()}
    assert rows >= {"usable questions 20", "different images 4", "set aside: missing_image 1"}
    # 20 questions, 2 traces each of 1024 tokens, every one asked twice at the most.
    assert line_of(text)[:5] == ["20", "40", "0", "?", "<= 81.9k"] and line_of(text)[6:] == ["?", "-"]
    assert "there are no traces yet" in text
    script = (
        "import sys; from distill.recipe import load; from teacher.preflight import preflight;"
        f"preflight(load({str(tmp_path / 'recipe.toml')!r}), __import__('pathlib').Path({str(tmp_path / 'b')!r}));"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_probe_gives_an_estimate_near_what_the_run_then_takes_and_its_traces_stay(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        chosen = recipe(tmp_path, {"base_url": url, "price": {"input": 2.0, "output": 10.0}}, rows=200)
        text = preflight(chosen, tmp_path / "run", probe=10)
        assert asked_of(url) == 20
        # 380 traces of 23 tokens and 30 prompt tokens each are left, all alike.
        questions, most, there, prompt, output, disk, _, cost = line_of(text)
        assert (questions, most, there, prompt, output) == ("200", "400", "20", "11.4k", "8.74k")
        assert float(cost) == pytest.approx(380 * (30 * 2 + 23 * 10) / 1e6, rel=0.01)
        before = size_of(tmp_path / "run/generate/t")
        assert preflight(chosen, tmp_path / "run", probe=10) == text and asked_of(url) == 20
        generate(chosen, tmp_path / "run")
        grown = size_of(tmp_path / "run/generate/t") - before
        assert float(disk.removesuffix("kB")) * 1000 == pytest.approx(grown, rel=0.1)
        assert asked_of(url) == 400
        assert line_of(preflight(chosen, tmp_path / "run"))[2:5] == ["400", "0", "0"]


def test_a_probe_covers_every_domain(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        chosen = recipe(tmp_path, {"base_url": url}, domains=("scenes", "charts"))
        preflight(chosen, tmp_path / "run", probe=4)
        table = pq.read_table(tmp_path / "run/generate/samples.parquet").to_pylist()
        domains = {row["id"]: row["domain"] for row in table}
        (part,) = (tmp_path / "run/generate/t").glob("part-*")
        asked = Counter(domains[record["sample_id"]] for record in read_jsonl(part))
        assert asked == {"scenes": 4, "charts": 4}


def test_the_run_after_a_check_does_not_read_the_source_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stub_server.serve() as url:
        chosen = recipe(tmp_path, {"base_url": url})
        # A row that cannot be read is looked at again each time: it may have been mended.
        (tmp_path / "gone.png").write_bytes((tmp_path / "0.png").read_bytes())
        preflight(chosen, tmp_path / "run")
        monkeypatch.setattr(question_plan, "write_pending_plan", None)
        preflight(chosen, tmp_path / "run")
        assert generate(chosen, tmp_path / "run").counts["complete"] == 42


def test_a_check_leaves_a_finished_stage_as_it_is_even_when_rows_have_come(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        chosen = recipe(tmp_path, {"base_url": url})
        manifest = generate(chosen, tmp_path / "run")
        files = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
        chosen = recipe(tmp_path, {"base_url": url}, rows=30)
        assert line_of(preflight(chosen, tmp_path / "run"))[:5] == ["30", "60", "40", "600", "460"]
        assert Manifest.read(tmp_path / "run" / "generate") == manifest
        assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == files
        preflight(chosen, tmp_path / "run", probe=5)
        assert asked_of(url) == 40


def test_settings_other_than_those_of_a_finished_stage_are_said_as_the_run_would(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        generate(recipe(tmp_path, {"base_url": url}), tmp_path / "run")
        other = recipe(tmp_path, {"base_url": url, "system": "Be brief."})
        with pytest.raises(StaleError, match=r"teachers\.t\.system"):
            preflight(other, tmp_path / "run")
        assert line_of(preflight(other, tmp_path / "run", fresh=True))[:3] == ["20", "40", "0"]
        assert Manifest.read(tmp_path / "run" / "generate") is not None


def test_everything_that_teachers_lack_is_said_at_once(tmp_path: Path) -> None:
    chosen = recipe(tmp_path, {"api_key_env": "NO_SUCH_KEY", "model": "./nowhere", "command": ["no-such-program"]})
    with pytest.raises(RecipeError) as caught:
        preflight(chosen, tmp_path / "run")
    for part in ("NO_SUCH_KEY", "./nowhere", "no-such-program"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("teacher", "error", "message"),
    [
        (
            {"prompt": "{question} {qestion}"},
            RecipeError,
            r"\{qestion\} is unknown; did you mean \{question\}",
        ),
        ({"api_key_env": "NO_SUCH_KEY", "base_url": "http://127.0.0.1:9/v1"}, RecipeError, "NO_SUCH_KEY"),
        ({"model": "empty", "base_url": "http://127.0.0.1:9/v1"}, ModelError, "has no config.json"),
        (
            {"backend": "openai", "base_url": "http://127.0.0.1:9/v1", "logprobs": 2},
            RecipeError,
            "logprobs needs backend 'vllm'",
        ),
    ],
)
def test_what_a_run_would_trip_over_is_said_before_it(
    tmp_path: Path, teacher: dict[str, Any], error: type[Exception], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(error, match=message):
        preflight(recipe(tmp_path, teacher), tmp_path / "run")


def test_braces_that_are_the_prompt_s_own_are_left_alone(tmp_path: Path) -> None:
    teacher = {"prompt": r"{question} Put it in \boxed{} as {\"n\": {number}}", "base_url": "http://127.0.0.1:9/v1"}
    assert "usable questions" in preflight(recipe(tmp_path, teacher), tmp_path / "run")


def test_traces_of_an_earlier_prompt_are_not_there_and_those_of_a_sample_under_way_are(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        before = recipe(tmp_path, {"base_url": url}, rows=4)
        generate(before, tmp_path / "run")
        assert line_of(preflight(before, tmp_path / "run"))[1:3] == ["8", "8"]
        other = recipe(tmp_path, {"base_url": url, "prompt": "Think. {question}"}, rows=4)
        assert line_of(preflight(other, tmp_path / "run", fresh=True))[1:3] == ["8", "0"]
        more = recipe(tmp_path, {"base_url": url, "samples": 3}, rows=4)
        assert line_of(preflight(more, tmp_path / "run", fresh=True))[1:3] == ["12", "8"]
