"""Currencies by sign, code and name. A sign of several countries stands for the country that uses it most."""

from typing import Final

SYMBOLS: Final = {
    **{"₽": "RUB", "₺": "TRY", "₴": "UAH", "₪": "ILS", "₫": "VND", "₦": "NGN", "฿": "THB", "₱": "PHP", "₡": "CRC"},
    **{"R$": "BRL", "zł": "PLN", "Kč": "CZK", "₸": "KZT", "৳": "BDT", "₾": "GEL", "₲": "PYG"},
    "$": "USD",
    "€": "EUR",
    "£": "GBP",
    "¥": "¥",
    "₹": "INR",
    "₩": "KRW",
    "¢": "USD",
    "Rs": "INR",
    "Rs.": "INR",
}
DOLLARS: Final = {"US$": "USD", "C$": "CAD", "A$": "AUD", "HK$": "HKD", "NZ$": "NZD", "S$": "SGD"}
CURRENCIES: Final = {
    **dict.fromkeys(("usd", "dollar", "dollars", "buck", "bucks"), "USD"),
    **dict.fromkeys(("eur", "euro", "euros", "欧元", "ユーロ"), "EUR"),
    **dict.fromkeys(("gbp", "sterling"), "GBP"),
    **dict.fromkeys(("jpy", "yen", "円"), "JPY"),
    **dict.fromkeys(("cny", "rmb", "yuan", "元", "块", "人民币"), "CNY"),
    **dict.fromkeys(("pln", "zloty", "zlotys", "złoty", "złotych", "zł", "zloties"), "PLN"),
    **dict.fromkeys(("chf", "franken", "sfr"), "CHF"),
    **dict.fromkeys(("rub", "ruble", "rubles", "rouble", "roubles", "руб", "рублей", "рубля", "рубль"), "RUB"),
    **dict.fromkeys(("try", "lira", "liras", "tl"), "TRY"),
    **dict.fromkeys(("brl", "real", "reais", "reals"), "BRL"),
    **dict.fromkeys(("krw", "won", "원"), "KRW"),
    **dict.fromkeys(("thb", "baht"), "THB"),
    **dict.fromkeys(("zar", "rand"), "ZAR"),
    **dict.fromkeys(("uah", "hryvnia", "hryvnias"), "UAH"),
    **dict.fromkeys(("ils", "nis", "shekel", "shekels"), "ILS"),
    **dict.fromkeys(("ngn", "naira"), "NGN"),
    **dict.fromkeys(("vnd", "dong"), "VND"),
    **dict.fromkeys(("huf", "forint", "forints"), "HUF"),
    **dict.fromkeys(("czk", "koruna", "korunas", "kč"), "CZK"),
    **dict.fromkeys(("idr", "rupiah"), "IDR"),
    **dict.fromkeys(("myr", "ringgit"), "MYR"),
    **{
        code.lower(): code
        for code in ("MXN", "SEK", "NOK", "DKK", "ISK", "RON", "BGN", "AED", "SAR", "EGP", "TWD", "PHP")
    },
    **{
        code.lower(): code
        for code in ("ARS", "CLP", "COP", "PEN", "KWD", "QAR", "PKR", "BDT", "LKR", "KES", "GHS", "MAD")
    },
    **dict.fromkeys(("रुपये", "रुपए", "रुपया"), "INR"),
    **dict.fromkeys(("يورو",), "EUR"),
    **dict.fromkeys(("दोलर", "डॉलर", "دولار", "dólares", "dólar", "美元", "ドル"), "USD"),
    **dict.fromkeys(("inr", "rupee", "rupees"), "INR"),
    **{code.lower(): code for code in ("CAD", "AUD", "CHF", "KRW", "NZD", "HKD", "SGD")},
}
