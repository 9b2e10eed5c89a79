"""What a chat template writes is the same on every day."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers.utils import chat_template_utils
from worlds import student_worlds as worlds

from distill.chat_templates import with_fixed_date
from student.data.encode import Encoder
from student.data.rows import TrainingRow
from student.models import inputs

DATED = """{%- if strftime_now is defined %}{%- set day = strftime_now( "%d %b %Y" ) %}{%- endif %}\
Today is {{ day }}, {{ strftime_now('%A') }}. """


def test_only_the_date_of_the_day_is_replaced() -> None:
    assert with_fixed_date(DATED).endswith("Today is {{ day }}, {{ 'Friday' }}. ")
    assert "set day = '26 Jul 2024' " in with_fixed_date(DATED)
    for other in ("{{ strftime_now(form) }}", "{{ messages[0]['content'] }}"):
        assert with_fixed_date(other) == other


def test_a_row_has_the_same_tokens_tomorrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, processor = worlds.student("siq-vl", worlds.parts(tmp_path / "parts"))
    processor.chat_template = DATED + processor.chat_template
    row = TrainingRow(id="r", images=(), question="red?", response="red")
    found = []
    for day in (1, 2):
        clock = SimpleNamespace(now=lambda day=day: datetime(2031, 5, day))
        monkeypatch.setattr(chat_template_utils, "datetime", clock)
        chat_template_utils._compile_jinja_template.cache_clear()
        encoder = Encoder(processor, inputs.end_ids(model))
        found.append((encoder.conversations([row])[0][0], encoder.prompts([("red?", 0)])[0]))
    assert found[0] == found[1]
    assert "26 Jul 2024" in encoder.tokenizer.decode(found[0][0])
