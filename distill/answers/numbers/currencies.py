"""Currencies by sign, code and name. A sign of several countries stands for the country that uses it most."""

from typing import Final

from distill.answers.tables import read_table

_TABLE: Final = read_table(__file__)
SYMBOLS: Final = {
    **{"$": "USD", "¢": "USD", "€": "EUR", "£": "GBP", "¥": "¥", "₹": "INR", "Rs": "INR", "Rs.": "INR", "₩": "KRW"},
    **{"₽": "RUB", "₺": "TRY", "₴": "UAH", "₪": "ILS", "₫": "VND", "₦": "NGN", "฿": "THB", "₱": "PHP", "₡": "CRC"},
    **{"R$": "BRL", "zł": "PLN", "Kč": "CZK", "₸": "KZT", "৳": "BDT", "₾": "GEL", "₲": "PYG"},
}
DOLLARS: Final = {"US$": "USD", "C$": "CAD", "A$": "AUD", "HK$": "HKD", "NZ$": "NZD", "S$": "SGD"}
CURRENCIES: Final = {code.lower(): code for code in _TABLE["codes"].split()} | {
    name: code for code, names in _TABLE["names"].items() for name in names.split()
}
NATIONAL: Final[dict[str, str]] = _TABLE["national"]
"""Names with that of the country: swiss franc."""
