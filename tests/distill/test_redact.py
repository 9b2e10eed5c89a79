"""The one redaction: what it knows, where it replaces, and what it leaves alone."""

import base64
from pathlib import Path

import orjson
import pytest

from distill import redact
from distill.artifacts.files import write_json, write_text
from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.manifest import begin
from distill.commands.progress import visible
from distill.errors import ImageError, RecipeError, StorageError

CANARY = "canary-9f3c!<'\"ü"


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test makes known is not known in the next."""
    monkeypatch.setattr(redact, "_known", {})
    monkeypatch.setattr(redact, "_spellings", ())
    monkeypatch.setattr(redact, "_needles", ())
    monkeypatch.setattr(redact, "_pattern", None)


def test_names_say_what_is_secret_and_what_only_sounds_like_it():
    secret = (
        "HF_TOKEN OPENAI_API_KEY TEACHER_KEY AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN GITHUB_TOKEN DB_PASSWORD "
        "--api-key hf-token --ssl-keyfile-password --hf_token apiKey authorization client_secret access_token "
        "PGPASSWORD GITHUB_PAT MYSQL_PWD DB_PASS --token"
    )
    other = (
        "max_tokens thinking_token_budget eos_token image_token api_key_env --max-num-batched-tokens tokenizer "
        "--ssl-keyfile TOKENIZERS_PARALLELISM key sort_key --return-tokens-as-token-ids AWS_ACCESS_KEY_ID token "
        "PWD OLDPWD compass_pass --pass PASS"
    )
    assert [name for name in secret.split() if not redact.is_secret(name)] == []
    assert [name for name in other.split() if redact.is_secret(name)] == []


def test_a_known_value_is_masked_in_every_spelling_and_nothing_else_changes():
    redact.know(CANARY)
    page = CANARY.replace("<", "&lt;").replace("'", "&#39;").replace('"', "&#34;")
    for spelling in (CANARY, orjson.dumps(CANARY)[1:-1].decode(), repr(CANARY)[1:-1], page):
        assert redact.exact(f"before {spelling} after") == "before *** after"
    untouched = "Bearer of the ring, http://a:b@c and --api-key x, 9f3c, canary-9f3c"
    assert redact.exact(untouched) == untouched


def test_short_values_and_placeholders_are_not_looked_for_in_texts():
    redact.know("short", "password", "", None)
    assert redact.exact("a short password") == "a short password"


def test_a_number_is_masked_as_a_whole_number_only_and_never_where_json_has_one():
    redact.know("12345678")
    assert redact.exact("12345678 and 912345678") == "*** and 912345678"
    assert redact.dumps({"seed": 12345678, "text": "12345678"}) == b'{"seed":12345678,"text":"***"}'


def test_places_of_secrets_are_masked_in_messages_however_short_they_are():
    for text, wanted in {
        "at http://user:pw@host:8000/v1": "at http://***@host:8000/v1",
        "at http://user:p@w@host/v1": "at http://***@host/v1",
        "run vllm serve m --api-key abc --port 1": "run vllm serve m --api-key *** --port 1",
        "--ssl-keyfile-password=abc": "--ssl-keyfile-password=***",
        "{'api_key': ['abc'], 'model': 'm'}": "{'api_key': ['***'], 'model': 'm'}",
        "Authorization: Bearer abcdef123": "Authorization: Bearer ***",
        "https://host/v1?api_key=abc&n=1": "https://host/v1?api_key=***&n=1",
        "https://host/v1?sv=1&sig=abc%3D&design=2": "https://host/v1?sv=1&sig=***&design=2",
        "a basic understanding, --max-tokens 5, http://host/@name": "a basic understanding, --max-tokens 5, "
        "http://host/@name",
    }.items():
        assert redact.message(text) == wanted


def test_commands_and_settings_are_masked_by_name():
    command = ["env", "HF_TOKEN=abc", "vllm", "serve", "m", "--api-key", "a", "b", "--port", "1", "--hf-token=abc"]
    assert redact.command(command) == [
        *("env", "HF_TOKEN=***", "vllm", "serve", "m", "--api-key", "***", "***", "--port", "1", "--hf-token=***")
    ]
    kept = redact.settings(
        {
            "api_key_env": "MY_KEY",
            "base_url": "http://u:p@host/v1",
            "max_tokens": 5,
            "server": {"environment": {"HF_TOKEN": "abc", "PATH": "/bin"}, "arguments": {"hf-token": "abc", "n": 1}},
        }
    )
    assert kept["api_key_env"] == "MY_KEY" and kept["base_url"] == "http://***@host/v1" and kept["max_tokens"] == 5
    assert kept["server"] == {
        "environment": {"HF_TOKEN": "***", "PATH": "/bin"},
        "arguments": {"hf-token": "***", "n": 1},
    }
    assert redact.is_masked(kept["base_url"]) and not redact.is_masked("http://host/v1")
    in_query = redact.settings({"base_url": "http://host/v1?api_key=short&a=b"})["base_url"]
    assert in_query == "http://host/v1?api_key=***&a=b" and redact.is_masked(in_query)


def test_a_recipe_makes_its_secrets_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ODD_NAME", "in-the-variable")
    redact.know_recipe(
        {
            "teachers": [
                {
                    "api_key_env": "ODD_NAME",
                    "base_url": [
                        "http://user:in-the-address@h/v1",
                        "http://only-a-user@h/v1?api_key=in-the-query&user=me",
                    ],
                    "server": {
                        "environment": {"VLLM_API_KEY": "in-the-environment"},
                        "arguments": {"api-key": ["in-the-arguments"]},
                        "extra": ["--ssl-keyfile-password", "in-the-extras", "--hf-token=in-the-extras-2"],
                    },
                }
            ],
        }
    )
    basic = base64.b64encode(b"user:in-the-address").decode()
    secrets = [
        *("in-the-variable", "in-the-address", "only-a-user", "in-the-environment", "in-the-arguments"),
        *("in-the-extras", "in-the-extras-2", "in-the-query", basic),
    ]
    assert redact.exact(" ".join(secrets)).strip("* 2-") == ""
    assert redact.exact("user") == "user"


def test_the_environment_gives_keys_and_passwords_of_proxies_and_no_settings():
    redact.know_environment(
        {
            "HTTPS_PROXY": "http://me:proxy-pass@proxy:3128",
            "HF_TOKEN": "hf_abcdefghijk",
            "SOME_TOKEN": "disabled-here",
            "A_KEY": "/path/of/a/key",
            "B_KEY": "disabledhere",
            "PATH": "/usr/local/bin",
        }
    )
    assert redact.exact("proxy-pass hf_abcdefghijk disabled-here") == "*** *** ***"
    assert redact.exact("/path/of/a/key disabledhere /usr/local/bin") == "/path/of/a/key disabledhere /usr/local/bin"


def test_every_writer_of_artifacts_masks(tmp_path: Path):
    redact.know(CANARY)
    write_text(tmp_path / "page.html", f"<p>{CANARY}</p>")
    write_json(tmp_path / "facts.json", {CANARY: [CANARY, 1.5, None]})
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.append({"error": f"your key {CANARY}", "seed": 7})
    assert (tmp_path / "page.html").read_text() == "<p>***</p>"
    assert orjson.loads((tmp_path / "facts.json").read_bytes()) == {"***": ["***", 1.5, None]}
    assert list(read_jsonl(tmp_path / "journal.jsonl")) == [{"error": "your key ***", "seed": 7}]


def test_a_secret_in_the_settings_of_a_stage_does_not_make_it_stale(tmp_path: Path):
    redact.know(CANARY)
    for _ in range(2):
        begin(tmp_path / "settings.json", {"prompt": f"say {CANARY}"}, begun=True, remedy="")
    assert CANARY not in (tmp_path / "settings.json").read_text()


@pytest.mark.parametrize("kind", [RecipeError, StorageError])
def test_no_error_of_ours_says_a_secret(kind: type[Exception]):
    redact.know(CANARY)
    assert str(kind(f"{CANARY} at http://u:p@host")) == "*** at http://***@host"
    assert str(ImageError("missing", f"{CANARY}")) == "***"


def test_a_terminal_gets_no_control_character_and_json_keeps_its_value():
    planted = "a\x1b]0;title\x07b\x9b2Jc\u202ed\u2066e\ud800f\u200bg\U000e0041h\ri\x7f"
    wanted = r"a\u001b]0;title\u0007b\u009b2Jc\u202ed\u2066e\ud800f\u200bg\udb40\udc41h\u000di\u007f"
    assert visible(f"{planted}\r\n\tend ü 日本 🙂") == f"{wanted}\n\tend ü 日本 🙂"
    value = {"text": planted.replace("\ud800", "")}
    assert orjson.loads(visible(orjson.dumps(value).decode())) == value
