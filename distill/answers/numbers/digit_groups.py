"""The possible values of digits with points and commas: 1,500 and 1.500 and 0,75."""

import re
from decimal import Decimal

_ENGLISH_GROUPS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?")
_POINT_GROUPS = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")


def readings_of_digits(digits: str) -> tuple[tuple[Decimal, ...], bool, int]:
    """The possible values of digits with points and commas, the likeliest first; whether this value is certain; its
    decimal places."""
    written, digits = digits, digits.replace(" ", "").replace("'", "").replace("_", "")
    if digits.isdigit():
        return (Decimal(digits),), True, 0
    commas, points = digits.count(","), digits.count(".")
    last = len(digits) - max(digits.rfind(","), digits.rfind(".")) - 1
    if digits != written:  # in 1 234,5 the comma can group nothing
        return (Decimal(digits.replace(",", ".")),), True, last
    if not commas and points == 1:
        value = Decimal(digits)
        european = _POINT_GROUPS.fullmatch(digits) and not digits.startswith("0")
        return ((value, Decimal(digits.replace(".", ""))) if european else (value,)), True, last
    if _ENGLISH_GROUPS.fullmatch(digits):
        value = Decimal(digits.replace(",", ""))
        if commas == 1 and not points:
            return (value, Decimal(digits.replace(",", "."))), True, 0
        return (value,), True, last if points else 0
    if _POINT_GROUPS.fullmatch(digits):
        return (Decimal(digits.replace(".", "").replace(",", ".")),), True, last if commas else 0
    if commas == 1 and not points:
        if last == 3 and digits.startswith("0,"):
            return (Decimal(digits.replace(",", ".")),), True, last  # no group begins with a zero
        # In 0,75 and 1234,56 the comma can group nothing.
        certain = last in (1, 2) or (last != 3 and (len(digits) - last > 4 or digits.startswith("0")))
        return (Decimal(digits.replace(",", ".")), Decimal(digits.replace(",", ""))), certain, last
    return (Decimal(digits.replace(",", "")),), False, 0
