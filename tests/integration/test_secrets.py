"""A canary in every place for a secret: none is in the run directory or on the terminal afterwards."""

import base64
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import orjson
import pyarrow.parquet as pq
import pytest
from servers import leaky_server

IN_HEADERS = ("key", "student_key", "ambient", "header")
PLACES = (
    *IN_HEADERS,
    *("password", "other_password", "student_password", "proxy"),
    *("started_key", "joined", "hf_token", "ssl_password", "environment", "template", "body"),
    *("pat", "option", "json"),
)
CANARIES = {place: f"canary-{place}-!&<{'' if place in IN_HEADERS else 'é'}" for place in PLACES}
VARIABLES = {
    "ODD_NAME": CANARIES["key"],
    "ODD_HEADER": CANARIES["header"],
    "STUDENT_NAME": CANARIES["student_key"],
    "HF_TOKEN": CANARIES["ambient"],
    "HTTPS_PROXY": f"http://someone:{quote(CANARIES['proxy'])}@127.0.0.1:9",
}


def spelt(value: str) -> set[bytes]:
    """The ways in which a secret may lie in a file."""
    found = {value, quote(value), quote(value, safe=""), orjson.dumps(value)[1:-1].decode(), ascii(value)[1:-1]}
    basic = {base64.b64encode(f"someone:{value}".encode(coding)) for coding in ("utf-8", "latin-1")}
    return {each.encode() for each in found} | basic


def leaks(text: bytes) -> set[str]:
    return {place for place, value in CANARIES.items() if any(form in text for form in spelt(value))}


def leaks_below(folder: Path) -> set[tuple[str, str]]:
    found = set()
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == ".parquet":
                content += (
                    repr(pq.read_table(path).to_pylist()).encode() + str(pq.read_schema(path).metadata).encode()
                )
            found |= {(path.relative_to(folder).as_posix(), place) for place in leaks(content)}
            found |= {(path.name, place) for place in leaks(str(path).encode())}
    return found


def distill(folder: Path, *arguments: str, fails: bool | None = False) -> str:
    """A command from outside; its whole output, which holds no secret and no control character."""
    command = [sys.executable, "-m", "distill", *arguments]
    done = subprocess.run(command, capture_output=True, cwd=folder, env=os.environ | VARIABLES, check=False)
    said = done.stdout + done.stderr
    assert fails is None or (done.returncode != 0) is fails, said.decode()
    check_output(said)
    return (done.stderr if done.returncode else done.stdout).decode()


def check_output(said: bytes) -> None:
    assert leaks(said) == set()
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", said.decode()) == []


@pytest.fixture
def server() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, leaky_server.__file__], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    address = next(line for line in process.stdout if line.startswith("port "))
    yield f"127.0.0.1:{int(address.split()[1])}"
    process.kill()
    process.wait()


def world(folder: Path, address: str, *questions: str, die: bool = False) -> Path:
    words = questions or ("plain", "refuse", "fail")
    rows = [orjson.dumps({"question": f"{word} What is 2 + 2?", "answer": "4"}) for word in words]
    (folder / "questions.jsonl").write_bytes(b"\n".join(rows))
    command = orjson.dumps([sys.executable, leaky_server.__file__, *(["--die"] if die else [])]).decode()
    password, other, template = (CANARIES[place] for place in ("password", "other_password", "template"))
    (folder / "mine.toml").write_text(
        f"""
[data.questions]
source = "questions.jsonl"
columns.image = ""
[generate]
max_failure_share = 1.0
patience_s = 2
[[teachers]]
name = "keyed"
model = "leaky"
backend = "openai"
base_url = "http://{address}/v1"
api_key_env = "ODD_NAME"
headers_env = {{ "X-Team" = "ODD_HEADER" }}
extra_body = {{ api_key = "{CANARIES["body"]}" }}
max_retries = 0
chat_template_kwargs = {{ api_key = "{template}" }}
[[teachers]]
name = "basic"
model = "leaky"
backend = "openai"
base_url = ["http://someone:{quote(password)}@{address}/v1", "http://someone:{quote(other)}@{address}/v1"]
max_retries = 0
prompt = "Think. {{question}}"
[[teachers]]
name = "started"
model = "leaky"
max_retries = 0
prompt = "Begin. {{question}}"
[teachers.server]
command = {command}
environment = {{ VLLM_API_KEY = "{CANARIES["environment"]}", GITHUB_PAT = "{CANARIES["pat"]}" }}
arguments = {{ hf-token = "{CANARIES["hf_token"]}", ssl-keyfile-password = "{CANARIES["ssl_password"]}" }}
extra = ["--api-key", "{CANARIES["started_key"]}", "--api-key={CANARIES["joined"]}",
  "--token", "{CANARIES["option"]}", "--model-loader-extra-config",
  '{{"aws_secret_access_key": "{CANARIES["json"]}"}}']
restarts = 0
[[filter.rules]]
name = "incomplete"
drop = "outcome <> 'complete'"
[eval]
data = "questions"
allow_overlap = true
[eval.students.far]
model = "leaky"
base_url = "http://someone:{quote(CANARIES["student_password"])}@{address}/v1"
[eval.students.near]
model = "leaky"
base_url = "http://{address}/v1"
api_key_env = "STUDENT_NAME"
""",
        encoding="utf-8",
    )
    return folder / "run"


def test_no_secret_is_left_anywhere_by_a_run_that_works(tmp_path: Path, server: str) -> None:
    run = world(tmp_path, server)
    distill(tmp_path, "generate", "mine.toml", "--run", "run")
    distill(tmp_path, "generate", "mine.toml", "--run", "run")
    distill(tmp_path, "filter", "mine.toml", "--run", "run")
    distill(tmp_path, "status", "run")
    distill(tmp_path, "eval", "mine.toml", "--run", "run", fails=None)
    journals = [path.read_bytes() for path in run.glob("generate/*/part-*.jsonl")]
    records = [orjson.loads(line) for journal in journals for line in journal.splitlines()]
    assert {record["outcome"] for record in records} == {"complete", "error"} and len(records) == 9
    for record in records[:2] + [record for record in records if record["error"]][:1]:
        distill(tmp_path, "explain", "run", record["id"])
    for teacher in ("keyed", "basic"):
        trace = next(record["id"] for record in records if record["teacher"] == teacher)
        shown = orjson.loads(distill(tmp_path, "generate", "mine.toml", "--run", "run", "--replay", trace))
        assert shown["url"] == f"http://{server}/v1/chat/completions"
    assert leaks_below(run) == set()
    assert b"non-default args" in (run / "generate" / "started" / "server-0.log").read_bytes()


def test_the_recipe_that_a_run_keeps_cannot_be_mistaken_for_a_whole_one(tmp_path: Path, server: str) -> None:
    world(tmp_path, server, "plain")
    distill(tmp_path, "generate", "mine.toml", "--run", "run")
    command = [sys.executable, "-m", "distill", "generate", "run/recipe.toml", "--run", "again"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | VARIABLES, check=False
    )
    assert done.returncode == 2 and "masked, because this recipe is the copy" in done.stderr


def test_another_password_is_the_same_run(tmp_path: Path, server: str) -> None:
    run = world(tmp_path, server, "plain")
    distill(tmp_path, "generate", "mine.toml", "--run", "run")
    before = (run / "generate" / "manifest.json").read_bytes()
    recipe = tmp_path / "mine.toml"
    changed = recipe.read_text(encoding="utf-8")
    for place in ("password", "other_password"):
        changed = changed.replace(quote(CANARIES[place]), "another-one-than-before")
    recipe.write_text(changed, encoding="utf-8")
    distill(tmp_path, "generate", "mine.toml", "--run", "run")
    assert (run / "generate" / "manifest.json").read_bytes() == before


WRONG = {
    "environment = {": "environment = 'VLLM_API_KEY=CANARY' #",
    "extra = [": "extra = '--api-key CANARY' #",
    'api_key_env = "ODD_NAME"': "api_key_env = 'CANARY'",
    'name = "keyed"': "base_ur = 'http://someone:CANARY@127.0.0.1:9/v1'",
    'base_url = ["http': 'base_url = ["ftp://someone:CANARY@h/v1", 5, "http',
}


@pytest.mark.parametrize("before", WRONG)
def test_a_recipe_that_is_wrong_is_refused_without_its_secrets(tmp_path: Path, before: str) -> None:
    world(tmp_path, "127.0.0.1:9")
    path = tmp_path / "mine.toml"
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, WRONG[before].replace("CANARY", quote(CANARIES["started_key"]))), "utf-8")
    distill(tmp_path, "generate", "mine.toml", "--run", "run", fails=True)
    # Nothing says any more that the variable of the unnamed key holds one.
    assert {place for _, place in leaks_below(tmp_path / "run")} <= {"key"}


@pytest.mark.parametrize("fault", ["no server", "a server that does not start"])
def test_no_secret_is_left_anywhere_by_a_run_that_fails(tmp_path: Path, server: str, fault: str) -> None:
    address = "127.0.0.1:9" if fault == "no server" else server
    run = world(tmp_path, address, die=fault == "a server that does not start")
    said = distill(tmp_path, "generate", "mine.toml", "--run", "run", fails=True)
    assert ("cannot start with" in said) is (fault != "no server")
    distill(tmp_path, "generate", "mine.toml", "--run", "run", "--check", fails=None)
    distill(tmp_path, "status", "run", fails=None)
    assert (run / "recipe.toml").is_file()
    assert leaks_below(run) == set()


def test_no_secret_is_left_anywhere_by_a_run_that_is_interrupted(tmp_path: Path, server: str) -> None:
    run = world(tmp_path, server, "plain", "hang", "refuse")
    command = [sys.executable, "-m", "distill", "generate", "mine.toml", "--run", "run"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path, env=os.environ | VARIABLES
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        lines = sum(path.read_bytes().count(b"\n") for path in run.glob("generate/[!.]*/part-*.jsonl"))
        if lines >= 6:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said.decode()
    check_output(said)
    assert leaks_below(run) == set()
