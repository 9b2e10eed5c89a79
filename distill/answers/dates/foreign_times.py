"""Clock times of other languages, written the way `dates_and_times` reads: 下午3点半 becomes 3:30 pm, halb vier
3:30.

Chinese, Japanese, Korean, Russian, German, French, Spanish, Italian, Portuguese, Hindi and Arabic; changes nothing
else in a text.
"""

import re
from collections.abc import Mapping
from typing import Final

from distill.answers.numbers.foreign_number_words import foreign_numbers
from distill.answers.numbers.number_words import numerals

_HALVES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("上午", "早上", "凌晨", "清晨", "早晨", "午前", "朝"), " am"),
    **dict.fromkeys(("오전", "아침", "새벽"), " am"),
    **dict.fromkeys(("오후", "저녁", "밤"), " pm"),
    **dict.fromkeys(("下午", "晚上", "傍晚", "午後", "夜", "夕方", "中午"), " pm"),
}
_HAN: Final = "零〇一二两兩三四五六七八九十廿"
_EAST = re.compile(
    rf"(?P<half>{'|'.join(_HALVES)})?\s?(?P<hour>\d{{1,2}}|[{_HAN}]{{1,3}})\s?(?:[点點时時](?![间間])钟?|시(?!간))\s?"
    rf"(?:(?P<part>半|반|一刻|三刻)|(?P<minute>\d{{1,2}}|[{_HAN}]{{1,3}})[分분]?(?![\d{_HAN}]))?"
)
_PARTS: Final = {"半": 30, "반": 30, "一刻": 15, "三刻": 45}

_EAST_CLOCK = re.compile(rf"(?P<half>{'|'.join(_HALVES)})\s?(?P<hour>\d{{1,2}}):(?P<minute>[0-5]\d)")
_NOON_HOUR: Final = 12
_HOURS_IN_RUSSIAN_TEXT: Final = """первого второго третьего четвертого пятого шестого седьмого восьмого девятого
    десятого одиннадцатого двенадцатого"""
_HOURS_IN_RUSSIAN: Final = _HOURS_IN_RUSSIAN_TEXT.split()
_RUSSIAN = re.compile(
    r"\bбез (?P<to>четверти|(?:двадцати )?[а-я]+) (?P<hour>[а-я]+)\b"
    rf"|\b(?P<part>половина|четверть) (?P<next>{'|'.join(_HOURS_IN_RUSSIAN)}|четвёртого)\b",
    re.IGNORECASE,
)
_GERMAN = re.compile(
    r"\b(?:(?P<half>halb)|(?P<three>drei ?viertel)|(?P<to>viertel vor)|(?P<past>viertel nach)"
    r"|(?P<minutes>\w+) (?:minuten )?(?P<side>nach|vor)) (?P<hour>\w+)\b",
    re.IGNORECASE,
)
_GERMAN_HOUR = re.compile(
    r"\b(?P<hour>\d{1,2}) Uhr(?: (?P<minute>[0-5]?\d))?\b|\b(\d{1,2}:\d\d) Uhr\b", re.IGNORECASE
)
_FRENCH = re.compile(
    r"\b(?P<hour>\w+) heures?"
    r"(?: (?P<rest>et quart|et demie?|moins le quart|(?P<minus>moins )?(?P<minutes>[\w-]+)))?\b",
    re.IGNORECASE,
)
_SPANISH = re.compile(
    r"\b(?:las?|son las|le|l'|as|às)\s?(?P<hour>\w+) (?P<sign>y|menos|e|meno) "
    r"(?:un |il )?(?P<part>cuarto|media|quarto|mezz[ao]|meia|tre quarti|[\w-]+)\b",
    re.IGNORECASE,
)
_PART_MINUTES: Final = {
    **{"cuarto": 15, "quarto": 15, "media": 30, "mezza": 30, "mezzo": 30, "meia": 30, "tre quarti": 45},
    **{"et quart": 15, "et demi": 30, "et demie": 30, "moins le quart": -15},
}
_HINDI = re.compile(r"(?P<hour>(?:साढ़े |सवा |पौने )?(?:[\u0900-\u0963]+|\d+))\s?बजे")
_ARABIC = re.compile(
    r"(?:الساعة )?(?P<hour>الواحدة|الثانية|الثالثة|الرابعة|الخامسة|السادسة|السابعة|الثامنة|التاسعة|العاشرة"
    r"|الحادية عشرة|الثانية عشرة)(?: (?P<part>والنصف|والربع|إلا الربع|والثلث))?"
)
_ARABIC_HOURS_TEXT: Final = """الواحدة|الثانية|الثالثة|الرابعة|الخامسة|السادسة|السابعة|الثامنة
    التاسعة|العاشرة|الحادية عشرة|الثانية عشرة"""
_ARABIC_HOURS: Final = re.split(r"\||\n\s*", _ARABIC_HOURS_TEXT)
_ARABIC_PARTS: Final = {"والنصف": 30, "والربع": 15, "إلا الربع": -15, "والثلث": 20}
_NOON = re.compile(
    r"\b(?:midi|mediodía|mediodia|mezzogiorno|meio-dia|mittags?|中午|正午)(?:\b|(?<=[午]))", re.IGNORECASE
)
_MIDNIGHT = re.compile(r"\b(?:minuit|medianoche|mezzanotte|meia-noite|mitternacht)\b", re.IGNORECASE)
_HINT = re.compile(
    r"[点點时時시]|[上下]午|午[前後]|早上|晚上|오[전후]|\b(?:без|половина|четверть)\b|\s(?:утра|дня|вечера|ночи)\b|\b(?:halb|(?:drei)?viertel|uhr|heures?|las?|le|às|as|mid[ia]|minuit|media|mezza|mezzo|meio|mittags?)|noche|notte"
    r"|noite|nacht|\bl'|\b(?:vor|nach)\b|बजे|ال",
    re.IGNORECASE,
)
_FOREIGN_HALF = re.compile(
    r"(?<=:\d\d)\s(?:утра|ночи)\b|\s(?:du matin|de la mañana|del mattino|da manhã|morgens|vormittags)\b"
    r"|\s(?:(?P<pm>(?<=:\d\d\s)(?:дня|вечера)|du soir"
    r"|de l'après-midi|de la tarde|de la noche|della sera|del pomeriggio|da tarde|da noite"
    r"|nachmittags|abends))\b",
    re.IGNORECASE,
)


def in_figures(text: str) -> str:
    """The text with the times of other languages in figures, with am or pm where the text has it."""
    if _HINT.search(text) is None:
        return text
    if not text.isascii():
        text = _RUSSIAN.sub(_russian, _EAST_CLOCK.sub(_eastern_clock, _EAST.sub(_eastern, text)))
    for pattern, time in ((_GERMAN, _german), (_GERMAN_HOUR, _uhr), (_FRENCH, _french), (_SPANISH, _spanish)):
        text = pattern.sub(time, text)
    if not text.isascii():
        text = _ARABIC.sub(_arabic, _HINDI.sub(_hindi, text))
    text = _FOREIGN_HALF.sub(lambda half: " pm" if half["pm"] else " am", text)
    return _MIDNIGHT.sub("midnight", _NOON.sub("noon", text))


def _eastern(match: re.Match[str]) -> str:
    hour = _value(match["hour"])
    minute = _PARTS[match["part"]] if match["part"] else _value(match["minute"] or "0")
    return _written(hour, minute, match[0], _HALVES.get(match["half"] or "", ""))


def _eastern_clock(match: re.Match[str]) -> str:
    """下午2:30."""
    half = "" if int(match["hour"]) > _NOON_HOUR else _HALVES[match["half"]]
    return f"{match['hour']}:{match['minute']}{half}"


def _russian(match: re.Match[str]) -> str:
    if match["to"]:
        minutes = 15 if match["to"].lower() == "четверти" else _value(match["to"])
        return _written(_value(match["hour"]), None if minutes is None else -minutes, match[0])
    hour = _HOURS_IN_RUSSIAN.index(match["next"].lower().replace("ё", "е"))
    return _written(hour or 12, 30 if match["part"].lower() == "половина" else 15, match[0])


def _german(match: re.Match[str]) -> str:
    hour = _value(match["hour"])
    if match["half"]:
        return _written(hour, -30, match[0])
    if match["three"] or match["to"]:
        return _written(hour, -15, match[0])
    if match["past"]:
        return _written(hour, 15, match[0])
    minutes = _value(match["minutes"])
    return match[0] if minutes is None else _written(hour, minutes if match["side"] == "nach" else -minutes, match[0])


def _uhr(match: re.Match[str]) -> str:
    return match[3] or _written(int(match["hour"]), int(match["minute"] or 0), match[0])


def _french(match: re.Match[str]) -> str:
    hour, rest = _value(match["hour"]), (match["rest"] or "").lower()
    if not rest:
        return _written(hour, 0, match[0])
    if rest in _PART_MINUTES:
        return _written(hour, _PART_MINUTES[rest], match[0])
    minutes = _value(match["minutes"])
    if minutes is None:
        return _written(hour, 0, match[0]) + " " + rest
    return _written(hour, -minutes if match["minus"] else minutes, match[0])


def _spanish(match: re.Match[str]) -> str:
    part = match["part"].lower()
    minutes = _PART_MINUTES.get(part, _value(part))
    if minutes is None:
        return match[0]
    return _written(
        _value(match["hour"]), -minutes if match["sign"].lower().startswith("meno") else minutes, match[0]
    )


def _hindi(match: re.Match[str]) -> str:
    numbers = foreign_numbers(match["hour"])
    if not numbers:
        return _written(_value(match["hour"]), 0, match[0])
    return _written(0, int(numbers[0].value * 60), match[0])


def _arabic(match: re.Match[str]) -> str:
    hour = _ARABIC_HOURS.index(match["hour"]) + 1
    return _written(hour, _ARABIC_PARTS.get(match["part"] or "", 0), match[0])


def _written(hour: int | None, minute: int | None, otherwise: str, half: str = "") -> str:
    if hour is None or minute is None or not 0 <= hour <= 24 or abs(minute) >= 24 * 60:
        return otherwise
    total = hour * 60 + minute
    total += 12 * 60 if total < 0 else 0
    if half and total >= 13 * 60:
        half = ""
    return f"{total // 60}:{total % 60:02}{half}"


def _value(word: str) -> int | None:
    """A whole number in figures or words, of an hour or of minutes."""
    if word.isdecimal():
        return int(word) if len(word) <= 2 else None
    values = [value for value, *_ in numerals(word)] or [item.value for item in foreign_numbers(word)]
    if not values:
        return _SMALL.get(word.lower())
    return int(values[0]) if values[0] == int(values[0]) and len(values) == 1 else None


_SMALL: Final = {
    **dict.fromkeys(("una", "un", "une", "ein", "eins", "uma"), 1),
    **{"пяти": 5, "десяти": 10, "двадцати": 20, "двадцати пяти": 25},
    **{"due": 2, "six": 6, "dix": 10, "elf": 11, "once": 11},
}
