"""`generate --check`: what it finds, what it estimates, and that it costs the run nothing."""

import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import orjson
import pytest
import stub_server
import tiny_models

from distill.artifacts import Manifest
from distill.errors import ModelError, RecipeError
from distill.recipe import Recipe, load
from teacher.generate import generate
from teacher.preflight import preflight


def recipe(folder: Path, teacher: dict[str, Any], rows: int = 20) -> Recipe:
    for number in range(4):
        tiny_models.picture(folder / f"{number}.png", number, size=8)
    made = [{"image": f"{n % 4}.png", "question": f"How many? {n}", "answer": "1"} for n in range(rows)]
    made.append({"image": "gone.png", "question": "Where?"})
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in made))
    values = {"name": "t", "model": "stub", "samples": 2, **teacher}
    price = values.pop("price", {})
    server = values.pop("server", {})
    lines = ["[data.questions]", 'source = "rows.jsonl"', "[[teachers]]"]
    lines += [f"{key} = {orjson.dumps(value).decode()}" for key, value in values.items()]
    lines += ["[teachers.price]", *(f"{key} = {value}" for key, value in price.items())]
    lines += [
        "[teachers.server.arguments]",
        *(f"{key} = {orjson.dumps(value).decode()}" for key, value in server.items()),
    ]
    (folder / "recipe.toml").write_text("\n".join(lines))
    return load(folder / "recipe.toml")


def test_without_traces_it_counts_and_gives_upper_bounds_and_needs_no_server_or_torch(tmp_path: Path) -> None:
    chosen = recipe(tmp_path, {"base_url": "http://127.0.0.1:9/v1"})
    text = preflight(chosen, tmp_path / "run")
    assert "usable questions             20" in text and "different images              4" in text
    assert "set aside: missing_image      1" in text
    assert "<= 41k" in text and "no traces yet" in text
    script = (
        "import sys; from distill.recipe import load; from teacher.preflight import preflight;"
        f"preflight(load({str(tmp_path / 'recipe.toml')!r}), __import__('pathlib').Path({str(tmp_path / 'b')!r}));"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_traces_that_are_there_give_an_estimate_near_what_the_run_then_takes(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        chosen = recipe(tmp_path, {"base_url": url, "price": {"input": 2.0, "output": 10.0}}, rows=200)
        generate(chosen, tmp_path / "run", limit=10)
        text = preflight(chosen, tmp_path / "run")
        line = next(line for line in text.splitlines() if line.startswith("t "))
        # 380 traces of 23 tokens and 30 prompt tokens each are left.
        assert "8.74k +- 0" in line and line.split()[1:4] == ["200", "400", "20"]
        assert line.endswith(f"{380 * (30 * 2 + 23 * 10) / 1e6:.2f}")
        disk = float(line.split()[-3])
        before = sum(part.stat().st_size for part in (tmp_path / "run/generate/t").glob("part-*"))
        generate(chosen, tmp_path / "run")
        grown = sum(part.stat().st_size for part in (tmp_path / "run/generate/t").glob("part-*")) - before
        assert disk == pytest.approx(grown / 1e6, rel=0.2)


def test_a_check_leaves_its_plan_to_the_run_and_a_finished_stage_alone(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        chosen = recipe(tmp_path, {"base_url": url})
        preflight(chosen, tmp_path / "run")
        manifest = generate(chosen, tmp_path / "run")
        preflight(chosen, tmp_path / "run")
        assert Manifest.read(tmp_path / "run" / "generate") == manifest
        assert generate(chosen, tmp_path / "run").counts == manifest.counts
        with urllib.request.urlopen(url.removesuffix("/v1") + "/seen") as response:
            assert orjson.loads(response.read())["answered"] == 40


@pytest.mark.parametrize(
    ("teacher", "error", "message"),
    [
        ({"prompt": "{question} {qestion}"}, RecipeError, r"\{qestion\} means nothing; did you mean \{question\}"),
        ({"api_key_env": "NO_SUCH_KEY", "base_url": "http://127.0.0.1:9/v1"}, RecipeError, "NO_SUCH_KEY"),
        ({"model": "empty", "base_url": "http://127.0.0.1:9/v1"}, ModelError, "has no config.json"),
        ({"server": {"max-modle-len": 5}}, RecipeError, "max-model-len"),
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
