"""An answer within a sentence that states it: "It is a cat", "The sign reads STOP", "Sender: Tilda Brask".

Cautious: only where the words around the answer are known to add nothing and to take nothing back.
"""

import re
from collections.abc import Sequence
from typing import Final

from distill.answers.answer_sentences import trusted
from distill.answers.compare import CompareResult, correct, wrong
from distill.answers.words import ABBREVIATIONS, tokens, unabbreviated

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
_RANKED = re.compile(
    r"(?P<rest>.{1,60}?) (?:is|are|was|were|has|have|had) (?:a )?"
    r"(?:\w+er|(?:more|less) [\w ]{1,30}?)(?: [\w ]{1,30})? than"
    r"(?!.*\b(?:not|but)\b).*|(?P<first>.{1,60}?) "
    r"(?:has|have|had|is|are|was|were|shows?|showed|recorded|reached) the (?:\w+ )?"
    r"(?:\w+est|most|least)\b(?!.*\b(?:than|not|after|except)\b).*",
    re.IGNORECASE,
)
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


def framed(text: str, said: Sequence[str], meant: Sequence[str]) -> CompareResult | None:
    """The gold words with nothing around them but the words of a sentence that states them."""
    if not {*map(_first_letters, _core(meant))} <= {*map(_first_letters, said)}:
        return None
    parted = _BUT_NOT.fullmatch(text) if " not " in text and len(text) <= 120 else None
    if parted is not None and not COPULA_END.search(parted["said"]):
        affirmed, denied = parted["said"], parted["denied"]
        if _stated(affirmed, meant):
            return correct("same_words")
        return wrong("named_as_wrong") if _stated(denied, meant) else None
    return correct("same_words") if _stated(text, meant) else None


def _stated(text: str, meant: Sequence[str]) -> bool:
    if text.endswith(")") and " (" in text:
        text = text.split(" (", 1)[0]
    ends = _ENDS_IN.fullmatch(text) or _NAMED_VALUE.fullmatch(text)
    if ends is not None and ends.re is _ENDS_IN and ends["read"] and not trusted(text[: ends.start("read")]):
        return False
    if ends is not None and _same_but_short(
        tokens(next(group for group in ends.groups() if group).strip("\"'“”„‟")), meant
    ):
        return True
    copula = COPULA.fullmatch(text)
    if copula is not None and _DENIED.search(text[: copula.start("rest")]):
        return False
    rest = copula["rest"] if copula is not None else text
    if copula is None and " the " in text and (ranked := _RANKED.fullmatch(text)) is not None:
        rest = ranked["rest"] or ranked["first"]
    if (side := _ON_A_SIDE.fullmatch(rest)) is not None:
        rest = side["rest"]
    said: Sequence[str] = tokens(rest)
    if _same_but_short(said, meant):
        return True
    if len(said) > 1 and said[0] in ARTICLES_ABROAD and meant and meant[0] not in ARTICLES_ABROAD:
        said = said[1:]
        if len(meant) == 1 and "-" in text and "".join(said) == meant[0]:
            return True
    if meant and said and (said[0] in _TITLES) != (meant[0] in _TITLES):
        said = _without_leading(said, _TITLES)
        meant = _without_leading(meant, _TITLES) if len(meant) > 2 else meant
    if meant and said and (said[0] in _NUMBERED) != (meant[0] in _NUMBERED):
        core = _without_leading(meant, _NUMBERED)
        if _CODE.fullmatch("".join(core)) or core[0][:1].isdigit():
            said = _without_leading(said, _NUMBERED)
            meant = core if _CODE.fullmatch("".join(core)) else meant
    if _only_name(text, meant):
        return True
    if len(said) > len(meant) and said[-1] in _FILLERS:
        said = said[:-1]
    if len(said) > len(meant) and said[0] in _PLACES:
        said = said[1:]
    return said == meant


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


def _only_name(text: str, meant: Sequence[str]) -> bool:
    """The only name, or the only words in quotes, of a short sentence that sets it against nothing."""
    words = text.split()
    if not 2 < len(words) <= 16 or _PARTS_COMPANY & {word.strip(".,;:").lower() for word in words}:
        return False
    quoted = _QUOTED.findall(text)
    if quoted:
        return text.count('"') == 2 and tokens(quoted[0].strip(".,!")) == tuple(meant)
    if not _POINTS_AT_IT.match(text):
        return False
    names = tokens(" ".join(_CAPITALS.findall(text)))
    return bool(meant) and names == tuple(meant) and not any(word.isdigit() for word in words)


def _same_but_short(said: Sequence[str], meant: Sequence[str]) -> bool:
    return said == meant or (
        len(said) == len(meant) == 1 and unabbreviated(tuple(said)) == unabbreviated(tuple(meant))
    )


_ARTICLES_ABROAD_TEXT: Final = "el la los las l un una le les une der die das ein eine il lo gli os um uma de het een"
ARTICLES_ABROAD: Final = frozenset(_ARTICLES_ABROAD_TEXT.split())
