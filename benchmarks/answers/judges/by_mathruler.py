"""MathRuler, on what stands in a box, if there is one: python -m venv ENV; ENV/bin/pip install mathruler"""

import sys

try:
    from mathruler.grader import extract_boxed_content, grade_answer
except ModuleNotFoundError:
    raise SystemExit(f"mathruler is not installed in {sys.executable}") from None


def judge(prediction: str, gold: str, answer_type: str | None, options: list[str] | None) -> bool:
    return bool(grade_answer(extract_boxed_content(prediction) if "boxed" in prediction else prediction, gold))
