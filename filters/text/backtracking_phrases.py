"""Phrases by which a writer doubts or redoes the text before them, by a word that each phrase contains.

Patterns are over lower-case text with straight apostrophes. `filters.signals.families.reasoning_steps` decides where a phrase
counts.
"""

# ruff: noqa: E501
# A phrase that is split over lines is hard to read.

import re
from typing import Final

# Each phrase has a word by which it is found; `_STARTS` says which of them count only where a sentence begins.
_TURNS: Final = {
    "wait": r"wait(?: a (?:minute|moment|second|sec)\b)?(?:[,.!…—–]|-{1,2} | ?\.\.\.| (?:no|that|but|actually|i|let|maybe|is|the|it|if|there|what)\b)",
    "hold": r"hold on\b(?! to| the)",
    "actually": r"actually,? (?:no\b|wait\b|let me\b|that(?:'s| is) (?:not|wrong)\b|i (?:was|made|mis)|it(?:'s| is)\b|the\b|there\b|looking\b)"
    r"|actually,",
    "hmm": r"hmm?m?\b",
    "oops": r"oops\b",
    "no": r"no, (?:that(?:'s| is)|wait|it(?:'s| is) not|i (?:was|mis|made)|actually|scratch)\b",
    "let": r"let(?: me|'s| us) (?:just |quickly |carefully )?(?:re-?(?:check|examine|count|read|calculate|consider|think|verify|evaluate|do|assess|compute|visit)|double-?check"
    r"|triple-?check|check (?:again|that again|this again|once more)|look (?:again|more closely|closer|at (?:it|this|that|the [a-z]+) again)"
    r"|start over|try again|correct (?:that|this|myself)|go back|backtrack|count again|verify (?:again|this again|once more))\b",
    "need": r"i (?:need|have) to (?:re-?(?:check|examine|count|read|calculate|consider|think|do)|double-?check|correct|go back)\b",
    "should": r"i should (?:re-?(?:check|examine|count|read|calculate|consider|think)|double-?check)\b",
    "thought": r"on second thoughts?\b",
    "scratch": r"scratch that\b",
    "strike": r"strike that\b",
    "mistake": r"(?:i (?:made|have made|see) (?:a|my|an) |my |that was (?:a|my) )mistake\b",
    "error": r"i (?:made|have made) an error\b",
    "misread": r"i(?: have|'ve)? misread\b",
    "miscounted": r"i(?: have|'ve)? miscounted\b",
    "wrong": r"(?:i was|that(?:'s| is| was)|this is|that can't be|must be|i got (?:that|it)) wrong\b(?! (?:bar|one|column|row|side))",
    "right": r"th(?:at|is)(?: can't be| cannot be|(?:'s| is) not| doesn't (?:look|seem)| isn't) (?:quite )?right\b(?! (?:of|next|before|after|side))",
    "correction": r"correction:",
    "moment": r"moment(?: mal)?[,.!…—–]",
    "warte": r"warte(?: mal)?[,.!…—–]",
    "attends": r"attend(?:s|ez)[,.!…—–]",
    "espera": r"esper[ae][,.!…—–]",
    "aspetta": r"aspetta[,.!…—–]",
    "wacht": r"wacht(?: even)?[,.!…—–]",
    "подожди": r"подожди(?:те)?[,.!…—–]",
    "погоди": r"погоди(?:те)?[,.!…—–]",
    "стоп": r"стоп[,.!…—–]",
    "noch": r"noch (?:ein)?mal (?:nach(?:rechnen|zählen|prüfen|sehen)|überprüfen|prüfen|genauer)",
    "vérifions": r"vérifions (?:à nouveau|encore)",
    "realidad": r"en realidad,",
    "na": r"na verdade,",
    "realtà": r"in realtà,",
    "fait": r"en fait,",
}  # fmt: skip
_BEGINNERS: Final = """
    wait actually hmm oops no moment warte attends espera aspetta wacht подожди погоди стоп realidad na realtà fait
"""
_STARTS: Final = frozenset(_BEGINNERS.split())
OTHER_WRITING: Final = re.compile(
    "等等[，,。！!…]|等一下|等会儿|不对[，,。！!]|(?:让我|我)?再(?:检查|确认|看|数|算|核对)一(?:下|遍|次)|重新(?:检查|计算|数|审视|看)"
    "|待って|もう一度(?:確認|数え|見)|いや、|잠깐[,.]|다시 (?:확인|세어|계산)|아니[,.] "
)
# Words that a text with the phrase must contain, where the key itself may be absent.
_ALSO: Final = {
    "hm": "hmm", "hmmm": "hmm", "let's": "let", "have": "need", "thoughts": "thought", "espere": "espera",
    "attendez": "attends", "wait…": "wait", "no—": "no", "подождите": "подожди",
}  # fmt: skip

PATTERNS: Final = {word: (re.compile(pattern), word in _STARTS) for word, pattern in _TURNS.items()}
"""The phrases by their words, and whether they count only where a sentence begins."""
CLUES: Final = {clue.encode(): word for clue, word in [*zip(_TURNS, _TURNS, strict=True), *_ALSO.items()]}
"""The words that make a phrase worth a search: a text without any of them holds no phrase."""
_RIGHT: Final = r"right(?:(?<=t right)|(?<=be right)|(?<=(?:look|seem) right)|(?<=quite right))"
NEEDED: Final = {"right": re.compile(_RIGHT)}
"""What a text must also hold, where the phrase's own word is common and the search for the phrase is slow."""
