"""Log-probabilities in a record: what goes in comes out, it is small, and it is what the model says."""

from pathlib import Path

import numpy as np
import orjson
import pytest
import torch
from servers import stub_server
from students import tiny_models

from distill.artifacts.journal import Journal, read_jsonl
from distill.errors import DataError
from distill.recipe.loading import load
from distill.trace_records.logprobs import NO_TOKEN, decode, encode, records
from teacher.generate import generate


def table(tokens: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(0)
    values = -np.sort(chance.exponential(3.0, (tokens, k)), axis=1).astype(np.float32)
    ids = chance.integers(0, 150_000, (tokens, k)).astype(np.int32)
    return np.concatenate([ids[:, :1], ids], axis=1), np.concatenate([values[:, :1], values], axis=1)


def test_ids_come_back_exactly_and_values_within_half_precision() -> None:
    ids, values = table(300, 5)
    values[3, 4], ids[3, 4] = -np.inf, NO_TOKEN
    values[7, 0] = 0.0
    kept = orjson.loads(orjson.dumps(encode(ids, values)))
    ids_again, values_again = decode(kept)
    assert (ids_again == ids).all() and ids_again.dtype == np.int32
    assert values_again.dtype == np.float32 and values_again[7, 0] == 0.0 and values_again[3, 4] == -np.inf
    finite = np.isfinite(values)
    assert np.allclose(values_again[finite], values[finite], rtol=1e-3, atol=1e-6)


def test_a_record_is_a_small_part_of_what_the_server_sends() -> None:
    ids, values = table(1000, 5)
    sent = [
        {"token": f"token_id:{token}", "logprob": float(value), "bytes": [97, 98]}
        for token, value in zip(ids.flat, values.flat, strict=True)
    ]
    assert 6 * len(orjson.dumps(encode(ids, values))) < len(orjson.dumps(sent))


def test_an_empty_trace_and_a_broken_line() -> None:
    ids, values = decode(encode(np.zeros((0, 3), np.int32), np.zeros((0, 3), np.float32)))
    assert ids.shape == values.shape == (0, 3)
    for broken in ({}, {"tokens": 3, "k": 2, "data": "AAAA"}, {"tokens": 3, "k": 2, "data": "?"}):
        with pytest.raises(DataError, match="cannot be read"):
            decode(broken)


RECIPE = """
[data.questions]
source = "rows.jsonl"
[[teachers]]
name = "t"
logprobs = 4
{teacher}
[teachers.sampling]
max_tokens = 12
temperature = 0.9
"""


def written(folder: Path, teacher: str) -> dict[str, object]:
    tiny_models.make_image(folder / "0.png", 0)
    (folder / "rows.jsonl").write_bytes(orjson.dumps({"image": "0.png", "question": "How many red circles?"}) + b"\n")
    (folder / "recipe.toml").write_text(RECIPE.format(teacher=teacher))
    generate(load(folder / "recipe.toml"), folder / "run")
    return next(read_jsonl(folder / "run" / "generate" / "t" / "part-00000.jsonl"))


def test_a_server_s_log_probabilities_are_in_the_record(tmp_path: Path) -> None:
    with stub_server.serve(words=9) as url:
        record = written(tmp_path, f'model = "stub"\nbase_url = "{url}"')
    ids, values = decode(record["logprobs"])  # type: ignore[arg-type]
    assert ids.shape == (12, 5)
    assert (values[:, :3] == np.float32([-0.25, -0.25, -1.25])).all()


def test_the_embedded_engine_s_equal_those_of_a_forward_pass_over_the_whole_text(tmp_path: Path) -> None:
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = tiny_models.build(tmp_path / "model", hidden=32, layers=1, spread=0.3, end_weight=1.0)
    record = written(tmp_path, 'model = "model"\nbackend = "embedded"')
    ids, values = decode(record["logprobs"])  # type: ignore[arg-type]
    usage = record["usage"]
    assert len(ids) == usage["reasoning"] + usage["answer"]  # type: ignore[index]
    network = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(model)
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many red circles?"}]}]
    text = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    inputs = processor(
        text=[text],
        images=[[Image.open(tmp_path / "0.png").convert("RGB")]],
        add_special_tokens=False,
        return_tensors="pt",
    )
    prompt = inputs["input_ids"].shape[1]
    inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor(ids[None, :, 0], dtype=torch.long)], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    with torch.inference_mode():
        expected = network(**inputs).logits[0, prompt - 1 : -1].float().log_softmax(-1)
    for row, (names, numbers) in enumerate(zip(ids, values, strict=True)):
        assert np.allclose(
            expected[row][torch.tensor(names, dtype=torch.long)].numpy(), numbers, rtol=2e-3, atol=1e-3
        )
        assert set(names[1:]) == set(expected[row].topk(4).indices.tolist())


def test_they_are_found_by_trace_in_the_journals_of_a_run(tmp_path: Path) -> None:
    tables = {f"{number:04x}": table(number, 2) for number in range(1, 6)}
    for number, (trace, kept) in enumerate(tables.items()):
        folder = tmp_path / ("first" if number % 2 else "second")
        with Journal(folder / f"part-{number:05d}.jsonl") as journal:
            journal.append({"id": trace, "logprobs": encode(*kept)})
            journal.append({"id": f"{trace}ff"})
    wanted = ["0002", "0005", "0002ff", "nowhere"]
    found = {record["id"]: decode(record["logprobs"]) for record in records(tmp_path, wanted)}
    assert found.keys() == {"0002", "0005"}
    for trace, (ids, values) in found.items():
        assert (ids == tables[trace][0]).all() and np.allclose(values, tables[trace][1], rtol=1e-3)
