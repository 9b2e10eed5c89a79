"""An answer within a sentence that states it: "It is a cat", "The sign reads STOP", "Sender: Tilda Brask".

Cautious: only where the words around the answer are known to add nothing and to take nothing back.
"""

import re
from collections.abc import Sequence
from typing import Final

from distill.answers.compare_result import CompareResult, correct, wrong
from distill.answers.texts.answer_sentences import trusted
from distill.answers.texts.words import ABBREVIATIONS, tokens, unabbreviated

COPULA = re.compile(
    r"(?:(?:looking at|based on|according to|from) [^,]{1,60}, )?"
    r"(?:it|this|that|they|these|those|he|she|there|(?:the|its|their|his|her)\s[\w' -]{1,60}?)"
    r"(?:\s(?:is|are|was|were)|'s|\sbelongs? to|\sgoes to)\s(?:called\s|named\s|labell?ed\s"
    r"|(?:signed|written|made|issued|published|produced|sent|painted|owned|held|approved) (?:by|in|on|at)\s)?"
    r"(?P<rest>.+)",
    re.IGNORECASE,
)
_ENDS_IN = re.compile(
    r".*\b(?:so|thus|hence|therefore),? (?:it|this|that|(?:the|its|their|his|her) [\w' -]{1,40}?)"
    r" (?:is|are|was|were) (?P<rest>[^,;]+)"
    r"|it \w+(?:s|ed) (?:in|on|at|to) (?P<where>[^,;]+)"
    r"|(?:(?:the|this) )?(?:sign|label|text|title|headline|heading|caption|banner|board|poster|logo|writing|word"
    r"|scoreboard|card|ticket|page|screen|display|cover|box|bottle|shirt|jersey|plate|clock|tag|sticker|document)"
    r"(?: [\w ]{1,30}?)? (?:says?|reads?|shows?|states?|displays?) (?P<read>.+)"
    r"|(?:auf|in|an) [\w ]{1,40} steht:? (?P<steht>.+)|(?:it|one can|we can|you can) (?:reads?|says?|see) (?P<see>.+)"
    r"|(?:the )?(?:state|city|town|country|province|river|lake|island|village|county|planet|company|brand|color|name)"
    r" of (?P<of>.+)",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(
    r"[-*•]?\s*(?!not\b|no\b|wrong\b|except\b)[^\W\d][\w ]{1,30}: (?P<rest>[^:]+)", re.IGNORECASE
)
_DENIED = re.compile(r"\b(?:if|whether|unless|neither|nor|never|not)\b", re.IGNORECASE)
_TITLES: Final = frozenset({"dr", "mr", "mrs", "ms", "prof", "professor", "sir", "lady", "miss", "doctor", "mister"})
_NUMBERED_TEXT: Final = """page pages p pp no nr number zip code postcode room line bus gate platform flight track
    exit code form invoice po box suite apartment seat terminal channel gleis zimmer"""
_NUMBERED: Final = frozenset(_NUMBERED_TEXT.split())
_CODE = re.compile(r"[a-z]{0,3}\d+[a-z]?")
_ON_A_SIDE = re.compile(
    r"(?:on|to|at|in|towards?) (?:the )?(?P<rest>left|right|top|bottom|front|back|middle|center|centre)"
    r"(?:-hand)?(?: side| part)?(?: of [\w ]{1,40})?",
    re.IGNORECASE,
)
_BUT_NOT = re.compile(r"(?P<said>.+?),? (?:and |but )?not (?P<denied>.+?)\.?", re.IGNORECASE)
COPULA_END = re.compile(r"\b(?:is|are|was|were|do|does|did|has|have|it's)$", re.IGNORECASE)
_FILLERS: Final = frozenset({"one", "ones", "color", "side", "line", "bar", "segment"})
_PLACES: Final = frozenset({"in", "on", "at", "to", "from", "by"})


def _first_letters(word: str) -> str:
    """Of a name of a month or day, which may be written short."""
    return word[:3] if word in ABBREVIATIONS or word in ABBREVIATIONS.values() else word


def _core(words: Sequence[str]) -> Sequence[str]:
    """Without the title of a person, and without the name of what is numbered."""
    return _without_leading(words, _TITLES | _NUMBERED)


def compare_framed(text: str, words: Sequence[str], gold_words: Sequence[str]) -> CompareResult | None:
    """The gold words with nothing around them but the words of a sentence that states them."""
    if not {*map(_first_letters, _core(gold_words))} <= {*map(_first_letters, words)}:
        return None
    parted = _BUT_NOT.fullmatch(text) if " not " in text and len(text) <= 120 else None
    if parted is not None and not COPULA_END.search(parted["said"]):
        affirmed, denied = parted["said"], parted["denied"]
        if _states_gold(affirmed, gold_words):
            return correct("same_words")
        return wrong("named_as_wrong") if _states_gold(denied, gold_words) else None
    return correct("same_words") if _states_gold(text, gold_words) else None


def _states_gold(text: str, gold_words: Sequence[str]) -> bool:
    if text.endswith(")") and " (" in text:
        text = text.split(" (", 1)[0]
    ends = _ENDS_IN.fullmatch(text) or _NAMED_VALUE.fullmatch(text)
    if ends is not None and ends.re is _ENDS_IN and ends["read"] and not trusted(text[: ends.start("read")]):
        return False
    if ends is not None and _same_unabbreviated(
        tokens(next(group for group in ends.groups() if group).strip("\"'“”„‟")), gold_words
    ):
        return True
    copula = COPULA.fullmatch(text)
    if copula is not None and _DENIED.search(text[: copula.start("rest")]):
        return False
    rest = copula["rest"] if copula is not None else text
    if (relative_position := _ON_A_SIDE.fullmatch(rest)) is not None:
        rest = relative_position["rest"]
    words: Sequence[str] = tokens(rest)
    if _same_unabbreviated(words, gold_words):
        return True
    if len(words) > 1 and words[0] in ARTICLES_ABROAD and gold_words and gold_words[0] not in ARTICLES_ABROAD:
        words = words[1:]
        if len(gold_words) == 1 and "-" in text and "".join(words) == gold_words[0]:
            return True
    if gold_words and words and (words[0] in _TITLES) != (gold_words[0] in _TITLES):
        words = _without_leading(words, _TITLES)
        gold_words = _without_leading(gold_words, _TITLES) if len(gold_words) > 2 else gold_words
    if gold_words and words and (words[0] in _NUMBERED) != (gold_words[0] in _NUMBERED):
        core = _without_leading(gold_words, _NUMBERED)
        if _CODE.fullmatch("".join(core)) or core[0][:1].isdigit():
            words = _without_leading(words, _NUMBERED)
            gold_words = core if _CODE.fullmatch("".join(core)) else gold_words
    if _is_only_name(text, gold_words):
        return True
    if len(words) > len(gold_words) and words[-1] in _FILLERS:
        words = words[:-1]
    if len(words) > len(gold_words) and words[0] in _PLACES:
        words = words[1:]
    return words == gold_words


def _without_leading(words: Sequence[str], leading: frozenset[str]) -> Sequence[str]:
    while len(words) > 1 and words[0] in leading:
        words = words[1:]
    return words


_CAPITALS = re.compile(r"(?<=[a-z,;:] )[A-Z][\w'&-]*")
_QUOTED = re.compile(r'"([^"]+)"')
_PARTS_COMPANY_TEXT: Final = """
    not no or but nor than next near beside behind between except instead unlike other another different without
    rather isn't wasn't neither opposite above below under against before after until if may might could maybe
    perhaps probably both
"""
_PARTS_COMPANY: Final = frozenset(_PARTS_COMPANY_TEXT.split())


_POINTS_AT_IT = re.compile(r"(?:it|this|that|there)(?:'s| is| was| reads| says| shows)\b", re.IGNORECASE)


def _is_only_name(text: str, gold_words: Sequence[str]) -> bool:
    """The only name, or the only words in quotes, of a short sentence that sets it against nothing."""
    words = text.split()
    if not 2 < len(words) <= 16 or _PARTS_COMPANY & {word.strip(".,;:").lower() for word in words}:
        return False
    quoted = _QUOTED.findall(text)
    if quoted:
        return text.count('"') == 2 and tokens(quoted[0].strip(".,!")) == tuple(gold_words)
    if not _POINTS_AT_IT.match(text):
        return False
    names = tokens(" ".join(_CAPITALS.findall(text)))
    return bool(gold_words) and names == tuple(gold_words) and not any(word.isdigit() for word in words)


def _same_unabbreviated(words: Sequence[str], gold_words: Sequence[str]) -> bool:
    return words == gold_words or (
        len(words) == len(gold_words) == 1 and unabbreviated(tuple(words)) == unabbreviated(tuple(gold_words))
    )


_ARTICLES_ABROAD_TEXT: Final = "el la los las l un una le les une der die das ein eine il lo gli os um uma de het een"
ARTICLES_ABROAD: Final = frozenset(_ARTICLES_ABROAD_TEXT.split())
