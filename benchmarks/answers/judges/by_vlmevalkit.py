"""The scorers of VLMEvalKit (the `ms-vlmeval` wheel): relaxed correctness, VQA match, ANLS, and its choice matcher.

python -m venv ENV; ENV/bin/pip install --no-deps ms-vlmeval
ENV/bin/pip install numpy pandas huggingface_hub sty colorlog
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from packages import module_of

_misc = module_of("vlmeval.smp.misc")
for _name in ("istype", "listinstr", "process_punctuation"):
    setattr(sys.modules["vlmeval.smp"], _name, getattr(_misc, _name))
_vqa = module_of("vlmeval.dataset.utils.vqa_eval")
_matching = module_of("vlmeval.utils.matching_util")
_NUMERIC = ("number", "percent", "money", "year")
_ANLS = 0.5
"""From which its DocVQA score counts an answer at all."""


def judge(prediction: str, gold: str, answer_type: str | None, options: list[str] | None) -> bool:
    """The scorer of the benchmark that asks such questions: choices, then ChartQA for numbers, VQA for the rest."""
    if options:
        offered = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", options, strict=False))
        letter = gold.strip("()[].: ").upper()
        meant = {letter} if letter in offered else {key for key, text in offered.items() if text == gold}
        return _matching.can_infer(prediction, offered) in meant
    if answer_type in _NUMERIC or (answer_type is None and any(sign.isdigit() for sign in gold)):
        return bool(_vqa.relaxed_correctness(gold, prediction.strip()))
    return bool(_vqa.process_answer(gold) == _vqa.process_answer(prediction))


def anls(prediction: str, gold: str, answer_type: str | None, options: list[str] | None) -> bool:
    return 1 - float(_vqa.anls_compute(gold, prediction)) >= _ANLS
