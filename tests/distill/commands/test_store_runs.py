"""What commands on a run in an object store say of the next one."""

from pathlib import Path

import pytest
from servers import store_servers
from typer.testing import CliRunner

from distill.cli import app
from distill.commands.store_runs import store_command
from distill.errors import StaleError, StorageError
from distill.object_store.open_store import endpoint_named
from distill.recipe.loading import load

ADDRESS = "s3://bucket/my run"


def test_a_command_that_is_shown_names_the_recipe_where_it_has_settings_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "my recipe.toml"
    path.write_text('[data.questions]\nsource = "q.jsonl"\n', encoding="utf-8")
    assert store_command("pull", load(path), ADDRESS, "DIR") == "distill pull 's3://bucket/my run' DIR"
    path.write_text(path.read_text() + '[store]\nendpoint = "http://127.0.0.1:9000"\nallow_http = true\n')
    assert store_command("status", load(path), ADDRESS) == f"distill status 's3://bucket/my run' --recipe '{path}'"


@pytest.mark.parametrize("verb", ["status", "pull"])
def test_a_run_that_is_not_found_says_which_endpoint_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    store_servers.set_keys(monkeypatch)
    recipe = tmp_path / "r.toml"
    words = [verb, "s3://bucket/run", *([str(tmp_path / "pulled")] if verb == "pull" else [])]
    with store_servers.s3_server() as endpoint:
        section = store_servers.recipe_section(endpoint)
        recipe.write_text(f'[data.questions]\nsource = "q.jsonl"\n{section}', encoding="utf-8")
        by_recipe = CliRunner().invoke(app, [*words, "--recipe", str(recipe)])
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        by_variable = CliRunner().invoke(app, words)
    assert by_recipe.exit_code == by_variable.exit_code == 2
    assert f"{endpoint} (store.endpoint of the recipe) was asked" in " ".join(by_recipe.output.split())
    assert f"{endpoint} (AWS_ENDPOINT_URL) was asked" in " ".join(by_variable.output.split())


@pytest.mark.parametrize("error", [StaleError("no run"), StorageError("no such bucket")])
def test_the_endpoint_that_is_asked_without_settings_is_named(
    monkeypatch: pytest.MonkeyPatch, error: StaleError | StorageError
) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(type(error)) as caught, endpoint_named("s3://bucket/run", None):
        raise error
    assert "Amazon S3 was asked, as no endpoint is set" in str(caught.value)
    assert "give --recipe, or set AWS_ENDPOINT_URL" in str(caught.value)
    with pytest.raises(type(error), match=f"^{error}$"), endpoint_named("gs://bucket/run", None):
        raise error
