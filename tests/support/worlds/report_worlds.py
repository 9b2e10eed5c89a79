"""Invented evaluations and ablations for report pages: photographs, replies of several arms, and their figures."""

import io
import random
import re
from pathlib import Path
from typing import Any

from PIL import Image

from distill.data.images.image_files import sha256
from distill.data.reader import sample_id
from distill.types import ImageRef, Sample

DOMAINS = ("charts", "documents", "scenes")
ARMS = ("instruct", "answers_only", "unfiltered", "distilled")
WORDS = re.findall(
    r"[a-z]+",
    """
    first second left right above below the bar of is than more count sum total between value reads line table label
    highest lowest so therefore and then minus plus equals we see look at picture shows roof flower petal
    """,
)


def photographs(folder: Path, count: int, side: int = 480) -> list[ImageRef]:
    """Crops of scikit-learn's two photographs, each another one, as JPEG files."""
    from sklearn.datasets import load_sample_images

    chance = random.Random(0)
    whole = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number in range(count):
        photo = whole[number % len(whole)]
        width, height = chance.randint(200, 400), chance.randint(200, 400)
        left, top = chance.randint(0, photo.width - width), chance.randint(0, photo.height - height)
        crop = photo.crop((left, top, left + width, top + height)).resize((side, side * height // width))
        buffer = io.BytesIO()
        crop.save(buffer, "JPEG", quality=90)
        path = folder / f"{number}.jpg"
        path.write_bytes(buffer.getvalue())
        found.append(ImageRef(sha256=sha256(buffer.getvalue()), path=str(path)))
    return found


def drawing(folder: Path, number: int, side: int = 96) -> ImageRef:
    """An image of a few flat colours."""
    folder.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (side, side), "white")
    chance = random.Random(number)
    for place in range(5):
        colour = tuple(chance.randint(0, 255) for _ in range(3))
        image.paste(colour, (place * side // 5, side - chance.randint(5, side), (place + 1) * side // 5 - 3, side))
    path = folder / f"drawing-{number}.png"
    image.save(path)
    return ImageRef(sha256=sha256(path.read_bytes()), path=str(path))


def samples(refs: list[ImageRef], count: int) -> list[Sample]:
    """Questions about these images, in turn."""
    found = []
    for number in range(count):
        ref = refs[number % len(refs)]
        text = f"Question {number}: how many {WORDS[number % len(WORDS)]} things are <b>there</b> & where?"
        found.append(
            Sample(
                id=sample_id(text, [ref.sha256]),
                images=(ref,),
                question=text,
                answers=(str(number % 9),),
                domain=DOMAINS[number % 3],
                meta={"difficulty": ("easy", "medium", "hard")[number % 3]},
            )
        )
    return found


def predictions(asked: list[Sample], arms: tuple[str, ...] = ARMS, words: int = 100) -> list[dict[str, Any]]:
    """What every arm says to every question; later arms are right more often and say more."""
    chance = random.Random(1)
    lines = []
    for turn, arm in enumerate(arms):
        for sample in asked:
            right = chance.random() < 0.3 + 0.12 * turn
            text = " ".join(chance.choices(WORDS, k=words)) + "." if arm != arms[0] else ""
            cause = "perception" if len(lines) % 4 else "arithmetic"
            lines.append(
                {
                    "arm": arm,
                    "sample_id": sample.id,
                    "domain": sample.domain,
                    "difficulty": sample.meta["difficulty"],
                    "question": sample.question,
                    "gold": list(sample.answers),
                    "answer": sample.answers[0] if right else "11",
                    "verdict": "correct" if right else chance.choice(("wrong", "wrong", "undecided")),
                    "reasoning": text,
                    "truncated": chance.random() < 0.02,
                    "well_formed": True,
                    "consistent": chance.random() < 0.9 if text else None,
                    "error_cause": None if right else cause if text else "no_rationale",
                    "unsupported_values": int(chance.random() < 0.2) if text else None,
                    "rationale_tokens": words if text else 0,
                    "tokens": words + 4,
                    "seconds": 0.01 * words,
                }
            )
    return lines


def metrics(lines: list[dict[str, Any]], *, stage: str = "reason") -> dict[str, Any]:
    """eval/metrics.json of these predictions."""
    from student.evaluation.metrics import compute_metrics

    arms = list(dict.fromkeys(line["arm"] for line in lines))
    by_arm = {arm: [line for line in lines if line["arm"] == arm] for arm in arms}
    facts = {
        arm: {"stage": stage, "train_steps": 240, "train_tokens": 1_370_118, "train_seconds": 162.3} for arm in arms
    }
    return compute_metrics(by_arm, seed=0, facts=facts)


def results(
    arms: tuple[str, ...] = ("distilled", "unfiltered", "answers_only", "traces_1", "traces_4"),
) -> dict[str, Any]:
    """results.json of an invented ablation with every part that a page draws."""
    chance = random.Random(2)

    def effect(size: float) -> dict[str, Any]:
        by_seed = {
            str(seed): {"delta": size + chance.gauss(0, 0.01), "ci95": [size - 0.04, size + 0.04], "p": 0.2}
            for seed in range(3)
        }
        return {
            "delta": size,
            "ci95": [size - 0.025, size + 0.025],
            "p": 0.5 if abs(size) < 0.025 else 0.001,
            "detectable": 0.05,
            "by_seed": by_seed,
        }

    found: dict[str, Any] = {}
    for place, name in enumerate(arms):
        accuracy = 0.54 - 0.04 * place
        found[name] = {
            "about": f"one sentence about {name}",
            "set": {"stages.reason.data": "traces:random"} if place else {},
            "n": 900,
            "accuracy": accuracy,
            "ci95": [accuracy - 0.03, accuracy + 0.03],
            "seeds": {
                str(seed): {
                    "accuracy": accuracy + chance.gauss(0, 0.012),
                    "ci95": [accuracy - 0.05, accuracy + 0.05],
                    "run": f"arms/{name}/seed-{seed}",
                }
                for seed in range(3)
            },
            "domains": {
                domain: {
                    "n": 300,
                    "accuracy": accuracy + 0.05 * turn - 0.05,
                    "ci95": [accuracy - 0.1, accuracy + 0.1],
                }
                for turn, domain in enumerate(DOMAINS)
            },
            "metrics": {"mean_rationale_tokens": 51.0, "format_rate": 1.0, "hallucination_rate": 0.1 + 0.03 * place},
            "cost": {"train_tokens": 1_370_118, "train_seconds": 162.3, "rows": 3000, "answer_tokens": 17.2},
            "effect": effect(-0.04 * place) if place else None,
            "curves": {
                str(seed): [[step, 3.5 / (1 + step / 20) + 0.1 * chance.random()] for step in range(1, 241, 10)]
                for seed in range(3)
            },
        }
    others = {name: found[name]["effect"] for name in arms[1:]}
    claim = {
        "text": "Filtering beats no filtering.",
        "better": arms[0],
        "than": arms[1],
        "domain": None,
        "p_adjusted": 0.4,
    }
    fit = {
        "x_name": "traces",
        "points": [
            {
                "x": x,
                "accuracy": 0.3 + 0.08 * place,
                "ci95": [0.27 + 0.08 * place, 0.33 + 0.08 * place],
                "arm": f"traces_{x}",
            }
            for place, x in enumerate((375, 750, 1500, 3000))
        ],
        "curve": [[x, 0.62 - 9 / (x + 20) ** 0.5] for x in range(375, 3001, 125)],
        "curve_ci95": [],
        "formula": "accuracy = 0.62 − 9 (traces + 20)^−0.5",
        "text": "Twice the traces give less and less.",
    }
    ranks = {
        "signal": "rank_surprisal",
        "rows": [
            {"teacher": "structured", "fit_rank": 1, "student_rank": 2, "fit": 1.4, "accuracy": 0.41},
            {"teacher": "reader", "fit_rank": 2, "student_rank": 1, "fit": 1.9, "accuracy": 0.44},
            {"teacher": "analyst", "fit_rank": 3, "student_rank": 3, "fit": 2.5, "accuracy": 0.32},
        ],
        "spearman": 0.5,
        "ci95": [-1.0, 1.0],
        "kendall": 0.33,
        "text": "Three teachers decide little.",
    }
    return {
        "recipe": "invented",
        "stage": "reason",
        "reference": arms[0],
        "seeds": [0, 1, 2],
        "n": 900,
        "arms": found,
        "skipped": {"logprobs": "no teacher stores log-probabilities"},
        "studies": {
            "filtering": {
                "question": "Does filtering help?",
                "reference": arms[0],
                "arms": list(arms[:3]),
                "effects": {name: others[name] for name in arms[1:3]},
                "claims": [
                    {**claim, "verdict": "holds", "effect": effect(0.04)},
                    {**claim, "text": "It beats answers alone.", "verdict": "undecided", "effect": effect(0.01)},
                    {**claim, "text": "It needs no rationale.", "verdict": "does not hold", "effect": effect(-0.08)},
                ],
                "notes": ["The unfiltered arm has more rows."],
            },
            "scaling & fit": {
                "question": "How does accuracy grow with traces?",
                "reference": arms[0],
                "arms": list(arms),
                "effects": others,
                "claims": [],
                "notes": [],
                "fit": fit,
                "ranks": ranks,
            },
        },
    }
