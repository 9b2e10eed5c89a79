"""The steps of a run whose rows are counted by group: what each is called, and what to change."""

from pathlib import Path

import pytest

from distill.recipe.loading import load
from filters.decisions.row_steps import steps_of

TEACHER = '\n[[teachers]]\nname = "{0}"\nmodel = "owner/{0}"\n'


@pytest.mark.parametrize(("domains", "is_named"), [(("charts", "scenes"), True), (("charts", ""), False)])
def test_where_all_teachers_have_domains_these_may_have_lost_a_question(
    tmp_path: Path, domains: tuple[str, str], is_named: bool
) -> None:
    """A question for no teacher is not in the plan: the source alone is not at fault."""
    text = '[data.questions]\nsource = "questions.jsonl"\nlimit = 240\n'
    for name, domain in zip(("a", "b"), domains, strict=True):
        text += TEACHER.format(name) + (f'domains = ["{domain}"]\n' if domain else "")
    (tmp_path / "recipe.toml").write_text(text)
    (first, _), *_ = steps_of(load(tmp_path / "recipe.toml"), [], [])
    assert first.step.startswith("the source [data.questions]")
    assert ("the domains of the teachers" in first.step) is is_named
    assert ("teachers.domains" in first.change) is is_named
    assert first.change.endswith("data.questions: add such questions (data.questions.limit, now 240)")
