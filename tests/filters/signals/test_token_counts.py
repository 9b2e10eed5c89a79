import random

import orjson
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from filters.signals.token_counts import cached_counter, find_text_split

LINES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + LINES
MARKS = SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + LINES
THREE_DIGITS = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
TEXT = (
    "The red bar (2019) is at 1,234.5 units; it's higher than the blue one.\n\nSo: 6 + 8 = 14.\n- **Norway**: 5 %\n"
    "  - inside, don't count\n```\nx = 5\n```\nÉté à côté. 图中的柱子是6，答案是14。 Ответ пять."
)


def tokenizer(kind):
    made = Tokenizer(models.BPE())
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    after = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.normalizer = normalizers.NFC()
    if kind == "gpt2":
        made.pre_tokenizer = whole
    elif kind == "digits":
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), whole])
    else:
        split = pre_tokenizers.Split(Regex(kind), behavior="isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence([split, after])
    made.decoder = decoders.ByteLevel()
    # Repeated, so that whole pieces with their white space become tokens and a wrong cut shows.
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False, special_tokens=["<|end|>", "<think>"])
    spaced = TEXT.replace(" ", "  "), TEXT.replace("\n", " \n \n\n")
    made.train_from_iterator([TEXT, *spaced] * 50, trainer)
    return made


def random_texts(count):
    source = random.Random(0)
    marks = "   |  | |.|-|'s|<think>|<|12|é|😀|!\n|\t|\r\n|\0|\1|\x1c|\u0301|\u00a0|\u3000"
    parts = [*TEXT.split(" "), *marks.split("|")]
    parts += ["", "<|end|>", "\n", "\n\n", "\n\n\n", "\n \n", " \n", "\n  "]
    for _ in range(count):
        yield source.choice(("", " ")).join(source.choices(parts, k=source.randint(0, 12)))


@pytest.mark.parametrize(
    "kind", ["gpt2", "digits", QWEN, MARKS, THREE_DIGITS], ids=["gpt2", "digits", "qwen", "marks", "three"]
)
def test_pieces_have_as_many_tokens_as_the_whole(kind):
    made = tokenizer(kind)
    cut = find_text_split(made.to_str())

    def whole(text):
        return len(made.encode(text, add_special_tokens=False))

    count = cached_counter(cut, whole)
    texts = [TEXT, TEXT * 3, *random_texts(4000)]
    assert [count(text) for text in texts] == [whole(text) for text in texts]


def test_a_piece_is_tokenized_once():
    asked = []

    def whole(text):
        asked.append(text)
        return 1

    count = cached_counter(find_text_split(tokenizer(QWEN).to_str()), whole)
    assert count("the red bar is the red one") == count("the red bar is the red one") == 7
    assert sorted(asked) == [" bar", " is", " one", " red", " the", "the"]


@pytest.mark.parametrize(
    "change",
    [
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}},
        {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}},
        {"normalizer": {"type": "NFKC"}},
    ],
)
def test_what_is_not_known_to_cut_at_spaces_is_not_cut(change):
    settings = orjson.loads(tokenizer("gpt2").to_str())
    assert find_text_split(orjson.dumps(settings).decode()) is not None
    assert find_text_split(orjson.dumps(settings | change).decode()) is None


def test_another_pattern_or_a_token_that_takes_spaces_is_not_cut():
    assert find_text_split(tokenizer(QWEN + "|x").to_str()) is None
    made = tokenizer(QWEN)
    made.add_tokens([AddedToken("<mask>", lstrip=True)])
    assert find_text_split(made.to_str()) is None
