"""Currencies by sign, code and name. A sign of several countries means the currency of the country that uses it
most."""

import re
from typing import Final

from distill.word_tables import read_table

_TABLE: Final = read_table(__file__)
SYMBOLS: Final = {
    **{"$": "USD", "¢": "USD", "€": "EUR", "£": "GBP", "¥": "¥", "₹": "INR", "Rs": "INR", "Rs.": "INR", "₩": "KRW"},
    **{"₽": "RUB", "₺": "TRY", "₴": "UAH", "₪": "ILS", "₫": "VND", "₦": "NGN", "฿": "THB", "₱": "PHP", "₡": "CRC"},
    **{"R$": "BRL", "zł": "PLN", "Kč": "CZK", "₸": "KZT", "৳": "BDT", "₾": "GEL", "₲": "PYG", "RM": "MYR"},
    **{"Rp": "IDR", "Rp.": "IDR", "kr": "kr", "kr.": "kr"},
}
DOLLARS: Final = {
    **{"US$": "USD", "C$": "CAD", "A$": "AUD", "HK$": "HKD", "NZ$": "NZD", "S$": "SGD", "NT$": "TWD"},
    **{"R": "ZAR", "P": "PHP"},
}
"""Signs that stand before a number only."""
SHARED: Final = {"¥": {"JPY", "CNY"}, "kr": {"SEK", "NOK", "DKK", "ISK"}}
"""Signs of several currencies, none of which is the usual one."""
NO_MILLS: Final = frozenset({"EUR", "IDR", "VND", "BRL", "ARS", "CLP", "COP", "TRY", "DKK"})
"""Currencies whose languages group digits with a point."""
_WORDS: Final = frozenset({"PEN", "COP", "MAD", "RON"})
"""Codes that are words on a page in capitals."""
_SIGNS: Final = sorted({*SYMBOLS, *DOLLARS} - {"R", "P", "¢"} | {*_TABLE["codes"].split()} - _WORDS, key=len)
SIGN_BEFORE: Final = "|".join((*map(re.escape, reversed(_SIGNS)), r"[RP](?=\s?\d[\d,]*\.\d\d(?!\d))"))
"""What may stand before an amount. One letter is a sign of money before a number with two decimals only."""
CURRENCIES: Final = {code.lower(): code for code in _TABLE["codes"].split()} | {
    name: code for code, names in _TABLE["names"].items() for name in names.split()
}
NATIONAL: Final[dict[str, str]] = _TABLE["national"]
"""Names with that of the country: swiss franc."""
