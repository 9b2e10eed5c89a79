"""Without network a command ends within seconds: it asks the hub once, and then reads the cache alone."""

import time
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from distill import cli
from distill.errors import ModelError
from distill.machine import hub
from distill.recipe import load
from filters.signals.families.length import student_tokenizer
from student.models import siq_vl


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names for which a hub that does not answer was asked."""
    names: list[str] = []

    def no_network(_: Any, name: str, **__: Any) -> None:
        names.append(name)
        raise ConnectionError("Name or service not known")

    def request(*_: Any, **__: Any) -> None:
        raise AssertionError("the hub's client sent a request, which it would repeat for half a minute")

    monkeypatch.setattr(hub, "_answered", None)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", no_network)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", no_network)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.file_download._get_metadata_or_catch_error", _only_offline(request))
    return names


def _only_offline(request: Any) -> Any:
    from huggingface_hub import file_download

    real = file_download._get_metadata_or_catch_error

    def metadata(*arguments: Any, **options: Any) -> Any:
        return real(*arguments, **options) if constants.HF_HUB_OFFLINE else request()

    return metadata


@pytest.mark.parametrize("name", ["pocket", "qwen3-vl"])
def test_plan_without_network_asks_the_hub_once_and_names_it_and_the_next_step(
    asked: list[str], tmp_path: Path, name: str
) -> None:
    done = CliRunner().invoke(cli.app, ["plan", name, "--gpu", "L4", "--run", str(tmp_path / "run")])
    assert done.exit_code == ModelError.exit_code, done.output
    assert len(asked) == 1 and asked[0] in done.stderr
    assert "the hub (https://huggingface.co) cannot be reached (no answer, ConnectionError)" in done.stderr
    assert "path of a local folder" in done.stderr and "HF_HUB_OFFLINE=1" in done.stderr
    assert not constants.HF_HUB_OFFLINE


def test_all_that_loads_names_asks_once_together(asked: list[str]) -> None:
    recipe = load("qwen3-vl")
    for load_one in (lambda: siq_vl.load("owner/name"), lambda: siq_vl.outline("owner/other")):
        with pytest.raises(ModelError, match="cannot be reached"):
            load_one()
    with pytest.raises(ModelError, match=r"cannot be reached .*no tokenizer\.json"):
        student_tokenizer(recipe)
    assert asked == ["owner/name"]


def test_an_embedded_teacher_names_the_hub_that_is_not_reached(asked: list[str]) -> None:
    from distill.recipe.sections.teachers import Teacher
    from teacher.engines.embedded import embedded_teacher

    teacher = Teacher(name="reader", backend="embedded", model="owner/name")
    with pytest.raises(ModelError, match=r"teacher 'reader': owner/name: no folder .* cannot be reached"):
        embedded_teacher._load(teacher, "owner/name")


def test_an_embedded_teacher_whose_folder_is_gone_says_that_there_is_none(tmp_path: Path) -> None:
    from distill.recipe.sections.teachers import Teacher
    from teacher.engines.embedded import embedded_teacher

    gone = str(tmp_path / "gone" / "teacher")
    with pytest.raises(ModelError, match="cannot be loaded: there is no such folder"):
        embedded_teacher._load(Teacher(name="reader", backend="embedded", model=gone), gone)


def test_a_look_up_of_the_host_that_hangs_ends_after_the_time_limit(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(hub, "_NAME_LOOKUP_S", 0.1)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: time.sleep(30))
    assert hub.why_unreached("owner/name") == "no answer within 0.2 s"


def test_a_hub_that_answers_and_a_local_folder_leave_the_client_as_it_is(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub.cache_if_unreached(str(tmp_path)) as why:
        assert not why and not constants.HF_HUB_OFFLINE and not asked
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: None)
    with hub.cache_if_unreached("owner/name") as why:
        assert not why and not constants.HF_HUB_OFFLINE


def test_blocks_that_overlap_leave_the_client_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    first, second = hub.offline(True), hub.offline(True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert constants.HF_HUB_OFFLINE
    second.__exit__(None, None, None)
    assert not constants.HF_HUB_OFFLINE
