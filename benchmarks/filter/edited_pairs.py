"""Near duplicates on generated pairs: rationales with one word in a hundred edited, by language and kind of edit.

    python benchmarks/filter/edited_pairs.py --half tune [--missed] [--every N]

The protocol. A text of n words gets max(1, round(n / 100)) edits of one kind. An edit *keeps* what the text says: a
synonym, another spelling or inflection, a contraction, a filler more, a repeated word, a typo (one letter of a word
of five letters or more left out, doubled, replaced or exchanged with the next one; the result is no word of these
texts and none of `filters/text/similar_words.txt`). Or it *changes* it: a number, a number word, a negation, a
colour, a direction, a comparison, an antonym, a quantifier, a unit, a name, another thing, another word of similar
letters. Values, names and quotes are never edited or repeated in order to keep a text. A pair counts as found when
the filter puts it into one group, within a question and in the index of a run that holds this pair alone.

Texts come from the rationales of the tiny world, from the English texts of benchmarks/data/near_duplicates, and
from German and French templates. Each half has its own texts and its own half of the synonyms and fillers (by a
hash of the entry), so `held` says what the filter does with words that no one tuned it on. Texts and pairs depend
on the seed alone.
Takes 25 s with `--every 100`, more than 7 min without (two shared cores).
"""

import argparse
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from zlib import crc32

import orjson

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "tiny"))
import numpy as np
from near_duplicates import groups, within_question
from questions import ask, rationale
from world import DOMAINS, imagine

from distill.reports.text_table import table
from filters.text.misspellings import similar_words
from filters.text.value_words import NUMBER_WORDS, UNITS

DATA = Path(__file__).parents[1] / "data" / "near_duplicates"
FOLDERS = {"tune": ("blind_dev", "dev"), "held": ("blind_heldout", "heldout")}
WORDS_AN_EDIT = 100
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONG = 5
_WORD = re.compile(r"(?<![\w'’\-\"])[^\W\d_A-Z]+(?![\w'’\-\"])")
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|(?<!\w)['‘][^'’\n]*['’](?!\w)|«[^»]*»")

Texts = dict[str, list[str]]


def read_texts(half: str, edits: dict[str, dict[str, str]], rng: Random) -> Texts:
    """The texts of one half, by language."""
    english = {
        orjson.loads(line)["a"]
        for name in FOLDERS[half]
        for line in (DATA / name / "same.jsonl").open("rb").readlines()
    }
    texts = {"en": [*sorted(english), *tiny_texts(half)]}
    for language in ("de", "fr"):
        templates = edits["texts"][f"{language}_{half}"].strip().splitlines()
        texts[language] = [fill(template, rng) for template in templates for _ in range(6)]
    return texts


def tiny_texts(half: str, count: int = 90) -> list[str]:
    """Rationales that the teachers of the tiny world learn."""
    rng = np.random.default_rng(crc32(half.encode()))
    texts = []
    for number in range(count):
        image = imagine(list(DOMAINS)[number % len(DOMAINS)], rng)
        texts.append(rationale(image, ask(image, rng), rng))
    return sorted(set(texts))


def fill(template: str, rng: Random) -> str:
    return template.format(n=rng.randint(2, 19), m=rng.randint(20, 99), y=rng.randint(1950, 2024))


def entries(block: str, half: str | None) -> list[tuple[str, str]]:
    """The edits of a block, of one half of them where a half is given."""
    return [
        pair
        for pair in _pairs(block)
        if half is None or (crc32("/".join(pair).encode()) % 2 == 0) == (half == "tune")
    ]


def _pairs(block: str) -> list[tuple[str, str]]:
    return [tuple(part.replace("_", " ") for part in entry.split("/")) for entry in block.split()]  # type: ignore[misc]


def places(text: str, word: str) -> list[tuple[int, int]]:
    """Where a word or phrase stands alone in lower case, in no quotes."""
    found = re.finditer(rf"(?<![\w'’\-.]){re.escape(word)}(?![\w'’\-])", text)
    return [match.span() for match in found if not is_quoted(text, match.start())]


def is_quoted(text: str, place: int) -> bool:
    return any(match.start() <= place < match.end() for match in _QUOTED.finditer(text))


def replaced(text: str, edits: list[tuple[str, str]], count: int, rng: Random) -> str | None:
    """The text with `count` of the edits that it has room for; None if it has not."""
    options = [(span, new) for old, new in edits for span in places(text, old)]
    rng.shuffle(options)
    chosen: list[tuple[tuple[int, int], str]] = []
    for (start, end), new in options:
        if all(end < left or start > right for (left, right), _ in chosen):
            chosen.append(((start, end), new))
    if len(chosen) < count:
        return None
    for (start, end), new in sorted(chosen[:count], reverse=True):
        text = text[:start] + new + text[end:]
    return text


def inserted(text: str, fillers: list[str], count: int, rng: Random) -> str | None:
    """The text with fillers before words in lower case."""
    # Not after a number, which a unit may follow.
    words = [match.start() for match in _WORD.finditer(text) if re.search(r"[^\W\d],? $", text[: match.start()])]
    gaps = [place for place in words if not is_quoted(text, place)]
    if len(gaps) < count:
        return None
    for gap in sorted(rng.sample(gaps, count), reverse=True):
        text = f"{text[:gap]}{rng.choice(fillers)} {text[gap:]}"
    return text


def misspelt(word: str, rng: Random) -> str:
    place = rng.randrange(1, len(word) - 1)
    return {
        0: lambda: word[:place] + word[place + 1 :],
        1: lambda: word[:place] + word[place] + word[place:],
        2: lambda: word[:place] + rng.choice(LETTERS) + word[place + 1 :],
        3: lambda: word[:place] + word[place + 1] + word[place] + word[place + 2 :],
    }[rng.randrange(4)]()


def typos(text: str, known: frozenset[str], spared: frozenset[str], rng: Random) -> list[tuple[str, str]]:
    """A typo for each word of a text that is long enough and is no value, no name and no word of a contrast."""
    words = sorted({match.group() for match in _WORD.finditer(text)} - spared)
    pairs = [(word, misspelt(word, rng)) for word in words if len(word) >= LONG]
    return [(word, typo) for word, typo in pairs if typo not in known and typo != word]


def generate(half: str, seed: int) -> Iterator[tuple[bool, str, str, str, str]]:
    """Whether the edit keeps what is said, language, kind, and both texts."""
    edits = tomllib.loads((DATA / "edits.toml").read_text())
    texts = read_texts(half, edits, Random(seed))
    for language, sources in texts.items():
        keep, change = edits[language]["keep"], edits[language]["change"]
        known = similar_words() | {match.group() for text in sources for match in _WORD.finditer(text)}
        spared = NUMBER_WORDS | UNITS | {part for block in change.values() for pair in _pairs(block) for part in pair}
        for text in sources:
            rng = Random(f"{seed} {text}")
            count = max(1, round(len(text.split()) / WORDS_AN_EDIT))
            for kind, block in keep.items():
                if kind == "filler":
                    edited = inserted(text, [new for _, new in entries(block, half)], count, rng)
                else:
                    edited = replaced(text, entries(block, half if kind == "synonym" else None), count, rng)
                if edited:
                    yield True, language, kind, text, edited
            edited = replaced(text, typos(text, known, spared, rng), count, rng)
            if edited:
                yield True, language, "typo", text, edited
            words = [word for word in _WORD.findall(text) if word not in spared and len(word) > 1]
            if words:
                word = rng.choice(words)
                yield True, language, "repeated", text, replaced(text, [(word, f"{word} {word}")], 1, rng) or text
            for kind, block in change.items():
                edited = replaced(text, _pairs(block), 1, rng)
                if edited:
                    yield False, language, kind, text, edited
            yield from ((False, language, kind, text, new) for kind, new in other_values(text, rng))


def other_values(text: str, rng: Random) -> Iterator[tuple[str, str]]:
    """The text with another number, and with another name."""
    numbers = [match.span() for match in re.finditer(r"\d+", text)]
    if numbers:
        start, end = rng.choice(numbers)
        yield "number", f"{text[:start]}{int(text[start:end]) + rng.randint(1, 9)}{text[end:]}"
    names = [match.span() for match in re.finditer(r"(?<=[a-z] )[A-Z][a-z]{3,}", text)]
    if names:
        start, end = rng.choice(names)
        yield "name", text[:start] + rng.choice(["Kestrel", "Oldham", "Ravenna", "Quillon"]) + text[end:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=list(FOLDERS), required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--missed", action="store_true", help="print the edits that are judged wrongly")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one pair in so many")
    options = parser.parse_args()
    counts: dict[tuple[bool, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for keeps, language, kind, text, edited in islice(generate(options.half, options.seed), 0, None, options.every):
        hits = within_question(text, edited), len(set(groups([text, edited]))) == 1
        for key in ((keeps, language, kind), (keeps, "all", "all")):
            counts[key] = [old + new for old, new in zip(counts[key], (1, *hits), strict=True)]
        if options.missed and hits != (keeps, keeps):
            print("missed" if keeps else "MERGED", language, kind, difference(text, edited))
    for keeps in (True, False):
        print("keep what is said: pairs found to be one" if keeps else "change what is said: pairs found to be one")
        rows = [
            (language, kind, str(total), str(within), str(run), f"{100 * run / total:.1f}")
            for (kept, language, kind), (total, within, run) in sorted(counts.items())
            if kept == keeps
        ]
        print(table(("language", "kind", "pairs", "within a question", "in a run", "%"), rows))


def difference(text: str, edited: str) -> str:
    """The words that differ, between the words that both texts begin and end with."""
    left, right = text.split(), edited.split()
    while left and right and left[0] == right[0]:
        left, right = left[1:], right[1:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    return f"{' '.join(left)} -> {' '.join(right)}"


if __name__ == "__main__":
    main()
