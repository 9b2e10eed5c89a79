"""The part of one sentence that states its answer: Lufthansa of "The airline is Lufthansa, as written on the tail".

Only the form of the sentence is read. The part is at the end, after a verb that states or names.
There is none if the words around it deny it, doubt it or contrast it with something else, or if the sentence makes
a second statement.
"""

import re
from collections.abc import Iterator
from typing import Final

from distill.answers.words.place_names import is_region
from distill.answers.words.word_classes import SET_AGAINST, affirms

_LONGEST: Final = 300
_BE: Final = r"(?:is|are|was|were|has been|have been|will be)"
_NAMING: Final = (
    r"(?:called|named|titled|entitled|dated|labell?ed|marked|known as|listed as|spelled|numbered|priced at|shown as"
    r"|identified as|owned by|signed by|written by|made by|published by|issued by|produced by|sold by|sponsored by"
    r"|manufactured by|designed by|directed by|prepared by|approved by|brewed by|operated by)"
)
_TOWARDS: Final = (
    r"(?:(?:sent|awarded|granted|addressed|directed|mailed|faxed|written|going|heading|headed|traveling|travelling|pointing|copied"
    r"|assigned|submitted|delivered|shipped) to|bound for|headed for|heading for"
    r"|(?:shown|drawn|colou?red|plotted|marked|depicted|represented|located|held|situated|based|published|printed|written|taken|made|produced|manufactured|brewed|born|taking"
    r" place|parked|standing|sitting|lying|playing) (?:in|at|on|by))"
)
_DOING: Final = (
    r"(?:(?!(?:not|looking|missing|lacking|avoiding|being|having|coming|leaving|going|trying)\b)[a-z]{2,12}ing)"
)
_STATES: Final = (
    r"(?:reads?|says?|states?|displays?|shows?|spells?|advertises?|belongs? to|goes to|starts? at|begins? at|ends? at"
    r"|opens? at|closes? at|leaves? at|arrives? at|departs? at|takes? place (?:on|in|at)"
    r"|(?:looks|seems|appears)(?: to be)?)(?!\s(?:is|are|was|were)\b)"
)
_ENGLISH = re.compile(
    rf"(?:(?<=\s){_BE}|(?<=\bit)'s|(?<=\bthat)'s)\s(?:(?P<towards>{_TOWARDS}\s)|{_NAMING}\s|{_DOING}\s)?|(?<=\s){_STATES}\s",
    re.IGNORECASE,
)
_FOREIGN = re.compile(
    r"(?:^se llama|^si chiama|^il s'appelle|^elle s'appelle"
    r"|(?<=\s)(?:ist|sind|war|waren|lautet|heißt|est|sont|était|étaient|s'appelle"
    r"|es|son|era|eran|fue|está|se llama"
    r"|è|sono|erano|si chiama|é|são|eram|foi|chama-se|zijn|heet|luidt|is|indique|indica|dice|va à"
    r"|va a|fährt nach))\s(?:de\s|d')?"
    r"(?:(?:intitulée?|titulad[oa]|intitolat[oa]|betitelt|getiteld)\s)?",
    re.IGNORECASE,
)
_ENGLISH_WORDS = re.compile(r"\b(?:the|of|his|her|their|its|it|this|that|are|was|were|an|and|with)\b", re.IGNORECASE)
_CHINESE = re.compile(r"[^是为不没非或，,。？?]{1,40}(?:名)?(?:是|为)(?P<rest>[^是为，,。]{1,60})。?")
_JAPANESE = re.compile(r"[^は、。？?]{1,40}は、?(?P<rest>[^は、。]{1,60}?)(?:です|でした|だ)?。?")
_KOREAN = re.compile(
    r"[^,.]{0,40}?[은는이가]\s(?P<rest>[^,.]{1,40}?)\s?(?:입니다|이에요|예요|이다|였습니다|이었습니다)\.?"
)
_QUOTED = re.compile(
    r"\"(?P<double>[^\"]{1,80})\"|[「『](?P<corner>[^「」『』]{1,80})[」』]|«\s?(?P<angle>[^«»]{1,80}?)\s?»"
)
_QUOTES = re.compile(
    r"\b(?:says?|said|reads?|answer(?:s|ed)?|label(?:s|led|ed)?|call(?:s|ed)|titled|named|shows?|written|states?"
    r"|represents?|words?|text|sign|menciona|dice|dit|indique|steht|lautet)\b[^\"«]{0,20}[\"«]"
    r"|[」』\"»]\s?(?:と(?:書|表示|記)|(?:이?라고|라는)\s)|(?:写着|写的是|显示)[^\"]{0,6}\"",
    re.IGNORECASE,
)
_HINDI = re.compile(
    r"(?:[^\s।,]{1,30}|[^।,]{0,60}\s?(?:रंग|नाम|उत्तर|यह|वह))\s(?P<rest>[^\s।,]{1,40}(?:\sरंग(?:\s(?:का|की|के))?)?)\s(?:है|हैं|था|थी|थे)।?"
)
_ARABIC = re.compile(r"(?P<before>(?:[^\s،.]+\s){0,2}ال[^\s،.]+)\s(?P<rest>(?!ال)[^\s،.]+)\.?")
_ASIDE_TEXT: Final = (
    r"(?:as|which is|which was) (?:is |was )?(?:clearly |also )?(?:written|shown|seen|indicated|stated|printed"
    r"|label?led|labelled|listed|displayed|noted|marked|evidenced|mentioned|given|visible|depicted)\b[^,;.]*"
    r"|(?:according to|based on|judging by|judging from) [^,;.]*"
    r"|(?:with|at|mit|avec|con|com) (?:only |just |about |an? (?:share|value|total) of )?[$€£]?\d[\d.,]*"
    r"(?:\s?%)?(?:\s\w+)?"
)
_ASIDE = re.compile(
    rf",? (?:{_ASIDE_TEXT})$"
    r"|,? (?:in|on|at) (?:the|this) (?:top of the |bottom of the |front of the |side of the )?"
    r"(?:image|picture|photo|photograph|chart|graph|figure|document|sign|page|table|map|diagram|form|letter|label)$",
    re.IGNORECASE,
)
LED_IN = re.compile(
    r"(?:(?:according to|based on|looking at|judging by|judging from|from|in|on) [^,;:.]{1,60}|as (?:shown|seen"
    r"|indicated|stated) [^,;:.]{1,60}|here|overall), ",
    re.IGNORECASE,
)
_BREAK = re.compile(r"[;!?\n()]|:(?=\s)|(?<!\b[A-Z])(?<!\b[A-Z][a-z])(?<!\b[A-Z][a-z]{2})\.(?=\s)")
_QUOTE_MARKS: Final = "\"'“”„‟‘’«»「」『』*_ "
_WORD = re.compile(r"[\u0900-\u0963\u0970-\u097f]+|[^\W_]+(?:['’-][^\W_]+)*")
_NAME_INSIDE = re.compile(r"(?<=[\w,] )[A-Z]")


def stated_parts(text: str) -> tuple[str, ...]:
    """The parts of a sentence that may be its whole answer: "Lufthansa" of "It says Lufthansa".

    Empty if the words around them deny or doubt them.
    """
    if not 6 <= len(text) <= _LONGEST or "\n" in text:
        return ()
    return tuple(
        dict.fromkeys(part for candidate in _parts(text) if (part := candidate.strip(_QUOTE_MARKS).rstrip(".。")))
    )


def _parts(text: str) -> Iterator[str]:
    if not text.isascii():
        for pattern in (_CHINESE, _JAPANESE, _KOREAN):
            if (match := pattern.fullmatch(text)) is not None:
                yield match["rest"]
        for pattern in (_HINDI, _ARABIC):
            if (match := pattern.fullmatch(text)) is not None and not SET_AGAINST & set(text.rstrip(".।").split()):
                yield match["rest"]
    if (quoted := _quoted(text)) is not None:
        yield quoted
    if (head := _head(text)) is not None:
        yield head
        yield from _parts(head)
    text = LED_IN.sub("", text, count=1) if LED_IN.match(text) else text
    for sentence in dict.fromkeys((text, without_remark(text))):
        verbs = list(_ENGLISH.finditer(sentence))
        if verbs:
            yield from _parts_after_verb(sentence, verbs[0])
            continue
        foreign_verb = _FOREIGN.search(sentence)
        if foreign_verb is not None and not _ENGLISH_WORDS.search(sentence[: foreign_verb.start()]):
            yield from _parts_after_verb(sentence, foreign_verb)


def without_remark(sentence: str) -> str:
    """A sentence without a source or a share at its end: "Spain" of "Spain, with 42 %"."""
    short = _ASIDE.sub("", sentence)
    return short if affirms(sentence[len(short) :].replace("only", "")) else sentence


_QUOTE_SIGNS: Final = frozenset('"“”「」『』«»')
_ASKS: Final = frozenset({"who", "which", "what", "also", "and"})


def _quoted(text: str) -> str | None:
    """The only words in quotes of a sentence that says what is written or answered."""
    matches = list(_QUOTED.finditer(text)) if _QUOTES.search(text) else []
    if len(matches) != 1:
        return None
    match = matches[0]
    around = text[: match.start()] + " " + text[match.end() :]
    said = {word.casefold() for word in _WORD.findall(around)}
    is_plain = not (SET_AGAINST - _ASKS) & said and "n't" not in around and not set(around) & _QUOTE_SIGNS
    return next(group for group in match.groups() if group) if is_plain else None


_ADDED = (
    re.compile(
        r"(?P<head>[^,;:.!?()]{1,80}?),? (?:because|since|as (?:the|it|they|shown|seen|indicated|stated|written)\b"
        r"|which (?:is|was|are|were|has|have|had)\b|with (?:about |a |the )?(?:\w+ of )?[$€£]?\d\S*"
        r"|according to) (?P<added>[^;!?]+)"
        r"|(?P<titled>[A-Z][\w':-]*(?: [\w':-]+){1,12}) by (?P<author>[A-Z][\w.'-]*(?: [A-Z][\w.'-]*){0,4})"
        r"|(?P<member>(?:[^,;:!?]{1,60}?\s)?(?:(?:Dr|Mr|Mrs|Ms|Prof)\.? (?:[A-Z][\w.'-]*\s){1,4}of"
        r"|(?:[A-Z][\w.'-]*\s){2,4}(?:from|at))) (?:the )?[A-Z][\w&.'-]*(?: (?:of|and|the|for|[A-Z&][\w.'-]*)){0,5}"
        r"|(?P<person>[^,;:!?]{3,80}), (?:the )?(?P<role>(?:[\w-]+ )?(?:Director|President|Manager|CEO|CFO|Chairman"
        r"|Chair|Professor"
        r"|Secretary|Treasurer|Chief|Head|Attorney|Counsel|Editor|Author|Officer|Supervisor|Coordinator|Scientist|Engineer)\b[^,;]*)"
    ),
)
_LABELLED = re.compile(r"[A-Z][a-z]{2,20}(?: [a-z]{2,20}){0,2}: (?P<rest>[^:;]{2,80})")
_IN_A_REGION = re.compile(r"(?P<head>[^\d,;:!?]{2,60}), (?P<region>[A-Z][\w. ]{1,30})")
_TAKEN_BACK_TEXT: Final = (
    "but however instead though although or maybe perhaps might may rather actually should wait no"
)
_TAKEN_BACK: Final = frozenset(_TAKEN_BACK_TEXT.split())


def _head(text: str) -> str | None:
    """The answer before a reason, a remark, an author, an office or a state: "Ann Lee" of "Ann Lee, Director"."""
    labelled = _LABELLED.fullmatch(text)
    if labelled is not None and affirms(text):
        return labelled["rest"]
    region = _IN_A_REGION.fullmatch(text)
    if region is not None and is_region(region["region"]):
        return region["head"]
    for pattern in _ADDED:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        head = next(match[name] for name in ("head", "titled", "member", "person") if match[name])
        head = head.rpartition(" ")[0] if match["member"] else head
        added = text[len(head) :].casefold()
        if affirms(head) and not _TAKEN_BACK & set(_WORD.findall(added)):
            return head
    return None


def _parts_after_verb(sentence: str, verb: re.Match[str]) -> Iterator[str]:
    before, part = sentence[: verb.start()], sentence[verb.end() :]
    if not part or not _states_one_thing(before, part):
        return
    towards = verb.groupdict().get("towards")
    if towards and _NAME_INSIDE.search(before):
        return  # a second name: The letter of Mr. Hale is addressed to Ms. Ito
    yield part


def _states_one_thing(before: str, part: str) -> bool:
    if _BREAK.search(before) or len(before.split()) > 16 or not affirms(before):
        return False
    return not (any(sign.isdigit() for sign in part) and any(sign.isdigit() for sign in before))
