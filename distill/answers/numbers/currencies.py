"""Currencies by sign, code and name. A sign of several countries stands for the country that uses it most."""

from typing import Final

SYMBOLS: Final = {
    **{"$": "USD", "¢": "USD", "€": "EUR", "£": "GBP", "¥": "¥", "₹": "INR", "Rs": "INR", "Rs.": "INR", "₩": "KRW"},
    **{"₽": "RUB", "₺": "TRY", "₴": "UAH", "₪": "ILS", "₫": "VND", "₦": "NGN", "฿": "THB", "₱": "PHP", "₡": "CRC"},
    **{"R$": "BRL", "zł": "PLN", "Kč": "CZK", "₸": "KZT", "৳": "BDT", "₾": "GEL", "₲": "PYG"},
}
DOLLARS: Final = {"US$": "USD", "C$": "CAD", "A$": "AUD", "HK$": "HKD", "NZ$": "NZD", "S$": "SGD"}
_CODES: Final = """
    AED ARS AUD BDT BGN BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP GHS HKD HUF IDR ILS INR ISK JPY KES KRW KWD LKR
    MAD MXN MYR NGN NOK NZD PEN PHP PKR PLN QAR RON RUB SAR SEK SGD THB TRY TWD UAH USD VND ZAR
"""
_NAMES: Final = """
    USD:dollar|dollars|buck|bucks|दोलर|डॉलर|دولار|dólares|dólar|美元|ドル EUR:euro|euros|欧元|ユーロ|يورو GBP:sterling
    JPY:yen|円 CNY:rmb|yuan|元|块|人民币 INR:rupee|rupees|रुपये|रुपए|रुपया CHF:franken|sfr KRW:won|원 THB:baht ZAR:rand
    RUB:ruble|rubles|rouble|roubles|руб|рублей|рубля|рубль PLN:zloty|zlotys|zloties|złoty|złotych|zł TRY:lira|liras|tl
    BRL:real|reais|reals UAH:hryvnia|hryvnias ILS:nis|shekel|shekels NGN:naira VND:dong HUF:forint|forints
    CZK:koruna|korunas|kč IDR:rupiah MYR:ringgit
"""
CURRENCIES: Final = {code.lower(): code for code in _CODES.split()} | {
    name: code for code, _, names in (line.partition(":") for line in _NAMES.split()) for name in names.split("|")
}
