"""The one redaction: what it knows, where it replaces, and what it leaves alone."""

import base64
import json
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


KEYS = (
    "sk-proj-Zz81hQa9Lm2Xy7Vb3Nc4Kd5Pf6Rg",
    "sk-ant-api03-aB3_dE5-fG7hI9jK1lM3nO5",
    "gsk_9fQw3Er5Ty7Ui9Op1As3Df5Gh7Jk9Lz1Xc3Vb5",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
    "ghp_abcDEF123456abcDEF123456abcDEF1234",
    "glpat-XXXX1234abcd5678EFGH",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3.SflKxwRJSMeKKF2QT4fw",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQ\n-----END PRIVATE KEY-----",
)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_known_by_its_form_in_a_message_a_path_a_variable_and_a_recipe(key: str) -> None:
    for text in (f"variable {key} is not set", f"/home/me/{key}/a.jsonl", f"responses_{key}.jsonl", f"# old: {key}"):
        assert key.splitlines()[-1] not in redact.message(text) and "***" in redact.message(text)
    assert redact.exact(f"a model wrote {key}") == f"a model wrote {key}"
    redact.know_environment({"OAI2": key})
    assert key.splitlines()[-1] not in redact.exact(f"{key} again")
    redact.know_recipe({"teachers": [{"prompt": "other glpat-YYYY1234abcd5678EFGH"}]})
    assert redact.exact("glpat-YYYY1234abcd5678EFGH") == "***"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://bob:p/a#s?s@host/v1", "p/a#s?s"),
        ("base_url 'alice:hunter2@llm.corp:8000/v1'", "hunter2"),
        (r"https:\\u:pwpw@host", "pwpw"),
        ("https://host/v1#access_token=eyJq", "eyJq"),
        ("https://gw.example/v1?api-version=2024-06-01&code=Qm9aaaaabbbbccccdddd==", "Qm9aaaa"),
        ("AccountName=x;AccountKey=abc+/==;EndpointSuffix=e", "abc+/"),
        ("host=db user=u password=pww", "pww"),
        ("ATTACH 'postgres:password=pww'", "pww"),
        ("CREATE SECRET (TYPE s3, SECRET 'xyz1')", "xyz1"),
        ("OpenAI(api_key='abcx')", "abcx"),
        ("Set-Cookie: sid=zzz9; Path=/", "zzz9"),
        ('www-authenticate: Bearer realm="x", token="tt77"', "tt77"),
        ("https://hooks.slack.com/services/T0AAA/B0BBB/XXXXyyyy", "XXXXyyyy"),
    ],
)
def test_more_places_of_secrets_are_masked_in_messages(text: str, secret: str) -> None:
    assert secret not in redact.message(text) and "***" in redact.message(text)


READABLE = """\
3f786850e387550fdab836ed7e6dc881de23001b sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
models--HuggingFaceTB--SmolVLM2-2.2B-Instruct/snapshots/482adb537c021c86670beed01cd58990d01e72e4
tokens_v2_secret_santa max_tokens=5 answer_key primary_key=3 password_field_visible num_new_tokens=3 eos_token="</s>"
api_key_env = "OPENAI_API_KEY", set HF_TOKEN first; What is the Wi-Fi password on the poster? guest1234
sk-learn sk-SK hf_transfer hf_xet pk-12.csv ghp_dataset sk-charts-2024-train-split-v2 /data/AKIAKO_charts/2024-06-01
model.vision_tower.encoder.layers.23.self_attn.k_proj.weight key_states secret_layer_norm
req_011CSHoEeqs5C35K2UUqR7Fy chatcmpl-9vQxY7kP2mNfR4tL8sJw1aB3 InChIKey=BSYNRYMUTXBXSQ-UHFFFAOYSA-N
vllm/vllm-openai:v0.9@sha256:e3b0c44298fc1c149afb user@example.org git@github.com:org/repo.git mailto:a@b.c/
https://llm.corp.example:8443/openai/deployments/gpt-4o/chat/completions?api-version=2024-06-01
postgresql://localhost/traces http://[::1]:8000/v1 http://127.0.0.1:8000/v1/@x"""


@pytest.mark.parametrize("text", READABLE.splitlines())
def test_what_only_looks_like_a_secret_stays_readable(text: str) -> None:
    assert redact.message(text) == text


def test_a_known_value_is_masked_in_other_encodings_and_line_by_line() -> None:
    value = "Zz81/hQa9ü2Xy7"
    redact.know(f"{value}\n")
    data = value.encode()
    spelt = [json.dumps(value)[1:-1], "Zz81%2fhQa9%c3%bc2Xy7", data.hex(), data.hex().upper()]
    for text in (value, *spelt, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("=")):
        assert "***" in redact.exact(f"it is {text} here"), text
    redact.know("-----BEGIN X-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEA\n-----END X-----")
    assert redact.exact("line BAQEFAASCBKcwggSjAgEA") == "line ***"


def test_a_token_in_the_path_of_a_server_and_a_key_under_an_unknown_name_are_known() -> None:
    redact.know_recipe(
        {
            "teachers": [
                {"base_url": "https://gw.example/t/9b1c6f00aa11bb22cc33/openai/v1", "api_key": "in-a-wrong-key"},
                {"base_url": "alice:without-scheme@llm.corp:8000/v1"},
                {"base_url": "https://h/models/Qwen2.5-VL-7B-Instruct-AWQ/v1"},
            ]
        }
    )
    text = "https://gw.example/t/9b1c6f00aa11bb22cc33/x in-a-wrong-key without-scheme Qwen2.5-VL-7B-Instruct-AWQ"
    assert redact.exact(text) == "https://gw.example/t/***/x *** *** Qwen2.5-VL-7B-Instruct-AWQ"
