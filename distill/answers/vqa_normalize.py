"""How VQA's evaluation writes an answer before comparing it: case, punctuation, articles, number words, apostrophes.

The rules follow the processor of TextVQA's leaderboard (MMF's EvalAI processor, also in lmms-eval), with its known
faults, because published figures depend on them. The judge of this toolkit does not use them.
"""

import re
from collections.abc import Iterator

_NUMBER_WORDS = "none one two three four five six seven eight nine ten"
_NUMBERS = {word: str(number) for number, word in enumerate(_NUMBER_WORDS.split())} | {"zero": "0"}
_ARTICLES = frozenset({"a", "an", "the"})
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_PERIOD = re.compile(r"\.(?!\d)")
_PERIODS_REMOVED = 32
"""The reference hands a flag to re.sub where the count belongs, and the flag's value is 32."""

_CONTRACTED = (
    "ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd "
    "he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've "
    "needn't not've o'clock oughtn't shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll "
    "somebody's someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd "
    "there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll "
    "what're what's what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's "
    "won't would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've"
)


def _spellings(word: str) -> Iterator[str]:
    """A contraction with one of its apostrophes left out."""
    return (word[:index] + word[index + 1 :] for index, letter in enumerate(word) if letter == "'")


_CONTRACTIONS = {spelling: word for word in _CONTRACTED.split() for spelling in _spellings(word)}
_CONTRACTIONS |= {"somebody'd": "somebodyd", "'ows'at": "'ow's'at", "'ow'sat": "'ow's'at"}


def normalise(answer: str) -> str:
    """An answer in the form in which two answers are compared character by character."""
    text = answer.lower().replace(",", "").replace("?", "").replace("'s", " 's").strip()
    text = text.replace("\n", " ").replace("\t", " ").strip()
    original = text
    for mark in _PUNCTUATION:
        # A mark at the edge of a word is removed everywhere; otherwise it separates words.
        text = text.replace(mark, "" if f"{mark} " in original or f" {mark}" in original else " ")
    text = _PERIOD.sub("", text, count=_PERIODS_REMOVED)
    words = (_NUMBERS.get(word, word) for word in text.split())
    return " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)
