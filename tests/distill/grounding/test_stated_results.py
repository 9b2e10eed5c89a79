"""Results that sentences draw from their numbers in words: right ones are no slip, wrong ones are."""

import re

import pytest

from distill.grounding.arithmetic.results.derivations import results_of
from distill.grounding.arithmetic_slips import find_slips

# Each line: a right sentence, and behind the bar the wrong result in place of its last number.
PAIRS = """
There are 4 red, 5 blue and 3 green marbles, so there are 12 marbles in total. | 13
There are 4 red, 5 blue and 3 green marbles. So the total is 12. | 15
The shop sold 20 hats on Monday and 34 on Tuesday, for a total of 54. | 55
The two stages measure 16 m and 18 m, so the path is 34 m long. | 36
The subtotal is $18.60 and the tax is $1.49, so the total is $20.09. | $20.19
The bus has 52 seats; 38 are taken, so 14 are free. | 24
There are 22 cups. 6 of them are full, so 16 are empty. | 26
She had $26 and spent $24. That leaves her with $2. | $4
The tall bar is at 30 and the short one at 12, a difference of 18. | 16
In 2008 there were 520 visitors and in 2018 there were 650, an increase of 130. | 120
The temperature fell from 37 °C to -5 °C, so it dropped by 42 degrees. | 46
The approval fell from 54% to 38%, that is by 16 percentage points. | 18
Germany has 83.2 million and France 67.4 million, so Germany has 15.8 million more. | 16.8 million
4 people share 2.6 kg, so everyone gets 0.65 kg. | 0.55
They scored 22, 18 and 53 points, 31 points on average. | 33
Adding the 36 adults and the 29 children, we get 65 people. | 67
He pays $25 with a $40 bill and gets $15 back. | $18
7 + 34 = 41. Doubling that gives 82. | 83
First add 45 + 38 = 83, then subtract 19 to get 64. | 66
Twice 17 is 34, and three less than that is 31. | 32
There were 9 in the back + 6 in the front = 15 people. | 16
10% of 340 is 34, so 5% is 17 and 15% is 51. | 49
Out of 1,200 voters, 35% is 420 voters. | 480
A 35% tip on a $140 bill is $49. | $52
With a 30% discount the $380 jacket costs $266. | $269
The van uses 9 L per 100 km; for 250 km it takes 22.5 L. | 20.5
One crate has 35 bottles, so 3 crates have 105 bottles. | 110
It costs 3 for $4, so 12 cost $16. | $15
35 weeks at 40 euros a week is 1400 euros. | 1390
A 286 km trip at 26 km/h takes 11 hours. | 13
The poster measures 12 x 18 inches, so its area is 216 square inches. | 206
A square with side 1.5 m has a perimeter of 6 m. | 5
The box is 17 x 34 x 36 cm, so its volume is 20808 cm³. | 20798
Two angles are 34° and 59°, so the third angle is 87°. | 92
The range of 23, 21, 16 and 9 is 14. | 24
Scores: 38, 26, 28, 11, 31. The median is 28. | 11
The largest of 21, 18, 6 and 9 is 21. | 18
He was born in 1906 and died in 1978, so he was 72 years old. | 62
Pages 34 to 41 have to be copied, and these are 8 pages. | 7
The clock shows 10:20; 35 minutes earlier it was 9:45. | 9:55
The film starts at 7:45 PM and lasts 1 h 50 min, so it ends at 9:35 PM. | 9:25
Nine hundred minus three hundred fifty is 550. | 650
$360^\\circ / 5 = 72$ for each sector. | 75
"""

RIGHT = """
Out of a total of 12 marbles, 5 are red and 4 blue.
5 are red, 3 are blue, and there are 12 altogether, so 4 are green.
The bars above 10 are 12, 15 and 18, so there are 3 bars.
Sales were 40 in May and 45 in June, and the bar for July reaches about 60.
The bus leaves at 8:15 and at 8:45, and the ride takes 20 minutes.
He earns $15 an hour, works 8 hours a day and saves $40.
A rectangle has a length of 8 and an area of 40, so its width is 5.
Tom is 12 and Ann is twice as old, so together they are 36.
The product of -4 and -6 is 24, while their sum is -10.
Row 1 has 7 stars, row 2 has 6, row 3 has 7, so 20 stars in all.
Between 1996 and 2004 the value rose by 40, hence 5 a year on average.
1 hour 20 minutes plus 55 minutes is 135 minutes.
The two bars show 22 and 12; their sum is 34.
They differ by up to 9.5 in 5 tests of 32 cases.
The cube is built from 3 × 3 × 3 small cubes, 27 in all.
The price rose 20% to $60, so it was $50 before.
The average of 4 numbers is 12, so their sum is 48.
The sum of two numbers is 20 and their difference 4, so they are 12 and 8.
There are 4 posts, 10 m apart, so the fence is 30 m long.
The legs have 4 cows and 3 hens, so 22 legs.
The price per kilo is $3.20, so 250 g cost 80 cents.
The first 3 buses carry 50 each, the last 20, so 170 people in all.
The first of the 3 numbers is 12, the others are 4 each, so the total is 20.
Kim has $50, buys two books at $12 each and a pen for $3, leaving $23.
She walks 2 km to school and 2 km back, 5 days a week, so 20 km a week.
The 30 pupils go in vans of 8, so 4 vans are needed.
The tower is 30 m high; its shadow is 40 m, so the distance from tip to tip is 50 m.
The square has a perimeter of 20, so its area is 25.
Norway has 45 medals. Sweden has 30. The total of all countries is 300.
Dr. Jones paid fees of 5% of the price, and a realtor fee that is 2% of it, on a price of 870000.
I have 17 liters of a drink that is 0.75 water and add it to 16 liters of one that is 0.5 water.
The grid is seven squares wide and seven tall, forty-nine squares in all.
At a steady 60 km/h, the car covers 150 km in two and a half hours.
Norway has 33 and Austria 15; the gap between them is eighteen.
A dozen eggs costs $3, so each egg costs 25 cents.
$x^2 = 49$, so $x = 7$ or $x = -7$.
Wait, 17 + 26 = 33... no, 43. So the answer is 43.
The sum is 40 + 15 = 65 cm - sorry, 55 cm.
"""


def pairs() -> list[tuple[str, str]]:
    found = []
    for line in PAIRS.strip().splitlines():
        right, wrong = line.split(" | ")
        number = wrong.removeprefix("$").split()[0]
        # The last number of a right sentence is what is stated.
        result = [word.strip(".°$") for word in right.split() if re.search(r"[0-9]", word)][-1]
        if right.endswith("9:35 PM."):
            result = "9:35"
        head, _, tail = right.rpartition(result)
        found.append((right, head + number + tail))
    return found


@pytest.mark.parametrize(("right", "wrong"), pairs())
def test_a_result_that_no_reading_gives_is_a_slip(right: str, wrong: str) -> None:
    assert find_slips(right).slips == ()
    assert find_slips(wrong).slips, wrong


@pytest.mark.parametrize("text", RIGHT.strip().splitlines())
def test_a_number_that_may_be_new_or_another_result_is_no_slip(text: str) -> None:
    assert find_slips(text).slips == ()


def test_the_results_of_an_operation_use_each_number_once() -> None:
    assert results_of((4.0, 5.0, 3.0), "+") == {3, 4, 5, 7, 8, 9, 12}
    assert {20, 23, 17, 60} <= results_of((4.0, 5.0, 3.0), "+-*")
    assert results_of((20.0, 50.0), "%") >= {10, 40, 60}
    assert 31 in results_of((22.0, 18.0, 53.0), "m")


def test_of_many_numbers_only_runs_are_summed() -> None:
    assert results_of(tuple(map(float, range(1, 10))), "+-*/") >= {45, 44, 3}
    assert len(results_of(tuple(map(float, range(1, 17))), "+-*/")) <= 136


def test_a_result_that_is_not_taken_back_is_a_slip() -> None:
    assert find_slips("17 + 26 = 33, no more than 40.").slips
    assert find_slips("17 + 26 = 33. No other number fits.").slips


def test_the_names_of_columns_may_stand_behind_a_sentence() -> None:
    table = (
        "The units are in a table. | Q | Units |\n|---|---|\n| Q1 | 57 |\n| Q2 | 37 |\n| Q3 | 50 |\n| Total | {} |\n"
    )
    assert find_slips(table.format(144)).slips == ()
    assert [slip.expected for slip in find_slips(table.format(134)).slips] == [144]
    assert find_slips("| a | b |\n| c | 3 |\n|---|---|\n| Total | 4 |\n").slips == ()
    assert find_slips("| a | b |\n|---|---|\n| c | 3 |\n| d | 4 |\n| Total (incl. online) | 9 |\n").slips == ()
