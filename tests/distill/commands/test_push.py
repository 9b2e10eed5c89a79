"""A push uploads the folder as it is, makes a private repository, and says what to do where the hub refuses."""

import socket
from pathlib import Path

import huggingface_hub.constants
import pytest
from servers.hub_server import TOKEN, HubServer, hub

from distill.commands.push import push_folder, require_pushable
from distill.errors import DistillError, InputError

FILES = {"README.md": b"---\nlicense: mit\n---\n# s\n", "model.safetensors": b"\0" * 70_000, "sub/config.json": b"{}"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    with hub() as running:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.address)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "export" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "export"


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_every_file_arrives_in_a_private_repository(server: HubServer, folder: Path, kind) -> None:
    address = push_folder(folder, "me/student", kind=kind, public=False)
    assert address.startswith(server.address)
    assert server.repos[f"{kind}s/me/student"]["private"] is True
    assert server.files(f"{kind}s/me/student") == FILES


def test_a_public_repository_is_asked_for(server: HubServer, folder: Path) -> None:
    push_folder(folder, "me/student", kind="model", public=True)
    assert server.repos["models/me/student"]["private"] is False


def test_a_push_that_broke_off_goes_on_without_sending_weights_again(server: HubServer, folder: Path) -> None:
    server.refuse["/commit/"] = 413
    with pytest.raises(
        DistillError, match=r"me/student: the hub refused the push \(413: .*run the same command again"
    ):
        push_folder(folder, "me/student", kind="model", public=False)
    assert server.files("models/me/student") == {} and server.uploads == 1
    push_folder(folder, "me/student", kind="model", public=False)
    assert server.files("models/me/student") == FILES and server.uploads == 1


def test_a_token_that_may_not_write_is_named_and_not_shown(server: HubServer, folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    with pytest.raises(DistillError, match="hf auth login") as caught:
        push_folder(folder, "me/student", kind="model", public=False)
    assert "hf_canary" not in str(caught.value) and "401" in str(caught.value)


def test_a_server_that_is_away_loses_nothing(folder: Path, server: HubServer, monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        DistillError, match=r"broke off .* is complete; look at the network .* run the same command again"
    ):
        push_folder(folder, "me/student", kind="model", public=False)


def test_a_hub_that_never_answers_does_not_hold_the_push_for_ever(
    folder: Path, server: HubServer, monkeypatch
) -> None:
    monkeypatch.setattr("distill.commands.push.SILENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(DistillError, match=r"broke off \(ReadTimeout.* run the same command again"):
            push_folder(folder, "me/student", kind="model", public=False)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *(
            (name, "this is not OWNER/NAME; give OWNER/NAME, such as")
            for name in ("student", "a/b/c", "", "https://h/a/b")
        ),
        *(
            (name, r"no name of a repository \(.*\); give OWNER/NAME, such")
            for name in ("me/ü", "me/a b", "/b", "a/b.git")
        ),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_any_work(name: str, reason: str, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(InputError, match=reason):
        require_pushable(name)


def test_without_a_token_nothing_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(InputError, match="no token of the hub is here"):
        require_pushable("me/student")
