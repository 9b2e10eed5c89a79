"""What a student says of a trace equals the naive computation, token by token; two forward passes, no more."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from students import tiny_models
from worlds import student_worlds as worlds

from distill.data.images import image_files
from distill.errors import ModelError
from distill.types import ImageRef
from student.data.rows import TrainingRow
from student.inference import likelihood
from student.inference.likelihood import RANK_CLIP, LikelihoodScorer, ScoredRow
from student.models import siq_vl

PIXELS = 10**6


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tiny_models.build(tmp_path_factory.mktemp("model"), hidden=64, layers=2, spread=0.5)
    return siq_vl.load(str(folder))


def said(folder: Path, count: int = 6) -> list[ScoredRow]:
    """Traces of different lengths about one image each, and one about no image."""
    found = []
    for number in range(count):
        path = tiny_models.make_image(folder / f"{number}.png", number, size=24)
        ref = ImageRef(sha256=image_files.sha256(path.read_bytes()), path=str(path))
        head = "<think>\n" + "Row 1: red circle, 1 + 2 = 3.\n" * number + "</think>\n\n"
        row = TrainingRow(
            id=f"trace{number}",
            images=(ref,) if number != 2 else (),
            question="How many red circles?" + " Count them." * (number % 3),
            response=f"{head}{7 * number} circles",
        )
        found.append(ScoredRow(row=row, answer_at=len(head)))
    return found


def fit_of(student: tuple[Any, Any], **options: Any) -> LikelihoodScorer:
    return LikelihoodScorer(*student, **{"batch_tokens": 200, "max_length": 1000, "max_pixels": PIXELS, **options})


def naive(student: tuple[Any, Any], row: TrainingRow, text: str, *, images: bool) -> list[tuple[float, int]]:
    """Surprisal and rank of each token of the response in a whole text, one position after the other."""
    model, processor = student
    shown = [image_files.load(ref, max_pixels=PIXELS) for ref in row.images] if images else None
    inputs = processor(text=[text], images=shown or None, add_special_tokens=False, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs, use_cache=False).logits[0].double()
    ids = inputs["input_ids"][0].tolist()
    length = len(processor.tokenizer(row.response + "<|im_end|>", add_special_tokens=False)["input_ids"])
    end = len(ids) - 1 - ids[::-1].index(processor.tokenizer.convert_tokens_to_ids("<|im_end|>"))
    found = []
    for place in range(end - length + 1, end + 1):
        before = logits[place - 1]
        surprisal = -torch.log_softmax(before, 0)[ids[place]].item()
        found.append((surprisal, 1 + int((before > before[ids[place]]).sum())))
    return found


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def expected(student: tuple[Any, Any], item: ScoredRow) -> dict[str, Any]:
    row, tokenizer = item.row, student[1].tokenizer
    answer = len(tokenizer(row.response[item.answer_at :], add_special_tokens=False)["input_ids"])
    turn = f"<|im_start|>assistant\n{row.response}<|im_end|>\n"
    asked = f"<|im_start|>user\n{'<image>' * len(row.images)}{row.question}<|im_end|>\n"
    seeing = naive(student, row, asked + turn, images=True)
    blind = naive(student, row, asked.replace("<image>", "") + turn, images=False)
    alone = naive(student, row, turn, images=False)
    nll = mean([surprisal for surprisal, _ in seeing])
    return {
        "nll": nll,
        "rank_surprisal": sum(min(rank, RANK_CLIP) for _, rank in seeing) / sum(surprisal for surprisal, _ in seeing),
        "ifd": nll / mean([surprisal for surprisal, _ in alone]),
        "blind_gap": mean([surprisal for surprisal, _ in blind]) - nll if row.images else None,
        "answer_nll": mean([surprisal for surprisal, _ in seeing[-1 - answer : -1]]),
        "tokens": len(seeing),
    }


def test_every_value_equals_the_naive_one(tiny: tuple[Any, Any], tmp_path: Path) -> None:
    items = said(tmp_path)
    found = fit_of(tiny)(items)
    for item, values in zip(items, found, strict=True):
        assert values == pytest.approx(expected(tiny, item), abs=1e-4)
    assert max(values["rank_surprisal"] for values in found) > 1, "no token was anything but the likeliest"


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_every_class_of_student_can_be_measured_alone_or_in_company(kind: str, world: Path, tmp_path: Path) -> None:
    student = worlds.student(kind, world)
    rows = worlds.rows(tmp_path, 6)
    items = [ScoredRow(row=row, answer_at=row.response.rindex("\n") + 1) for row in rows]
    together, alone = fit_of(student)(items), fit_of(student, batch_tokens=1)(items)
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
        assert all(math.isfinite(value) for value in one.values())
    tokens = [len(student[1].tokenizer(row.response, add_special_tokens=False)["input_ids"]) + 1 for row in rows]
    assert [values["tokens"] for values in together] == tokens


def test_two_forward_passes_a_batch_and_three_rows_a_trace(tiny: tuple[Any, Any], tmp_path: Path) -> None:
    passes: list[tuple[int, int]] = []
    measure = fit_of(tiny, batch_tokens=10**6)
    handle = tiny[0].base_model.register_forward_pre_hook(
        lambda _, args, inputs: passes.append(
            (len(inputs["input_ids"]), len(inputs["pixel_values"]) if "pixel_values" in inputs else 0)
        ),
        with_kwargs=True,
    )
    head_rows: list[int] = []
    other = tiny[0].lm_head.register_forward_pre_hook(lambda _, args: head_rows.append(len(args[0])))
    try:
        found = measure(said(tmp_path))
    finally:
        handle.remove()
        other.remove()
    # Six traces, five of them with an image: the one without needs no second look at its question.
    assert passes == [(6, 5), (11, 0)]
    assert sum(head_rows) == sum(values["tokens"] * (2 + (values["blind_gap"] is not None)) for values in found)


def test_the_vocabulary_is_looked_at_a_few_positions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head, hidden = torch.nn.Linear(8, 50, bias=False), torch.randn(23, 8)
    targets = torch.randint(0, 50, (23,))
    widest: list[int] = []
    head.register_forward_hook(lambda _, args, output: widest.append(output.numel()))
    with torch.inference_mode():
        whole = likelihood.token_scores(head, hidden, targets)
        monkeypatch.setattr(likelihood, "_LOGITS", 200)
        widest.clear()
        pieces = likelihood.token_scores(head, hidden, targets)
    assert max(widest) <= 200 and len(widest) == 6
    assert pieces[0] == pytest.approx(whole[0], abs=1e-6) and pieces[1].tolist() == whole[1].tolist()


def test_a_rank_counts_likelier_tokens_only() -> None:
    head = torch.nn.Identity()
    logits = torch.tensor([[3.0, 1.0, 1.0, 0.0], [3.0, 1.0, 1.0, 0.0], [5.0, 5.0, 5.0, 5.0]])
    _, ranks = likelihood.token_scores(head, logits, torch.tensor([0, 2, 3]))
    assert ranks.tolist() == [1, 2, 1]


def test_what_cannot_be_measured_has_a_reason_and_costs_its_neighbours_nothing(
    tiny: tuple[Any, Any], tmp_path: Path
) -> None:
    items = said(tmp_path, 5)
    good = fit_of(tiny)(items)
    lost = ImageRef(sha256="0" * 64, path=str(tmp_path / "nowhere.png"))
    broken = [
        ScoredRow(row=replace(items[0].row, id="long", response="7 " * 2000), answer_at=0),
        ScoredRow(row=replace(items[0].row, id="lost", images=(lost,)), answer_at=0),
        ScoredRow(row=replace(items[0].row, id="mark", response="an <image> here"), answer_at=0),
        ScoredRow(row=replace(items[0].row, id="empty", response=""), answer_at=0),
    ]
    found = fit_of(tiny)([broken[0], items[0], broken[1], *items[1:], *broken[2:]])
    reasons = [values["reason"] for values in found if "reason" in values]
    assert reasons == ["too_long", "missing_image", "image_token_in_text", "no_response"]
    assert [values for values in found if "reason" not in values] == [pytest.approx(one, abs=1e-4) for one in good]


def test_a_student_that_bends_its_logits_is_refused(tiny: tuple[Any, Any]) -> None:
    student, processor = tiny

    def softcap(_module: Any, _args: Any, output: Any) -> Any:
        output.logits = torch.tanh(output.logits)
        return output

    handle = student.register_forward_hook(softcap)
    try:
        with pytest.raises(ModelError, match="changes its logits"):
            fit_of((student, processor))
    finally:
        handle.remove()


def test_a_trained_student_needs_the_image_where_the_answer_is_in_it(tiny: tuple[Any, Any], tmp_path: Path) -> None:
    """The gap is positive for what only the image tells, once a student has learned to look."""
    student, processor = siq_vl.load(
        str(tiny_models.build(tmp_path / "model", hidden=64, layers=2, spread=0.1)), dtype="float32"
    )
    items = []
    for number in range(4):
        path = tiny_models.make_image(tmp_path / f"{number}.png", number, size=24)
        ref = ImageRef(sha256=image_files.sha256(path.read_bytes()), path=str(path))
        row = TrainingRow(id=str(number), images=(ref,), question="How many?", response=f"{number + 3}")
        items.append(ScoredRow(row=row, answer_at=0))
    before = fit_of((student, processor))(items)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    text = "<|im_start|>user\n<image>How many?<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n"
    images = [[image_files.load(item.row.images[0], max_pixels=PIXELS)] for item in items]
    batch = processor(
        text=[text.format(item.row.response) for item in items],
        images=images,
        add_special_tokens=False,
        padding=True,
        return_tensors="pt",
    )
    labels = torch.full_like(batch["input_ids"], -100)
    labels[:, -3:-1] = batch["input_ids"][:, -3:-1]
    for _ in range(60):
        student(**batch, labels=labels, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    after = fit_of((student, processor))(items)
    assert mean([values["nll"] for values in after]) < 0.2 < mean([values["nll"] for values in before])
    assert min(values["blind_gap"] for values in after) > 0
    assert max(values["ifd"] for values in after) < 1


@pytest.mark.parametrize("kind", ["siq-vl", "llava", "qwen3-vl"])
def test_rows_that_share_a_line_are_measured_as_if_alone(kind: str, world: Path, tmp_path: Path) -> None:
    """Lines are packed on GPUs only, where nothing else can be compared in a test; the path is the same here."""
    student = worlds.student(kind, world)
    items = [ScoredRow(row=row, answer_at=row.response.rindex("\n") + 1) for row in worlds.rows(tmp_path, 7)]
    measure = fit_of(student, batch_tokens=10**6)
    apart = measure(items)
    measure._line_tokens = 300
    packed = measure(items)
    assert list(packed) == [pytest.approx(values, abs=1e-4) for values in apart]
