"""What is known of the engine behind a trace: on the record as a key, whole in a file beside it."""

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from servers import stub_server
from students import tiny_models

from distill.artifacts.journal import read_jsonl
from distill.errors import DataError, StaleError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from distill.types import Sample, Trace, Usage
from teacher.engines.http.chat_protocol import completion_from_body
from teacher.engines.provenance import ENGINES, read_engines, record_engine
from teacher.generate import generate
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.request import Model, requests
from teacher.store.trace_journal import TraceForm, TraceJournal, make_trace, read_index


def generated(folder: Path, teacher: str, rows: int = 3) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The records of a run, and the engines it noted."""
    tiny_models.make_image(folder / "0.png", 0, size=16)
    lines = [orjson.dumps({"image": "0.png", "question": f"How many? {number}"}) for number in range(rows)]
    (folder / "rows.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    (folder / "recipe.toml").write_text(
        f'[data.questions]\nsource = "rows.jsonl"\n[[teachers]]\nname = "t"\nmodel = "stub"\n{teacher}\n'
    )
    generate(load(folder / "recipe.toml"), folder / "run")
    place = folder / "run" / "generate" / "t"
    return [record for part in place.glob("part-*") for record in read_jsonl(part)], read_engines(place)


def test_a_server_that_was_up_is_noted_with_its_address_and_the_context_it_takes(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        records, known = generated(tmp_path, f'base_url = "{url}"')
        (key,) = known
        assert {record["engine"]["facts"] for record in records} == {key}
        assert known[key]["urls"] == [url] and known[key]["name"] == "vllm" and "max_model_len" in known[key]
        records, again = generated(tmp_path, f'base_url = "{url}"', rows=5)
        assert len(records) == 5 and again == known


def test_a_server_that_the_run_started_is_noted_with_its_command_and_without_its_secrets(tmp_path: Path) -> None:
    command = orjson.dumps([sys.executable, stub_server.__file__, "--words=9"]).decode()
    records, known = generated(tmp_path, f'[teachers.server]\ncommand = {command}\nextra = ["--api-key", "hush"]')
    (key,) = {record["engine"]["facts"] for record in records}
    assert known[key]["command"][:3] == orjson.loads(command) and "--port" in known[key]["command"]
    assert b"hush" not in (tmp_path / "run" / "generate" / "t" / ENGINES).read_bytes()


def test_engines_are_added_and_a_broken_file_is_set_aside(tmp_path: Path) -> None:
    one = EngineInfo(model="m", engine={"name": "vllm", "version": "1"}, facts={"max_model_len": 8})
    two = EngineInfo(model="m", engine={"name": "vllm", "version": "2"}, facts={"max_model_len": 8})
    keys = [record_engine(tmp_path, served).engine["facts"] for served in (one, two, one)]
    assert keys[0] == keys[2] != keys[1] and read_engines(tmp_path).keys() == set(keys)
    assert record_engine(tmp_path, EngineInfo(model="m", engine={})).engine == {}
    for broken in ("[]", '{"key": 1}', "{"):
        (tmp_path / ENGINES).write_text(broken)
        with pytest.raises(DataError, match="it if the options of the recipe are unchanged"):
            read_engines(tmp_path)
    assert record_engine(tmp_path, one).engine["facts"] == keys[0] and read_engines(tmp_path).keys() == {keys[0]}
    assert (tmp_path / f"{ENGINES}.damaged").read_text() == "{"


def test_what_ended_a_text_and_what_was_cached_are_taken_from_the_answer_where_it_says_so() -> None:
    choice = {"message": {"content": "7"}, "finish_reason": "stop"}
    said = {"choices": [choice | {"stop_reason": 151645}], "usage": {"prompt_tokens_details": {"cached_tokens": 16}}}
    found = completion_from_body(said, b"", 0.1, logprobs=False)
    assert (found.stop_reason, found.cached_tokens) == ("151645", 16)
    silent = completion_from_body({"choices": [choice]}, b"", 0.1, logprobs=False)
    assert (silent.stop_reason, silent.cached_tokens) == ("", None)


def test_both_are_on_the_record_only_where_the_engine_said_so(tmp_path: Path) -> None:
    teacher, model = Teacher(name="t", model="m"), Model(name="m", revision="", local=False)
    asked = requests(Recipe(), teacher, model, Sample(id="s", images=(), question="How many?"))[0]
    other = requests(Recipe(), teacher, model, Sample(id="r", images=(), question="How few?"))[0]
    served = EngineInfo(model="m", engine={"name": "vllm", "version": "1"})
    journal = TraceJournal(read_index(tmp_path, teacher), flush_interval_s=0.1)
    said = Completion(text="7", finish_reason="stop", stop_reason="\n\n", cached_tokens=0)
    journal.append(make_trace(TraceForm(teacher, model, served), asked, said))
    journal.append(make_trace(TraceForm(teacher, model, served), other, Completion(text="7", finish_reason="stop")))
    journal.close()
    first, second = read_jsonl(tmp_path / "part-00000.jsonl")
    assert (first["stop_reason"], first["usage"]["cached"]) == ("\n\n", 0)
    assert "stop_reason" not in second and "cached" not in second["usage"]


def test_a_record_has_the_fields_of_a_trace_and_no_others() -> None:
    teacher, model = Teacher(name="t", model="m"), Model(name="m", revision="", local=False)
    (asked,) = requests(Recipe(), teacher, model, Sample(id="s", images=(), question="How many?"))
    form = TraceForm(teacher, model, EngineInfo(model="m", engine={"name": "vllm", "version": "1"}))
    numbers = np.zeros((1, 2), np.int32)
    said = Completion(
        text="7",
        stop_reason="x",
        cached_tokens=1,
        notes=("odd",),
        choice={"index": 1, "of": 2, "seed": 5},
        token_ids=numbers,
        token_logprobs=numbers.astype(np.float32),
    )
    record = make_trace(form, asked, said)
    failed = make_trace(form, asked, Completion(error="timeout: no answer"))
    assert set(record) == {field.name for field in fields(Trace)}
    assert set(record["usage"]) == {field.name for field in fields(Usage)}
    assert record["seed"] == 5 and record["choice"] == {"index": 1, "of": 2}
    assert failed["seed"] == asked.seed and set(failed) < set(record)


def test_options_that_change_a_servers_answers_are_not_mixed_in_one_run(tmp_path: Path) -> None:
    command = orjson.dumps([sys.executable, stub_server.__file__]).decode()

    def asked(*extra: str, rows: int = 3) -> int:
        options = orjson.dumps(extra).decode()
        records, _ = generated(tmp_path, f"[teachers.server]\ncommand = {command}\nextra = {options}", rows=rows)
        return len(records)

    assert asked("--dtype", "half", "--max-num-seqs=4") == 3
    with pytest.raises(StaleError, match=r"a server with --dtype half; .* has --dtype half --quantization fp8"):
        asked("--dtype=half", "--quantization", "fp8", rows=5)
    with pytest.raises(StaleError, match=r"has none of these options.*--run"):
        asked(rows=5)
    assert asked("--dtype=half", "--max-num-seqs=8", rows=5) == 5


@pytest.mark.parametrize("option", ["script", "chat-template"])
def test_traces_of_a_server_whose_script_or_template_was_replaced_are_refused(tmp_path: Path, option: str) -> None:
    script, template = tmp_path / "server.py", tmp_path / "chat.jinja"
    start = f"import runpy, sys; sys.path.insert(0, {str(Path(stub_server.__file__).parent)!r})\n"
    script.write_text(f"{start}runpy.run_path({stub_server.__file__!r}, run_name='__main__')\n")
    template.write_text("{{ messages }}")
    settings = f'[teachers.server]\ncommand = ["{script}"]\narguments = {{ chat-template = "{template}" }}'
    records, known = generated(tmp_path, settings)
    assert len(records) == 3 and all("files" in facts for facts in known.values())
    assert len(generated(tmp_path, settings, rows=4)[0]) == 4
    changed, name = (script, "its script") if option == "script" else (template, "--chat-template")
    changed.write_text(changed.read_text() + "  \n")
    with pytest.raises(StaleError, match=rf"files had other content.*{name}"):
        generated(tmp_path, settings, rows=5)


def test_variables_that_may_change_a_servers_answers_are_not_mixed_in_one_run_and_no_value_is_written(
    tmp_path: Path,
) -> None:
    command = orjson.dumps([sys.executable, stub_server.__file__]).decode()

    def asked(environment: str, rows: int) -> int:
        server = f"[teachers.server]\ncommand = {command}\nenvironment = {{ {environment} }}"
        return len(generated(tmp_path, server, rows=rows)[0])

    assert asked('STYLE = "verbose-9731", HF_HOME = "/a", API_TOKEN = "canary-1"', 3) == 3
    assert (
        asked('HF_HOME = "/b", STYLE = "verbose-9731", API_TOKEN = "canary-2", VLLM_LOGGING_LEVEL = "DEBUG"', 4) == 4
    )
    with pytest.raises(StaleError, match=r"a server with \$STYLE \w+; .* has \$STYLE \w+, which changes its answers"):
        asked('STYLE = "terse"', 5)
    with pytest.raises(StaleError, match=r"has none of these options"):
        asked("", 5)
    engines = (tmp_path / "run" / "generate" / "t" / ENGINES).read_bytes()
    assert b"$STYLE" in engines and b"verbose-9731" not in engines and b"canary" not in engines
