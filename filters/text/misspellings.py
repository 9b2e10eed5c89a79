"""Whether one of two words is the other one with a typo or in another tense.

A typo changes one letter of a word of five letters or more: left out, added, replaced, or exchanged with the next
one. The first letter and, unless two letters are exchanged, the last one stay, so that no inflection is taken for a
typo. If both words are known, there is no typo: `similar_words.txt` lists the common English words that are one such
letter from another one ("angle" and "angel"), and words of sciences, German, French and Spanish that are ("alkane"
and "alkene").
"""

from functools import lru_cache
from importlib.resources import files
from typing import Final

from rapidfuzz.distance import OSA

_SHORTEST: Final = 5
_IRREGULAR_VERBS: Final = """
    makes/made gives/gave takes/took goes/went comes/came sees/saw knows/knew holds/held stands/stood sits/sat
    runs/ran writes/wrote draws/drew shows/shown begins/began keeps/kept leaves/left brings/brought thinks/thought
    tells/told says/said means/meant finds/found gets/got leads/led wears/wore eats/ate drinks/drank drives/drove
    rides/rode speaks/spoke throws/threw catches/caught flies/flew swims/swam sells/sold buys/bought builds/built
    sends/sent spends/spent loses/lost wins/won meets/met pays/paid has/had does/did rises/rose falls/fell
    grows/grew sinks/sank lies/lay"""
_IRREGULAR: Final = frozenset(tuple(pair.split("/")) for pair in _IRREGULAR_VERBS.split())
_MARKS: Final = str.maketrans("äöüàâáéèêëíìîïóòôúùûñç", "aouaaaeeeeiiiiooouuunc")
"""A word with another mark on a letter is another word: "wurde" and "würde"."""


def is_same_word(left: str, right: str) -> bool:
    """Whether two different words are one with a typo, or one verb in two tenses."""
    return _is_typo(left, right) or _is_tense(left, right) or _is_tense(right, left)


def _is_typo(left: str, right: str) -> bool:
    if max(len(left), len(right)) < _SHORTEST or left[0] != right[0]:
        return False
    if (left[-1] != right[-1] and sorted(left) != sorted(right)) or OSA.distance(left, right, score_cutoff=1) != 1:
        return False
    if left.translate(_MARKS) == right.translate(_MARKS):
        return False
    known = similar_words()
    return not (left in known and right in known)


def _is_tense(present: str, other: str) -> bool:
    """Whether a verb in the present is the other word in the past or as a participle: "covers" and "covered".

    "Covers" and "cover" may be a noun in two numbers, and "covered" and "covering" are two voices.
    """
    if (present, other) in _IRREGULAR:
        return True
    if not present.endswith("s") or present.endswith("ss"):
        return False
    stems = {present[:-1], present[:-2]} if present.endswith("es") else {present[:-1]}
    return any(
        other in (f"{stem}ed", f"{stem}ing", f"{stem[:-1]}ied" if stem.endswith("i") else "", f"{stem}{stem[-1:]}ed")
        or (stem.endswith("e") and other in (f"{stem}d", f"{stem[:-1]}ing"))
        for stem in stems
        if len(stem) > 2
    )


def is_participle(other: str, verb: str) -> bool:
    """Whether a word after a form of "to be" is a verb's participle: "is covering" and "covers" or "cover"."""
    if not other.endswith("ing") or len(verb) < 3:
        return False
    stems = {verb, verb.removesuffix("s"), verb.removesuffix("es")}
    return any(
        other
        in (f"{stem}ing", f"{stem}{stem[-1]}ing", f"{stem.removesuffix('e')}ing", f"{stem.removesuffix('ie')}ying")
        for stem in stems
        if len(stem) > 2
    )


@lru_cache(maxsize=1)
def similar_words() -> frozenset[str]:
    """Words that are one letter from another word, with their regular inflections."""
    lines = files("filters.text").joinpath("similar_words.txt").read_text("utf-8").splitlines()
    listed = (word for line in lines if not line.startswith("#") for word in line.split())
    return frozenset(form for word in listed for form in _with_inflections(word))


def _with_inflections(word: str) -> list[str]:
    stem = word[:-1] if word.endswith("e") else word
    doubled = word + word[-1]
    return [
        *(
            word,
            f"{word}s",
            f"{word}es",
            f"{word}ly",
            f"{stem}ed",
            f"{stem}ing",
            f"{stem}er",
            f"{stem}ers",
            f"{stem}est",
        ),
        *((f"{word[:-1]}ies", f"{word[:-1]}ied", f"{word[:-1]}ier") if word.endswith("y") else ()),
        *(f"{doubled}ed", f"{doubled}ing", f"{doubled}er", f"{doubled}ers"),
    ]
