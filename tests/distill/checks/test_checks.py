"""`distill check`: every planted fault is found before the run, with its key and what to do."""

import re
import shutil
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import orjson
import pytest
from faults.fault_plants import teacher
from faults.planted_faults import COUNT, ROUNDS
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError
from servers import stub_server
from typer.testing import CliRunner
from worlds import check_world

from distill import cli
from distill.artifacts.files import locked
from distill.checks import hub, machine
from distill.checks.recipe_checks import check_recipe
from distill.checks.results import CheckReport, CheckResult
from distill.checks.survey import Survey
from distill.errors import RecipeError
from distill.recipe.loading import load
from teacher.messages.request import Model
from teacher.store.question_plan import require_different

LIST = b'{"object": "list", "data": [{"id": "some/teacher", "object": "model"}]}'
COMPLETION = (
    b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}],'
    b' "usage": {"prompt_tokens": 7, "completion_tokens": 1}}'
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return check_world.build(tmp_path_factory.mktemp("world"))


@pytest.fixture
def folder(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the world on a machine without network."""

    def unreached(self: hub.HubNames, *_: object) -> None:
        self._no_network = "no network"

    monkeypatch.setattr(hub.HubNames, "_asked", unreached)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return Path(shutil.copytree(world, tmp_path / "w"))


def checked(folder: Path, **options: str) -> CheckReport:
    return check_recipe(load(folder / "recipe.toml"), folder / "run", gpu=options.get("gpu"))


def of(report: CheckReport, key: str, state: str = "problem") -> list[CheckResult]:
    return [result for result in report.results if result.state == state and result.key.startswith(key)]


def test_a_recipe_that_can_run_has_no_problem_and_no_warning_but_for_few_test_questions(folder: Path) -> None:
    report = checked(folder, gpu="L4")
    (few,) = (result for result in report.results if result.state in ("problem", "warning"))
    assert few.key == "data.test" and "12 questions" in few.message
    keys = {result.key for result in report.results}
    assert keys >= {
        *(f"data.{name}" for name in ("questions", "captions", "test")),
        *(f"stages.{name}" for name in ("align", "instruct", "reason")),
        *("teachers.structured.model", "student.vision", "student.language", "filter.rules", "disk", "--run"),
    }
    assert not (folder / "run").exists()


def test_once_the_hub_was_not_reached_no_later_check_waits_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without network its client repeats each request for half a minute."""
    recipe = check_world.values()
    recipe["student"]["language"] = "owner/elsewhere"
    check_world.save(folder, recipe)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    online: list[str] = []

    def download(name: str, *_: object, **__: object) -> None:
        if not constants.HF_HUB_OFFLINE:
            online.append(name)
        raise LocalEntryNotFoundError(name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    report = checked(folder)
    assert of(report, "student.language", "not checked")
    (lengths,) = of(report, "student.language", "problem")
    assert "tokenizer.json" in lengths.message and not of(report, "filter.signals")
    assert "not known how much for students" in of(report, "disk", "ok")[0].message
    assert online == []
    assert not constants.HF_HUB_OFFLINE


def test_at_least_fifty_faults_are_planted() -> None:
    assert COUNT >= 50


@pytest.mark.parametrize("name", ROUNDS)
def test_every_planted_fault_is_found_with_its_key_and_what_to_do(name: str, folder: Path) -> None:
    recipe = check_world.values()
    for fault in ROUNDS[name]:
        fault.plant(folder, recipe)
    check_world.save(folder, recipe)
    report = checked(folder)
    for fault in ROUNDS[name]:
        found = of(report, fault.key, fault.state)
        match = [result for result in found if re.search(fault.words, result.message, re.DOTALL)]
        assert match, f"{fault.key}: {fault.words}\n{report.as_text()}"
        assert all(result.mend for result in match)


@pytest.mark.parametrize(
    ("pages", "key", "words"),
    [
        ({}, "teachers.far.base_url", r"is not a list of models; it begins with '<html>"),
        ({"/v1/models": LIST}, "teachers.far.base_url", "gives no chat completion"),
        ({"/v1/models": LIST, "/v1/chat/completions": COMPLETION}, "teachers.far.model", "may leave images out"),
    ],
)
def test_a_server_that_answers_with_pages_or_without_looking_at_images_is_found(
    folder: Path, pages: dict[str, bytes], key: str, words: str
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            body = pages.get(self.path, b"<html>welcome</html>")
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        recipe = check_world.values()
        address = f"http://127.0.0.1:{server.server_address[1]}" + ("/v1" if pages else "")
        teacher("far", base_url=address)(folder, recipe)
        check_world.save(folder, recipe)
        found = [*of(checked(folder), key), *of(checked(folder), key, "warning")]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert any(re.search(words, result.message) and result.mend for result in found)


def test_a_stage_that_does_not_fit_the_card_is_a_problem(folder: Path) -> None:
    recipe = check_world.values()
    tokens = {"micro_batch_tokens": 40_000_000, "batch_tokens": 40_000_000}
    recipe["stages"][1] |= {**tokens, "gradient_checkpointing": False}
    check_world.save(folder, recipe)
    (found,) = of(checked(folder, gpu="T4"), "stages.instruct")
    assert "T4" in found.message and "micro_batch_tokens" in f"{found.key} {found.mend}"


def test_a_server_of_another_model_or_with_too_short_a_context_is_a_problem(folder: Path) -> None:
    with stub_server.serve() as url:
        recipe = check_world.values()
        recipe["teachers"].append(
            {"name": "far", "backend": "vllm", "model": "m/m", "served_model": "another/model", "base_url": url}
        )
        recipe["eval"]["students"] = {"big": {"model": "another/model", "base_url": url}}
        check_world.save(folder, recipe)
        report = checked(folder)
    assert of(report, "teachers.far.base_url")[0].message.count("another/model")
    assert of(report, "eval.students.big.base_url")


def test_a_deployment_that_no_list_of_models_names_is_not_said_to_be_served(folder: Path) -> None:
    with stub_server.serve() as url:
        recipe = check_world.values()
        far = {"name": "far", "backend": "openai", "model": "m/m", "served_model": "my-deployment", "base_url": url}
        recipe["teachers"].append(far)
        check_world.save(folder, recipe)
        report = checked(folder)
    (found,) = of(report, "teachers.far.base_url", "ok")
    assert found.message.endswith("lists no model 'my-deployment': the first request shows whether it has it")


def test_a_password_in_the_address_beside_a_key_is_no_problem(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", "a-key-of-the-server")
    with stub_server.serve(model="m/m") as url:
        address = url.replace("http://", "http://user:in-the-address@")
        far = {"name": "far", "backend": "vllm", "model": "m/m", "base_url": address, "api_key_env": "FAR_KEY"}
        recipe = check_world.values()
        recipe["teachers"].append(far)
        recipe["eval"]["students"] = {"big": {key: far[key] for key in ("model", "base_url", "api_key_env")}}
        check_world.save(folder, recipe)
        report = checked(folder)
    assert not of(report, "teachers.far.base_url") and not of(report, "teachers")
    assert not of(report, "eval.students.big.base_url") and not of(report, "eval.students.big")


def test_a_full_disk_is_a_problem_that_says_what_needs_how_much(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda place: usage._replace(free=1000))
    (found,) = of(checked(folder), "disk")
    assert "students and checkpoints" in found.message and "--run" in found.mend


def test_a_run_directory_that_cannot_be_used_is_a_problem(folder: Path) -> None:
    recipe = load(folder / "recipe.toml")
    with locked(folder / "busy"):
        assert of(check_recipe(recipe, folder / "busy"), "--run")[0].message.startswith("another process")
    assert "is a file" in of(check_recipe(recipe, folder / "test.jsonl" / "run"), "--run")[0].message


def test_an_unexpected_error_is_a_line_and_the_other_checks_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("strange")

    monkeypatch.setattr("filters.decisions.rules.check", fail)
    report = checked(folder)
    assert "TypeError: strange" in of(report, "filter.rules")[0].message
    assert of(report, "disk", "ok")


def test_when_time_is_over_the_rest_is_not_checked_and_said(folder: Path) -> None:
    report = check_recipe(load(folder / "recipe.toml"), folder / "run", seconds=0.0)
    assert not report.problems
    assert "no time was left" in {result.message for result in of(report, "stages", "not checked")}


def test_of_a_source_that_was_read_in_part_a_cost_names_the_part(folder: Path) -> None:
    recipe = load(folder / "recipe.toml")
    read = Survey(name="questions", samples=100, images=150, pictured=90, whole=False)
    context: Any = SimpleNamespace(
        recipe=recipe, readable=lambda name: read, routed=Counter({each.name: 100 for each in recipe.teachers})
    )
    (first, *_) = machine.check_cost(context)
    assert "output tokens" in first.message and "for the first 100 questions; `distill" in first.message
    samples = recipe.teachers[0].samples
    assert first.message.startswith(f"at most {100 * samples:,} traces ({200 * samples:,} attempts) and ")


def test_the_command_prints_problems_first_and_exits_2(folder: Path) -> None:
    (folder / "captions.jsonl").unlink()
    options = [str(folder / "recipe.toml"), "--run", str(folder / "run")]
    done = CliRunner().invoke(cli.app, ["check", *options])
    assert done.exit_code == 2
    assert done.stdout.startswith("problem      [data.captions] ")
    as_json = CliRunner().invoke(cli.app, ["check", "--json", *options])
    values = orjson.loads(as_json.stdout)
    assert (as_json.exit_code, values["ok"], values["counts"]["problem"]) == (2, False, 1)
    assert values["results"][0].keys() == {"state", "key", "message", "mend"}


def test_a_run_that_would_fail_does_not_start(folder: Path) -> None:
    (folder / "test.jsonl").unlink()
    done = CliRunner().invoke(cli.app, ["run", str(folder / "recipe.toml"), "--run", str(folder / "run")])
    assert done.exit_code == 2
    assert "data.test" in done.stderr
    assert not list((folder / "run").rglob("part-*"))


def test_finished_teachers_that_are_not_asked_again_are_not_compared(folder: Path) -> None:
    recipe = load(folder / "recipe.toml")
    (teacher, *_) = recipe.teachers
    twins = recipe.model_copy(update={"teachers": (teacher, teacher.model_copy(update={"name": "twin"}))})
    model = Model(name=teacher.model, revision="r", local=False)
    with pytest.raises(RecipeError, match="have the same model"):
        require_different(twins, {teacher.name: model, "twin": model})
    require_different(twins, {})
    require_different(twins, {"twin": model})


def test_generate_check_says_all_that_is_lacking_before_it_estimates(folder: Path) -> None:
    recipe = check_world.values()
    recipe["teachers"][0]["prompt"] = "{qestion} {question}"
    check_world.save(folder, recipe)
    command = ["generate", "--check", str(folder / "recipe.toml"), "--run", str(folder / "run")]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 2 and "did you mean {question}" in done.stderr
    check_world.save(folder, check_world.values())
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0 and "usable questions" in done.stdout


def test_cues_that_no_row_has_are_a_problem_and_those_that_some_lack_a_warning(folder: Path) -> None:
    values = check_world.values()
    shown = {"prompt": "{question} {cues}", "cues": "caption"}
    values["teachers"][0] |= shown
    check_world.save(folder, values)
    name = values["teachers"][0]["name"]
    (found,) = of(checked(folder), f"teachers.{name}.cues")
    assert "no row has 'caption' in its meta" in found.message
    rows = check_world.rows(folder / "questions.jsonl")
    rows[0]["meta"] = {"caption": "Red squares."}
    check_world.write(folder / "questions.jsonl", rows)
    report = checked(folder)
    assert not of(report, f"teachers.{name}.cues")
    (found,) = of(report, f"teachers.{name}.cues", "warning")
    assert f"{len(rows) - 1} of {len(rows)} rows have none" in found.message


def test_a_rule_about_tables_is_doubted_where_no_question_has_one(folder: Path) -> None:
    recipe = check_world.values()
    recipe["filter"]["signals"].append("grounding")
    recipe["filter"]["rules"].append({"name": "misread", "drop": "unsupported_values > 0"})
    check_world.save(folder, recipe)
    assert "has a table" in of(checked(folder), "filter.rules.misread", "warning")[0].message
    rows = [{**row, "meta": {"table": {"red": 1, "blue": 2}}} for row in check_world.rows(folder / "questions.jsonl")]
    check_world.write(folder / "questions.jsonl", rows)
    assert of(checked(folder), "filter.rules.misread", "warning") == []
