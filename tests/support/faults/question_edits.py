"""Questions of many kinds, light edits of them, and questions that look like them and ask another thing.

For planted_leaks.py. Words and edits are this file's own, not the matcher's lists; words that no list of the
matcher's holds are a kind of their own ("other words").
"""

import random
import re
from collections.abc import Iterator

from worlds.chart_images import WORDS

CHART = (
    "What is the value of {a}?",
    "What is the total of all bars?",
    "What is the difference between the values of {a} and {b}?",
    "Which category has the highest value?",
    "Which category has the lowest value in {year}?",
    "How many categories have a value above {n}?",
    "What is the average value of {a}, {b} and {c}?",
    "Is the value of {a} greater than the value of {b}?",
    "In {year}, what was the value of {a}?",
    "What is the sum of the values for {a} and {b} in {year}?",
    "What is the ratio of {a} to {b}?",
    "What does the {colour} bar represent?",
    "What is the {colour} bar minus the {colour2} bar?",
    "How many bars are there in the chart?",
    "In how many years did {a} exceed {n} percent?",
    "Was {a} above {big} in {year}?",
)
PHOTO = (
    "What color is the {thing} next to the {thing2}?",
    "How many {thing}s are on the table?",
    "Is the {thing} to the left of the {thing2}?",
    "What is the {person} holding in the left hand?",
    "Where is the {thing}?",
    "Is the {person} wearing a {thing}?",
    "What is behind the {thing}?",
)
DOCUMENT = (
    "According to the table on page {n}, what was the total amount of {item} that was recorded by the {unit} "
    "department in the fiscal year that ended on {month} {day}, {year}?",
    "What is the date of the letter that was sent by {name} to the {unit} department regarding the agreement "
    "on {item}?",
    "Which of the regions listed in the second column reported the highest share of {item} between {year} "
    "and {year2}?",
    "If the {unit} department had bought {n} units of {item} at the price listed in the table, how much would it "
    "have paid in {year}?",
    "What is the name of the person who signed the contract for {item} on behalf of {name} in {month} {year}?",
)
TEXT_ONLY = (
    "A train leaves {a} at {n} km per hour and travels for {day} hours before it stops for lunch. How far has the "
    "train travelled when it stops?",
    "{name} bought {n} boxes of {item} for {day} dollars each and sold all of them for {year} dollars. How much "
    "money did {name} earn?",
    "A farmer in {a} has {n} cows and {day} goats. Every cow eats three kilos of hay a day and every goat eats two. "
    "How many kilos of hay does the farmer need for a week?",
    "What is the sum of {n} and {day} multiplied by {year}?",
    "A factory in {a} makes {big} bolts a day, and {n} percent of them go to {b}. How many bolts does "
    "{b} get in a week?",
)
SLOTS = {
    "colour": ("red", "blue", "green", "orange", "purple", "grey"),
    "thing": ("bicycle", "umbrella", "lamp", "hat", "bottle", "dog", "backpack", "chair", "mirror", "kettle"),
    "person": ("man", "woman", "boy", "girl", "player", "waiter"),
    "item": ("travel expenses", "office supplies", "salaries", "marketing", "crude oil", "insurance", "frozen fish"),
    "unit": ("sales", "legal", "research", "personnel", "shipping", "audit"),
    "name": ("Baker", "Nakamura", "Okafor", "Lindqvist", "Moreau", "Castillo"),
    "month": ("March", "June", "September", "December", "January"),
}
# What somebody who rewords a question would choose first, and words that the matcher's lists do not hold.
SYNONYMS = {
    **{
        "total": "sum",
        "sum": "total",
        "highest": "largest",
        "lowest": "smallest",
        "average": "mean",
        "price": "cost",
    },
    **{"color": "colour", "difference": "gap", "bought": "purchased", "bicycle": "bike"},
    **{
        "recorded": "noted",
        "sent": "mailed",
        "regions": "areas",
        "holding": "carrying",
        "woman": "lady",
        "hat": "cap",
    },
    **{"department": "division", "agreement": "deal", "kilos": "kilograms", "earn": "gain", "next to": "beside"},
}
OTHER_WORDS = {
    **{
        "recorded": "registered",
        "reported": "posted",
        "holding": "clutching",
        "wearing": "sporting",
        "letter": "memo",
    },
    **{
        "signed": "countersigned",
        "bought": "acquired",
        "contract": "arrangement",
        "boxes": "crates",
        "paid": "spent",
    },
    **{"represent": "signify", "farmer": "grower", "stops": "pauses", "factory": "plant", "lunch": "refreshments"},
    **{
        "categories": "entries",
        "department": "bureau",
        "regions": "provinces",
        "listed": "itemised",
        "bars": "blocks",
    },
}
PREFIXES = (
    *(
        "Please tell me: ",
        "Look at the chart. ",
        "Based on the image, ",
        "<image>\n",
        "Question: ",
        "Can you tell me, ",
    ),
    *("According to the figure shown, ", "Please look at the picture carefully. ", "Given the chart above, "),
)
SUFFIXES = (
    *(" Answer the question using a single word or phrase.", " Answer briefly.", " Please give a short answer."),
    *("\nAnswer with a number only.", " Think step by step.", "\nPlease explain your reasoning."),
)
TEMPLATES = {"chart": CHART, "photo": PHOTO, "document": DOCUMENT, "text": TEXT_ONLY}


def fill(template: str, chance: random.Random) -> str:
    values = {name: chance.choice(words) for name, words in SLOTS.items()}
    values |= dict(zip("abc", chance.sample(WORDS, 3), strict=True))
    values["thing2"] = chance.choice([word for word in SLOTS["thing"] if word != values["thing"]])
    values["colour2"] = chance.choice([word for word in SLOTS["colour"] if word != values["colour"]])
    year = chance.randint(1950, 2015)
    numbers = {
        "n": chance.randint(21, 99),
        "big": chance.randint(12, 900) * 100,
        "day": chance.randint(5, 19),
        "year": year,
        "year2": year + 5,
    }
    return template.format(**values, **numbers)


# Light edits: the question stays what it was.


def edited(text: str, chance: random.Random) -> tuple[str, str]:
    """A light edit of a question, and its name; where one has nothing to change, another is made."""
    while True:
        names = [chance.choice(tuple(EDITS))]
        if names[0] in ("case", "punctuation", "before", "after") and chance.random() < 0.5:
            names.append(chance.choice(tuple(EDITS)))
        made = text
        for name in reversed(names):
            made = EDITS[name](made, chance)
        if made != text:
            return made, names[-1] if "other words" not in names else "other words"


def _case(text: str, chance: random.Random) -> str:
    return chance.choice((text.upper, text.lower, text.title))()


def _punctuation(text: str, chance: random.Random) -> str:
    return chance.choice(
        (
            text.rstrip("?."),
            text.rstrip("?.") + " ?",
            text.replace(", ", " , ").replace(" ", "  "),
            f'"{text}"',
            text.rstrip("?.") + "...",
        )
    )


def _small_words(text: str, chance: random.Random) -> str:
    swaps = [
        ("What is", "What's"),
        ("What is", "Tell me"),
        ("What was", "What is"),
        (" the ", " "),
        (" of ", " for "),
    ]
    swaps += [
        ("In ", "During "),
        (" are there in ", " does one see in "),
        ("How many", "Count how many"),
        (" in ", " within "),
    ]
    swaps += [("What is", "Find"), ("Which", "What"), (" has the ", " shows the "), (" was ", " had been ")]
    known = [swap for swap in swaps if swap[0] in text]
    for old, new in chance.sample(known, min(len(known), chance.randint(1, 3))):
        text = text.replace(old, new, 1)
    return text


def _synonyms(text: str, chance: random.Random, table: dict[str, str] = SYNONYMS) -> str:
    known = [word for word in table if re.search(rf"\b{word}\b", text)]
    if not known:
        return text
    word = chance.choice(known)
    return re.sub(rf"\b{word}\b", table[word], text, count=1)


def _other_words(text: str, chance: random.Random) -> str:
    return _synonyms(text, chance, OTHER_WORDS)


def _look_alikes(text: str, chance: random.Random) -> str:
    kind = chance.randrange(4)
    if kind == 0:  # Cyrillic letters
        return "".join(_CYRILLIC.get(letter, letter) if chance.random() < 0.5 else letter for letter in text)
    if kind == 1:  # full width
        return "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text)
    if kind == 2:  # what cannot be seen
        return text.replace(" ", "\u00a0").replace("e", "e\u200b").replace("tt", "t\u00adt")
    return "".join(letter + "\u0301" if letter in "aeiou" and chance.random() < 0.3 else letter for letter in text)


_CYRILLIC = dict(zip("aceopxyHTBMK", "асеорхуНТВМК", strict=True))


def _number_format(text: str, chance: random.Random) -> str:
    text = re.sub(r"(\d+) percent", chance.choice((r"\1%", r"\1 %", r"\1 per cent", r"\1 percent")), text)
    text = re.sub(r"(\d+) dollars", chance.choice((r"$\1", r"\1 dollars")), text)
    separators = (",", "\u202f", "\u00a0")
    text = re.sub(r"\b(\d{1,2})(\d{3})\b(?<!\b1[89]\d\d)(?<!\b20\d\d)", rf"\1{chance.choice(separators)}\2", text)
    return re.sub(
        r"\b([5-9]|1[0-9])\b(?![,.%\u202f\u00a0])", lambda match: chance.choice((match[0], f"{match[0]}.0")), text
    )


def _misspelt(text: str, chance: random.Random) -> str:
    long = list(re.finditer(r"\b[a-z]{5,}\b", text))
    if not long:
        return text
    match = chance.choice(long)
    word, place = match[0], chance.randint(1, len(match[0]) - 2)
    spelt = chance.choice(
        (
            word[:place] + word[place + 1] + word[place] + word[place + 2 :],
            word[:place] + word[place + 1 :],
            word[:place] + word[place] + word[place:],
        )
    )
    return text[: match.start()] + spelt + text[match.end() :]


def _inflected(text: str, chance: random.Random) -> str:
    swaps = [("bars", "bar"), ("values", "value"), ("value of", "values of"), ("units", "unit"), ("wearing", "wears")]
    swaps += [
        ("travels", "travel"),
        ("recorded", "records"),
        ("boxes", "box"),
        ("hours", "hour"),
        ("signed", "signs"),
    ]
    known = [swap for swap in swaps if swap[0] in text]
    return text.replace(*chance.choice(known), 1) if known else text


def _clauses(text: str, chance: random.Random) -> str:
    first = re.fullmatch(r"(In \d+|According to [^,]+|If [^,]+), (.+)\?", text)
    if first:
        moved = first[1][0].lower() + first[1][1:]
        return f"{first[2][0].upper()}{first[2][1:]} {moved}?"
    last = re.fullmatch(r"(.+) (in \d+|in the chart|in the left hand|on the table|between \d+ and \d+)\?", text)
    if last:
        return f"{last[2][0].upper()}{last[2][1:]}, {last[1][0].lower()}{last[1][1:]}?"
    return text


EDITS = {
    "case": _case,
    "punctuation": _punctuation,
    "look-alikes": _look_alikes,
    "number format": _number_format,
    "small words": _small_words,
    "synonyms": _synonyms,
    "misspelt": _misspelt,
    "inflected": _inflected,
    "clause moved": _clauses,
    "before": lambda text, chance: chance.choice(PREFIXES) + text,
    "after": lambda text, chance: text + chance.choice(SUFFIXES),
    "other words": _other_words,
}


# Innocents: another question about the same image (or, without an image, with other numbers).


def innocents(kind: str, text: str, chance: random.Random) -> Iterator[tuple[str, str]]:
    yield fill(chance.choice(TEMPLATES[kind]), chance), "other question"
    for how in DIFFERENCES:
        made = _exchanged(text, how, chance)
        if made != text:
            yield made, f"another {how}"
    if kind in ("document", "text"):
        start = " ".join(text.split()[: chance.randint(9, 14)])
        yield (
            f"{start} {chance.choice(('was not included in the summary', 'exceeded the budget'))}?",
            "8 words shared",
        )


_OPPOSITES = (
    *(("highest", "lowest"), ("total", "average"), ("sum", "difference"), ("left", "right"), ("greater", "smaller")),
    *(("above", "below"), ("minus", "plus"), ("behind", "beside"), ("bought", "sold"), ("sum", "ratio")),
)
_NEGATIONS = (
    *((" is ", " is not "), ("Is the ", "Isn't the "), (" was ", " was not "), (" have ", " do not have ")),
    *(("of all", "of all but one of the"), (" in the", " not in the"), ("did ", "did not "), (" had ", " had not ")),
)
_SPELT_ALIKE = {
    **{
        "lamp": "lamb",
        "chair": "choir",
        "bottle": "battle",
        "player": "prayer",
        "farmer": "former",
        "train": "trail",
    },
    **{"price": "prize", "bolts": "boats", "letter": "litter", "value": "valve", "page": "pace", "goats": "gnats"},
}
DIFFERENCES = ("number", "name", "thing", "colour", "superlative or opposite", "negation", "word spelt like it")


def _exchanged(text: str, how: str, chance: random.Random) -> str:
    """The question with one thing of this kind exchanged; as it was where it holds none."""
    if how == "number":
        found = list(re.finditer(r"\b\d+\b", text))
        if not found:
            return text
        match = chance.choice(found)
        return text[: match.start()] + str(int(match[0]) + chance.randint(1, 3)) + text[match.end() :]
    if how == "word spelt like it":
        known = [word for word in _SPELT_ALIKE if re.search(rf"\b{word}\b", text)]
        return re.sub(rf"\b{known[0]}\b", _SPELT_ALIKE[known[0]], text, count=1) if known else text
    if how == "negation":
        known = [pair for pair in _NEGATIONS if pair[0] in text]
        return text.replace(*chance.choice(known), 1) if known else text
    groups: list[tuple[str, ...]] = {
        "name": [WORDS, SLOTS["name"], SLOTS["month"]],
        "thing": [SLOTS["thing"], SLOTS["person"], SLOTS["item"], SLOTS["unit"]],
        "colour": [SLOTS["colour"]],
        "superlative or opposite": [*_OPPOSITES],
    }[how]
    places = [
        (match, [other for other in group if other != word])
        for group in groups
        for word in group
        for match in re.finditer(rf"\b{re.escape(word)}(?=\b|s\b)", text)
    ]
    if not places:
        return text
    match, others = chance.choice(places)
    return text[: match.start()] + chance.choice(others) + text[match.end() :]
