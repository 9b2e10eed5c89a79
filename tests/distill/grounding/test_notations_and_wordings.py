"""Arithmetic in many notations and words: each is read, whether it is right or a slip."""

# ruff: noqa: E501
# A line is a right text and the same with a slip.

import pytest

from distill.grounding.arithmetic_slips import find_slips

NOTATIONS = r"""
\( \tfrac12 \cdot 10 \cdot 8 = 40 \) cm² | \( \tfrac12 \cdot 10 \cdot 8 = 46 \) cm²
3/4 ÷ 1/2 = 3/4 × 2 = 3/2 | 3/4 ÷ 1/2 = 3/4 × 2 = 5/2
4 · 9,00 € = 36,00 € | 4 · 9,00 € = 136,00 €
Auf Deutsch: 4,5 + 2 = 6,5 Liter | Auf Deutsch: 4,5 + 2 = 7,5 Liter
Adding, ₹5,14,000 + ₹2,82,000 = ₹7,96,000. | Adding, ₹5,14,000 + ₹2,82,000 = ₹8,51,720.
899¶+ 551¶-----¶1450 | 899¶+ 551¶-----¶1350
>>> 4 ** 2 + 8 * 4¶48 | >>> 4 ** 2 + 8 * 4¶38
9e7 / 10 = 9e6 and step=1000 lr=1e-4 | 9e7 / 10 = 9e26
In binary, 6 = 0b110. | In binary, 6 = 0b101.
R = 12 Ω + 9 Ω = 21 Ω and 2 A × 6 Ω = 12 V. | R = 12 Ω + 9 Ω = 23 Ω
The magnification is 32 mm / 8 mm = 4×. | The magnification is 32 mm / 8 mm = 3×.
It differs by |40 − 34| = 6 and |2 - 5| = 3. | It differs by |40 − 34| = 0.6.
The area is πr² = π(9)² ≈ 254.5. | The area is πr² = π(9)² ≈ 244.5.
$c = \frac{m}{V} = \frac{36}{0{,}8} = 45$ g/L. | $c = \frac{m}{V} = \frac{36}{0{,}8} = 48$ g/L.
The current is 11/550 = 0.02 A = 20 mA. | The current is 11/550 = 0.05 A.
10 in × 2.54 = 25.4 cm | 10 in × 2.54 = 23.4 cm
We get $75 - 39 = 36$ — so 36. | We get $75 - 39 = 33$ — so 33.
There are 3 × 8 = 24 T-shirts. | There are 3 × 8 = 22 T-shirts.
The change is 73 − 28 = +45. | The change is 73 − 28 = +25.
| Q | Units |¶|---|---|¶| Q1 | 58 |¶| Q2 | 35 |¶| Total | 93 | | | Q | Units |¶|---|---|¶| Q1 | 58 |¶| Q2 | 35 |¶| Total | 98 |
$108 \times 7 = 756\ \text{cm}^3$ and $4\,\mathrm{m} \cdot 3 = 12\,\mathrm{m}$ | $108 \times 7 = 746\ \text{cm}^3$
Das sind 3 × 4,80 € = 14,40 € und 2 × 2,10 € = 4,20 €. | Das sind 3 × 4,80 € = 14,80 € und 2 × 2,10 € = 4,20 €.
1/2 g t² = 1/2 · 10 · 3² = 5 · 9 = 45 m | 1/2 g t² = 1/2 · 10 · 3² = 5 · 9 = 55 m
5² + 12² = 25 + 144 = 169, which is not even. | 5² + 12² = 25 + 144 = 159, which is not even.
"""
WORDINGS = """
From 1760 to 1820 it's 60 years. | From 1760 to 1820 it's 50 years.
First 64 + 47 = 111, plus another 47 gives 158. | First 64 + 47 = 101, plus another 47 gives 148.
The door doesn't count, thus 10.2 − 1.5 = 8.7. | The door doesn't count, thus 10.2 − 1.5 = 9.7.
The first guess was 8 + 6 = 15, but that isn't it. If it isn't carried, 17 + 26 = 33. | It isn't new. So 17 + 26 = 33.
Biking has 45, a third of 135, or about 33%. | Biking has 45, a third of 135, or about 43%.
In Fahrenheit it would show 24 × 1.8 + 32 = 75.2 °F. | In Fahrenheit it would show 24 × 1.8 + 32 = 57.2 °F.
The remainder is 100% - 25% - 26% = 49%. 60 / 7 = 8 with 4 left over. | The remainder is 100% - 25% - 26% = 59%.
1 − 3/5 = 2/5 of the pizza is left. | 1 − 3/5 = 4/5 of the pizza is left.
700 - 20% of 700 = 700 - 140 = 560 | 700 - 20% of 700 = 700 - 141 = 559
The peak is 60 / 15 = 4 times the lowest. | The peak is 60 / 15 = 6 times the lowest.
64 ÷ 4 = 16 per group | 64 ÷ 4 = 6 per group
48 / 10 ≈ 4.8 and 59 / 121 ≈ 0.49 | 48 / 10 ≈ 4.78
√49 = 7 and √50 ≈ 7 | √45 = 7
7 quarters, 8 dimes: 25·7 + 10·8 = 255 cents. | 7 quarters, 8 dimes: 25·7 + 10·8 = 300 cents.
8 quarters are worth $2.00. | 8 quarters are worth $1.00.
The scale reading of 2 kg = 2000 g is plausible. | The scale reading of 2 kg = 2300 g is plausible.
33 °C × 9/5 + 32 = 91.4 °F | 33 °C × 9/5 + 32 = 9.14 °F
There are 65 votes in all (36 + 29). | There are 75 votes in all (36 + 29).
The sum of 28 and 30 (28+30) comes to 58. | The sum of 28 and 30 (28+30) comes to 68.
Adding up the entries (52, 49 and 69) gives a total of 170. | Adding up the entries (52, 49 and 69) gives a total of 169.
That is a rise of 59 million over 2017 − 1996 = 21 years. | That is a rise of 59 million over 2017 − 1996 = 121 years.
62 take away 30 leaves 32. | 62 take away 30 leaves 34.
Noor used half of the 26 sheets, i.e. 13. | Noor used half of the 26 sheets, i.e. 23.
She has 11 more than 13, i.e. 24. | She has 11 more than 13, i.e. 74.
HR employs 58 people, Legal 34. HR therefore has 24 more than Legal. | HR employs 58, Legal 34. HR therefore has 42 more than Legal.
With 31 in the first week and 2 times that in the next (62), it went well. | With 31 in the first week and 2 times that in the next (55), it went well.
There are 7 pens of 5 hens, 35 hens. | There are 7 pens of 5 hens, 55 hens.
Choosing 3 out of 5 gives C(5, 3) = 10. | Choosing 3 out of 5 gives C(5, 3) = 12.
15, 30, 60, 120: each term is twice the one before. | 14, 28, 65, 130: each term is twice the one before.
The ratio 9:6 scaled by 5 is 45:30. | The ratio 9:6 scaled by 5 is 45:70.
The film starts at 9:00 and lasts 60 minutes, so it ends at 9:00 + 60 min = 10:00. | It ends at 9:00 + 60 min = 11:00.
At 79 km/h for 4 hours the train covers 79 km/h × 4 h = 316 km. | 12:55 + 0:20 = 12:15
Two dozen eggs minus 5 broken ones leaves 19 eggs. | Two dozen eggs minus 5 broken ones leaves 18 eggs.
Half a dozen plus a dozen is 18. | Half a dozen plus a dozen is 16.
From 9:40 to 11:10 is 1 hour 30 minutes. | From 9:40 to 11:10 is 1 hour 20 minutes.
5 min 40 s + 2 min 30 s = 8 min 10 s | 5 min 40 s + 2 min 30 s = 8 min 20 s
Growth from 50 to 75 is 50%. | Growth from 50 to 75 is 25%.
It rose from 40 to 50, up 25%. | It rose from 40 to 50, up 20%.
The bill is €36.00; split among 5 people each pays €7.20. | The bill is €36.00; split among 5 people each pays €7.50.
$45 split 3 ways is $15. | $45 split 3 ways is $12.
20% off $50 is $40. | 20% off $50 is $30.
10% more than 50 is 55. | 10% more than 50 is 60.
72 km/h equals 20 m/s. | 72 km/h equals 25 m/s.
100 km at 50 km/h takes 2 hours. | 100 km at 50 km/h takes 3 hours.
5 more than twice 7 is 19. | 5 more than twice 7 is 18.
"""


@pytest.mark.parametrize("line", [*NOTATIONS.strip().splitlines(), *WORDINGS.strip().splitlines()])
def test_a_notation_or_wording_is_read_whether_it_is_right_or_a_slip(line: str) -> None:
    right, slip = line.replace("¶", "\n").split(" | | " if line.startswith("|") else " | ")
    slip = f"| {slip}" if line.startswith("|") and not slip.startswith("|") else slip
    assert find_slips(right).slips == () and find_slips(slip).verdict == "slip"
