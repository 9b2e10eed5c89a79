"""What commands on a run in an object store say of the next one."""

from pathlib import Path

from distill.commands.store_runs import store_command
from distill.recipe.loading import load

ADDRESS = "s3://bucket/my run"


def test_a_command_that_is_shown_names_the_recipe_where_it_has_settings_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "my recipe.toml"
    path.write_text('[data.questions]\nsource = "q.jsonl"\n', encoding="utf-8")
    assert store_command("pull", load(path), ADDRESS, "DIR") == "distill pull 's3://bucket/my run' DIR"
    path.write_text(path.read_text() + '[store]\nendpoint = "http://127.0.0.1:9000"\nallow_http = true\n')
    assert store_command("status", load(path), ADDRESS) == f"distill status 's3://bucket/my run' --recipe '{path}'"
