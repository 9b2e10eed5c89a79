"""The scorers of lmms-eval: ChartQA's relaxed correctness, TextVQA's exact match, DocVQA's ANLS.

python -m venv ENV; ENV/bin/pip install --no-deps lmms-eval; ENV/bin/pip install rapidfuzz
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from packages import module_of

_relaxed = module_of("lmms_eval.tasks.chartqa.utils").relaxed_correctness
_processor = module_of("lmms_eval.tasks._task_utils.vqa_eval_metric").EvalAIAnswerProcessor()
_NUMERIC = ("number", "percent", "money", "year")


def judge(prediction: str, gold: str, answer_type: str | None, options: list[str] | None) -> bool:
    """The scorer of the benchmark that asks such questions: ChartQA's for numbers, TextVQA's for the rest."""
    if answer_type in _NUMERIC or (answer_type is None and any(sign.isdigit() for sign in gold)):
        return relaxed(prediction, gold, answer_type, options)
    return exact(prediction, gold, answer_type, options)


def relaxed(prediction: str, gold: str, answer_type: str | None, options: list[str] | None) -> bool:
    return bool(_relaxed(prediction, gold))


def exact(prediction: str, gold: str, answer_type: str | None, options: list[str] | None) -> bool:
    return bool(_processor(prediction) == _processor(gold))
