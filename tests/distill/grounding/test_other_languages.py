"""Calculations in other languages are read by the rules for English, and multiples in words."""

import pytest

from distill.grounding.arithmetic.other_languages import in_english
from distill.grounding.arithmetic_slips import find_slips

# A line is a text, the right result, and a wrong one.
CALCULATIONS = """
Von den 48 Plätzen sind 22 besetzt, also bleiben {} frei. | 26 | 36
Die Linie steigt von 37 auf 52, ein Anstieg von {}. | 15 | 25
Der Zug fährt um 9:20 Uhr ab und kommt um 10:05 Uhr an, das sind {} Minuten. | 45 | 55
Auf dem Bild sind die Tische. Sieben Tische mit je sechs Gästen ergeben {} Gäste. | 42 | 48
Das Maximum ist 91, das Minimum im Februar 54. Zieht man 54 von 91 ab, bleiben {}. | 37 | 47
Le bus et le train : 91 moins 54 font {}. | 37 | 47
La courbe passe de 37 à 52, soit une hausse de {}. | 15 | 25
La moitié des 48 places est prise, il reste donc {} places. | 24 | 26
Le film dure 1 h 30 et commence à 20 h 15, donc il finit à {}. | 21 h 45 | 21 h 55
En el dibujo hay 12 rojas y 15 azules, en total {} pelotas. | 27 | 29
La diferencia entre los 91 y los 54 es de {}. | 37 | 47
El total en la lista es 152. Si a 152 le quitamos 65, quedan {}. | 87 | 97
El tren sale a las 9:20 y el viaje dura 45 minutos, así que llega a las {}. | 10:05 | 10:15
图中苹果有12个，梨有15个，一共有{}个。 | 27 | 29
从图中可以看出，91减去54等于{}。 | 37 | 47
चित्र में 12 लाल और 15 नीली गेंदें हैं, यानी कुल {} गेंदें। | 27 | 29
Football leads with {} votes, three times as many as the 21 votes for tennis. | 63 | 44
The film runs for {} minutes, which is one hour and 40 minutes. | 100 | 110
Three nights at $125 come to ${}. | 375 | 365
Orlo went from 37 to 52, a plus of {}. | 15 | 25
La France a 89,4 millions de lits et l'Italie 62,1 millions. La différence est de {} millions. | 27,3 | 26,3
Auf dem Bon (Nr. 47, 12.03.2021) sind Nüsse für 2,80 € und Tee für 1,15 €. Das macht zusammen {} €. | 3,95 | 4,05
Das ist die Zeit. v = s : t = 240 m : 15 s = {} m/s | 16 | 18
Die Zinsen sind 1,2 %, die Laufzeit ist 1 Jahr. 2.500 € · 0,012 = {} €. | 30 | 40
"""


@pytest.mark.parametrize("line", CALCULATIONS.strip().splitlines())
def test_a_calculation_in_another_language_or_in_other_words_is_checked(line: str) -> None:
    text, right, wrong = line.rsplit(" | ", 2)
    assert find_slips(text.replace("{}", right)).slips == ()
    assert find_slips(text.replace("{}", wrong)).verdict == "slip"


@pytest.mark.parametrize(
    "text",
    [
        "Am Tisch stehen auf jeder Seite vier Stühle, also acht, und an den Enden je einer, das ergibt zehn.",
        "From left to right they are 71, 39, 55, 48. Sorted by height they are 71, 55, 48 and 39.",
        "The bars are 71, 55, 48 and 39. The third bar counted from the lowest is 55.",
        "Football leads with 64 votes, more than three times as many as the 21 votes for tennis.",
        "El libro tiene 12 cuentos y 15 poemas. En la segunda parte hay 30 dibujos.",
    ],
)
def test_what_claims_no_wrong_result_in_any_language_is_no_slip(text: str) -> None:
    assert find_slips(text).slips == ()


def test_an_english_text_and_a_very_long_one_stay_as_they_are() -> None:
    text = "the man in the film ist not here, 5 also."
    assert in_english(text, frozenset({"ist"})) == text
    long = "der hund und die katze sind 5. " * 1000
    assert in_english(long, frozenset({"der", "und", "sind"})) == long


AXIS = "L'axe vertical commence à 50 000, ce qui exagère la distance entre les deux courbes.\n"


@pytest.mark.parametrize(
    ("text", "slips"),
    [
        (f"{AXIS}La différence de population est donc de 17 400 habitants.", 0),
        ("La différence de population entre les deux villes, 86 200 et 68 800, est de 17 400 habitants.", 0),
        ("La différence de population entre les deux villes, 86 200 et 68 800, est de 18 400 habitants.", 1),
        (
            "The vertical axis begins at 50,000, which exaggerates the distance between the two curves. "
            "The difference in population is therefore 17,400.",
            0,
        ),
        ("The first has 60,000 people. The second has 50,000. The difference is therefore 17,400.", 1),
        ("El total de las dos ciudades es 1 250 000 más 250 000, es decir 1 500 000.", 0),
    ],
)
def test_thousands_that_stand_apart_are_one_number_and_a_count_of_things_is_no_operand(text: str, slips: int) -> None:
    assert len(find_slips(text).slips) == slips
