"""Personal data in what a teacher wrote, and words of a list that the user gives. Off unless the recipe asks for it.

A finding has a rare form or a checksum; a number is a phone number only where it is written as one.
With the extra `pii` python-stdnum checks national numbers and phonenumbers checks numbers with a country code.
Without it only their form counts, with as many hits and more false alarms. Names, addresses and free-form secrets are
not found; a trace without a finding may still hold personal data. Only the kinds of findings are stored.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa

from distill.artifacts.files import file_sha256
from distill.errors import RecipeError
from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.signals.base import LOCATION, NOT_APPLICABLE, OK, SignalOfEachTrace, family
from filters.signals.time_limits import TooMuch
from filters.text.words import composed, spaced, visible_text, with_marks

T = TypeVar("T")
_PART: Final = with_marks(r"[^\W_]")
_WORD: Final = re.compile(rf"{_PART}(?:['’-]{_PART})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitive(SignalOfEachTrace):
    words: str | None = field(metadata=LOCATION)
    """Path of a list of words and phrases, one a line; lines that begin with # are remarks."""
    words_sha256: str | None
    checked_by: str
    """The libraries that check national and phone numbers, with their versions."""

    name: ClassVar[str] = "sensitive"
    version: ClassVar[str] = "5"
    columns: ClassVar[pa.Schema] = family(
        "sensitive",
        sensitive=("flag", "the text holds personal data or a listed word"),
        sensitive_kinds=("text", "email, phone, card, iban, ip, national_id or word, each once, joined by +"),
        sensitive_count=(
            "count",
            "how many pieces of personal data the text holds, of the first ones that are checked",
        ),
        sensitive_words=("count", "how often words and phrases of the user's list occur"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Sensitive":
        if recipe.filter.sensitive.words is None:
            return cls(words=None, words_sha256=None, checked_by=checked_by())
        path = recipe.local(recipe.filter.sensitive.words)
        word_list(str(path))  # an unreadable list is reported now, not after an hour of measuring
        return cls(words=str(path), words_sha256=file_sha256(path), checked_by=checked_by())

    def row(self, sample: Sample, trace: Trace) -> dict[str, Any]:
        text = visible_text(trace)
        if not text.strip():
            return {"sensitive_state": NOT_APPLICABLE}
        checks = Checks()
        kinds = {kind: sum(1 for _ in find(text, checks)) for kind, find in FINDERS.items()}
        words = 0 if self.words is None else count_listed(text, word_list(self.words))
        found_kinds = [kind for kind, count in kinds.items() if count] + ["word"] * bool(words)
        if checks.left < 0 and not found_kinds:
            # A finding counts, but without one the unread part may still have a finding.
            raise TooMuch("more numbers that may be personal data than are checked")
        return {
            "sensitive_state": OK,
            "sensitive": bool(found_kinds),
            "sensitive_kinds": "+".join(found_kinds) or None,
            "sensitive_count": sum(kinds.values()),
            "sensitive_words": None if self.words is None else words,
        }


# --- personal data ----------------------------------------------------------------------------------------------

MOST_CHECKED: Final = 400
"""Candidates of a text that are checked: a longer list of accounts or addresses holds personal data anyway."""


@dataclass(slots=True)
class Checks:
    """How many candidates of a text may still be checked: checks take most of the time on a text of many."""

    left: int = MOST_CHECKED

    def of(self, candidates: Iterable[T]) -> Iterator[T]:
        """The candidates until no more may be checked."""
        for candidate in candidates:
            self.left -= 1
            if self.left < 0:
                return
            yield candidate


# Patterns begin with the first character of a finding and look back from there, which makes the search fast.
_EMAIL: Final = re.compile(r"@(?<=[A-Za-z0-9_%+-]@)((?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,8}[A-Za-z]{2,24})(?![\w@])")
_RESERVED: Final = re.compile(
    r"(?:(?:^|\.)example\.(?:com|org|net)|\.(?:example|test|invalid|localhost|local))$", re.IGNORECASE
)

_PHONE_WORDS: Final = re.compile(
    r"(?i:phone|\btel\b|telefon|telefono|teléfono|téléphone|\bcall|mobile|\bfax|whatsapp|电话|手机|電話)[^\d+]{0,25}$"
)
_PHONE_PARTS: Final = ("phone", "tel", "tél", "call", "mobile", "fax", "whatsapp", "电话", "手机", "電話")
_PLUS: Final = re.compile(r"\+(?<![\w)=+]\+)(?<![\d)=] \+)[1-9]\d{0,2}(?:[ .-]?\(?\d{1,5}\)?){2,6}(?!\d)")
_PLAIN: Final = re.compile(
    r"[(\d](?:(?<![\d.,/:-].)(?:(?<=\()\d{2,5}|(?<=\d)\d{1,4})\)?(?:[ ./-]{1,3}\d{2,8}){1,4}(?![\d.,/:%-]*\d)"
    r"|(?<=\d)(?<![\d.,].)\d{6,13}(?![\d.,]*\d))"
)
_PARENTHESES: Final = re.compile(r"\((?<!\w\()[2-9]\d\d\) ?[2-9]\d\d-\d{4}(?!\d)")

_FOUR_DIGITS: Final = re.compile(r"\d{4}")
_CARD: Final = re.compile(
    r"\d(?<![\d.,-]\d)(?:\d{12,18}|\d{3}([ -])\d{4}\1\d{4}\1\d{1,7}|(?<=3)\d{3}([ -])\d{6}\2\d{4,5})(?![\d-]|[.,]\d)"
)
_BRANDS: Final = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|(?:6011|65\d\d|64[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}|62\d{14,17}"
)

_IBAN: Final = re.compile(r"([A-Z](?<!\w.)[A-Z]\d\d)((?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?)\b")
_IBAN_LENGTHS: Final = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "BE": 16, "BG": 22, "BR": 29, "CH": 21, "CY": 28, "CZ": 24, "DE": 22,
    "DK": 18, "EE": 20, "ES": 24, "FI": 18, "FR": 27, "GB": 22, "GR": 27, "HR": 21, "HU": 28, "IE": 22, "IL": 23,
    "IS": 26, "IT": 27, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "MC": 27, "MT": 31, "NL": 18, "NO": 15, "PL": 28,
    "PT": 25, "RO": 24, "RS": 22, "SA": 24, "SE": 24, "SI": 19, "SK": 24, "TR": 26, "UA": 29,
}  # fmt: skip

_IPV4: Final = re.compile(r"(\d(?<![\w.]\d)\d{0,2})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?!\.?\w)")
_IPV6: Final = re.compile(r"[0-9A-Fa-f](?<![\w:].)[0-9A-Fa-f]{0,3}:[0-9A-Fa-f:]{3,38}(?![\w:])")
_IPV6_COLONS: Final = re.compile(r":[0-9A-Fa-f]{0,4}:")
_IPV6_LIKE: Final = re.compile(r":(?::|(?:[0-9A-Fa-f]{0,4}:){6})")
_IPV6_RUN: Final = re.compile(r"[\w:]*+")
_VERSION: Final = re.compile(r"(?i:version|release|section|chapter|figure|\bv)\W{0,3}$")

_DAY: Final = r"(?:0[1-9]|[12]\d|3[01])"
_MONTH: Final = r"(?:0[1-9]|1[0-2])"
_CHINESE: Final = re.compile(rf"[1-9](?<![\dA-Za-z].)\d{{5}}(?:19|20)\d\d{_MONTH}{_DAY}\d{{3}}[\dXx](?![\dA-Za-z])")
_BRAZILIAN: Final = re.compile(r"\d(?<![\d.]\d)\d\d\.\d{3}\.\d{3}-\d\d(?!\d)")
_SPANISH: Final = re.compile(r"\d(?<![\dA-Za-z-].)\d{7}-?[A-Z](?![\dA-Za-z])")
_SPANISH_FOREIGNER: Final = re.compile(r"[XYZ](?<![\dA-Za-z-].)\d{7}-?[A-Z](?![\dA-Za-z])")
_FRENCH: Final = re.compile(r"[12](?<!\d.) ?\d\d ?(?:0[1-9]|1[0-2]) ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d\d(?!\d)")
_ITALIAN: Final = re.compile(r"[A-Z](?<!\w.)[A-Z]{5}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]\b")
_FINNISH: Final = re.compile(rf"[0-3](?<![\dA-Za-z]\d)\d{_MONTH}\d\d[-+A-FU-Y]\d{{3}}[0-9A-FHJ-NPR-Y](?![\dA-Za-z])")
_THREE_DIGITS: Final = re.compile(r"\d{3}")
_SIX_DIGITS: Final = re.compile(r"\d{6}")
# Digits without which no number of a person is found, its pattern, and the module of python-stdnum that checks it.
_NATIONAL: Final = (
    (_SIX_DIGITS, _CHINESE, "stdnum.cn.ric"),
    (_THREE_DIGITS, _BRAZILIAN, "stdnum.br.cpf"),
    (_SIX_DIGITS, _SPANISH, "stdnum.es.dni"),
    (_SIX_DIGITS, _SPANISH_FOREIGNER, "stdnum.es.nie"),
    (_THREE_DIGITS, _FRENCH, "stdnum.fr.nir"),
    (_THREE_DIGITS, _ITALIAN, "stdnum.it.codicefiscale"),
    (_SIX_DIGITS, _FINNISH, "stdnum.fi.hetu"),
)


def emails(text: str, checks: Checks) -> Iterator[str]:
    if "@" in text:
        yield from (match[1] for match in checks.of(_EMAIL.finditer(text)) if not _RESERVED.search(match[1]))


def phones(text: str, checks: Checks) -> Iterator[str]:
    """Numbers with a country code, with an area code in parentheses, or after a word such as "phone"."""
    plus_end = -1
    for match in checks.of(_PLUS.finditer(text)) if "+" in text else ():
        if 8 <= len(_digits(match[0])) <= 15:
            plus_end = match.end()
            if _possible_phone(match[0]):
                yield match[0]
    for match in _PARENTHESES.finditer(text) if "(" in text else ():
        if not _fictional(_digits(match[0])):
            yield match[0]
    end = 0
    for match in checks.of(filter(_phone_like, _PLAIN.finditer(text))) if _says_phone(text) else ():
        before, start, end = max(end, match.start() - 40), match.start(), match.end()  # no digit stands between
        if start >= plus_end and text[start - 1 : start] != "+" and _PHONE_WORDS.search(text, before, start):
            yield match[0]


def _phone_like(match: re.Match[str]) -> bool:
    """Whether the digits are as many as in a phone number, and the number is not reserved for films."""
    digits = _digits(match[0])
    return 7 <= len(digits) <= 15 and not _fictional(digits) and _PARENTHESES.match(match[0]) is None


def _says_phone(text: str) -> bool:
    """Whether the text may have one of _PHONE_WORDS: most texts have none, and the search for numbers is slow."""
    lowered = text.lower()
    # The last three are "s" and "i" where case does not matter.
    return any(part in lowered for part in _PHONE_PARTS) or any(letter in text for letter in "ſıİ")


def _fictional(digits: str) -> bool:
    """Numbers that are set aside for films and books."""
    return len(digits) == 10 and digits[3:8] == "55501"


def cards(text: str, checks: Checks) -> Iterator[str]:
    for match in checks.of(_CARD.finditer(text)) if _FOUR_DIGITS.search(text) else ():
        digits = _digits(match[0])
        if _BRANDS.fullmatch(digits) and luhn(digits) and len(set(digits)) > 2:
            yield match[0]


def luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def ibans(text: str, checks: Checks) -> Iterator[str]:
    for match in checks.of(_IBAN.finditer(text)):
        length = _IBAN_LENGTHS.get(match[1][:2])
        joined = match[0].replace(" ", "")
        # A word in capitals may follow the number.
        if length is not None and len(joined) >= length and _remainder(joined[4:length] + joined[:4]) == 1:
            yield joined[:length]


def _remainder(account: str) -> int:
    return int("".join(str(int(letter, 36)) for letter in account)) % 97


def addresses(text: str, checks: Checks) -> Iterator[str]:
    """Public addresses of machines. Four small numbers are more often a version or a section."""
    for match in checks.of(_IPV4.finditer(text)) if text.count(".") >= 3 else ():
        parts = [int(part) for part in match.groups()]
        if max(parts) > 255 or max(parts) < 32 or any(part[0] == "0" and part != "0" for part in match.groups()):
            continue
        before = text[max(0, match.start() - 12) : match.start()]
        if _global(match[0]) and not _VERSION.search(before):
            yield match[0]
    for address in checks.of(_ipv6_addresses(text)) if text.count(":") >= 3 and _IPV6_LIKE.search(text) else ():
        if _global(address.rstrip(":")):
            yield address


def _ipv6_addresses(text: str) -> Iterator[str]:
    """What has the form of an IPv6 address: found by its first two colons, which most numbers and words lack."""
    end = 0
    while (colons := _IPV6_COLONS.search(text, end)) is not None:
        first_colon = colons.start()
        start = first_colon - _hex_digits(text[max(end, first_colon - 4) : first_colon])
        match = _IPV6.match(text, start)
        # An address has eight groups, or leaves some out.
        if match is not None and ("::" in match[0] or match[0].count(":") >= 7):
            yield match[0]
        # An address begins where no letter, digit or colon is before it.
        end = (match or _IPV6_RUN.match(text, first_colon) or colons).end()


def _hex_digits(before: str) -> int:
    """How many hexadecimal digits a text ends with."""
    return len(before) - len(before.rstrip("0123456789ABCDEFabcdef"))


def _global(text: str) -> bool:
    try:
        return ip_address(text).is_global
    except ValueError:
        return False


def national_ids(text: str, checks: Checks) -> Iterator[str]:
    """Numbers of persons in Brazil, China, Finland, France, Italy and Spain."""
    present = [digits for digits in (_THREE_DIGITS, _SIX_DIGITS) if digits.search(text)]
    for digits, pattern, module in _NATIONAL:
        if digits not in present:
            continue
        yield from (match[0] for match in checks.of(pattern.finditer(text)) if _valid(module, match[0]))


def checked_by() -> str:
    """The libraries of the extra `pii` that are installed, with their versions."""
    libraries = []
    for name in ("python-stdnum", "phonenumbers"):
        with suppress(metadata.PackageNotFoundError):
            libraries.append(f"{name} {metadata.version(name)}")
    return ", ".join(libraries)


@cache
def _library(name: str) -> Any:
    """A module of the extra `pii`; None where it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None


def _valid(module: str, number: str) -> bool:
    checker = _library(module)
    return checker is None or bool(checker.is_valid(number))


def _possible_phone(number: str) -> bool:
    library = _library("phonenumbers")
    try:
        return library is None or bool(library.is_possible_number(library.parse(number)))
    except library.NumberParseException:
        return False


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


FINDERS: Final[dict[str, Callable[[str, Checks], Iterator[str]]]] = {
    "email": emails,
    "phone": phones,
    "card": cards,
    "iban": ibans,
    "ip": addresses,
    "national_id": national_ids,
}

# --- the user's list --------------------------------------------------------------------------------------------


@cache
def word_list(path: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The phrases of a list by their first words. Raises RecipeError when it cannot be read or holds none."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"filter.sensitive.words: {path}: cannot be read as UTF-8 text: {error}") from None
    phrases_of_word: dict[str, set[tuple[str, ...]]] = {}
    for line in lines:
        phrase = tuple(_words(line)) if not line.lstrip().startswith("#") else ()
        if phrase:
            phrases_of_word.setdefault(phrase[0], set()).add(phrase)
    if not phrases_of_word:
        raise RecipeError(f"filter.sensitive.words: {path} holds no word; write one word or phrase a line")
    return {first: tuple(sorted(phrases)) for first, phrases in phrases_of_word.items()}


def count_listed(text: str, phrases: dict[str, tuple[tuple[str, ...], ...]]) -> int:
    """How often words and phrases of the list occur: as whole words, in any case."""
    words = _words(text)
    if phrases.keys().isdisjoint(words):
        return 0
    return sum(
        tuple(words[index : index + len(phrase)]) == phrase
        for index, word in enumerate(words)
        for phrase in phrases.get(word, ())
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(spaced(composed(text).casefold()).replace("’", "'"))
