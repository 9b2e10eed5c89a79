"""Slips in written arithmetic: what is found, and what only looks like arithmetic."""

# A line is a right text and the same with a slip.

import re

import pytest

from distill.grounding.arithmetic_slips import find_slips

# Each line stands alone; some state arithmetic that is right, others only look like arithmetic.
RIGHT = r"""
The ladder leans against the wall: foot 3 m away, top 4 m up. So the ladder is 5 m long (9 + 16 = 25).
The median of 3, 7, 8, 12 and 30 is the middle one, 8. The mean, 12, is larger because of the 30.
The scale of the map is 1:50000. Two centimetres are 1 km, so 7 cm on the map are 3.5 km.
The atomic weight is 12 + 16·2 = 44.
|3 - 5| = 2
12 - 5 = 7 apples, 7 / 2 = 3.5
100 - 37.5 = 62.5%
The ratio is 3:1 = 3
5 out of 10 = half
10/2 = 5 each
2 + 2 = 4 = 2^2
3/4 = 0.75 = 75%
1/3 ≈ 33%
2/3 = 0.66 and 2/3 = 0.67
20% of $50 = $10, so $50 - $10 = $40
1,000 * 1.05^2 = 1,102.5
x = (14 - 2)/3 = 4
f(2) = 2^2 + 1 = 5
f(2) = 5 and f(3) - f(2) = 4
sin(30) = 1/2
log(100) = 2 and 2 * log(10) = 2
8 mod 3 = 2
2 dozen + 1 = 25
2 dozen eggs + 1 egg = 25 eggs
1 + 2 dozen = 25
3 dozen - 1 = 35
1 dozen + 2 dozen = 3 dozen
2 dozen + 1 dozen = 36
2 pairs + 1 = 5 socks
2 pairs of socks + 3 pairs of shoes = 10
2 pairs + 1 = 3
4 dozen eggs - 1 dozen eggs is 36 eggs
8,4 + 4 = 12,4
8,4+4=12,4
the points 8,4 + 4 = 8
max(3,4+5) = 9
7 // 2 = 3
10 % 3 = 1
5C2 = 10
|−5| = 5
(3+4)×2=14
12 ÷ 4 × 3 = 9
3:15 + 45 min = 4:00
a² + b² = 3² + 4² = 25
12 + 15 = 27 + 3 = 30
1/2 + 1/3 = 5/6
6 1/2 + 1 1/2 = 8
10^-3 = 0.001
5e3 + 1 = 5001
$1.5M + $0.5M = $2M
1.5m + 0.5m = 2m
2020: 35, 2021: 40 → 40 - 35 = 5
Sales rose from 40 to 50, an increase of 25%.
Sales rose from 40% to 50%, an increase of 10 percentage points, or 25%.
Sales rose from 40% to 50%, an increase of 10%.
It fell from 50 to 40, a 20% decrease.
5 + 3 equals 8, not 9
A=5, B=3: A-B = 5-3=2
6 is 50% more than 4
6 is 3 times 2
average of 3, 5 and 10 is 6
the sum of the first 3 numbers is 12
the total of 3 bars is 12
the difference between bar 2 and bar 5 is 8
Adding the 2 blue bars and 3 red bars gives 40.
The difference between 2010 and 2015 is 25 points.
8 + 7 = 14. Wait, 8 + 7 = 15.
The answer is 8 + 7 = 15, i.e. 15.
The image has 3 x 4 = 12 tiles, 12 - 2 = 10 of which are white.
Row 1: 3 + 4 = 7; Row 2: 2 + 2 = 4. 7 + 4 = 11 total.
The bar is between 30 and 40, so (30 + 40) / 2 = 35.
From 2010 to 2015, sales grew from 10 to 20, an increase of 100%.
From 10 to 20 there are 10 more steps than from 20 to 25.
3 + 4 + 5 = 12, and 12/3 = 4 on average.
We have 2 cats and 3 dogs, together 5 animals with 20 legs.
The score was 3 - 1 = win.
So total = 5 + 6 + 7 = 18 - 2 = 16.
0.5 * 100 = 50%
50/200 = 1/4 = 25%
The share is 45/180 = 0.25 (25%).
1 - 0.35 = 0.65, that is 65%
7 - 10 = -3
2*(-3) = -6
1/4 of 80 is 20, 3/4 is 60.
Half of 7 is 3.5.
three times 4 is 12
There are 4 x 3 = 12 and 2 x 6 = 12.
The height is 1.8 m = 180 cm
5 + 5 = 10 > 9
3 < 5 < 8 and 8 > 5 > 3
9 > 8.5 = median
If x > 3 and x < 2 there is none
Bar 3 > bar 5 in height
Option 2 is larger than option 3
Country 2 (12) is larger than country 1 (10)
The value for 3 is larger than 5
so the 3rd is 2 more than the 4th
The 2010 bar is 5 more than the 2011 bar
12 is 5 more than 7, 12 is 3 less than 15
36,270 - 25,545 = 10,725
7.5 - 2.25 = 5.25
10 000 + 5 000 = 15 000
12,5 + 2,5 = 15
1.000 + 2.000 = 3.000
2.5 thousand + 500 = 3,000
3 hundred + 200 = 500
twenty-five plus five is thirty
two hundred plus five is 205
one plus one is two
15 + 15 is 30, half of 60.
22/7 ≈ 3.14
√2 ≈ 1.41, √(9+16) = 5
2π ≈ 6.28, 3π = 9.42
π × 5² = 25π ≈ 78.54
90 + 90 = 180°
1st + 2nd = 3rd
page 3 + 4 = appendix
5 + ? = 8, so ? = 3
5 + __ = 8
□ + 3 = 8
3 + x = 8 so x = 8 - 3 = 5
y = 2x + 3 = 2(4) + 3 = 11
y = 2x + 3, x = 4
2x = 8, x = 4
3a + 2 = 11 → 3a = 9 → a = 3
x^2 = 16 → x = 4
x² + 3 = 12, so x = 3
2x + 3y = 12, x = 3
x = 3y = 12 gives y = 4
Let n = 5; then n + 1 = 6 and n = 5
Rounded: 12.6 + 3.7 = 16.3 ≈ 16
3.456 + 1.1 = 4.56
1,234 + 5,678 = 6,912 ≈ 7,000
about 40 + about 30 = about 70
2 hours 30 minutes = 150 minutes
1 hour and 15 minutes is 75 minutes
From 9:40 to 11:10 is 90 minutes
10:00 - 9:15 = 45 minutes
USD 5 + USD 7 = USD 12
5 km + 300 m = 5.3 km
2 m + 50 cm = 2.5 m
500 g + 1 kg = 1.5 kg
3 quarters + 2 dimes = 95 cents
10% + 20% of 50 = 15
100 + 10% = 110
100% - 25% - 30% = 45%
200 × 15% = 30
30/200 = 15 percent
30 is 15% of 200
30 of 200 is 15%
3 of 4 people
4/5 stars is 80%
The date 5/16 is 3 days later
pages 10-12 is 3 pages
40 - 50 is 10 wide
2019 - 2020 is 40
2020 - 2019 is a difference of 30 units
2 x 4 is 6 feet long
5 of 6 = 83.3%
1+1+1=3, 3-1=2.
so 14 + 6 = 20 bars minus 3 = 17
18 - 12 = 6 (or 6 more)
40 + 50 + 60 = 150 / 3 = 50
The sum is 150 and the mean is 150 / 3 = 50 units.
(40 + 60)/2 = 50%
12/4=3 remainder 0
13 / 4 = 3 R 1
13 divided by 4 is 3 remainder 1
13 ÷ 4 = 3 with 1 left over
13 / 4 = 3 rest 1
"""
SLIPS = """
2 dozen + 1 = 26
2 dozen + 1 dozen = 35
2 pairs + 1 = 6
3 pairs + 2 pairs = 12
1 + 2 dozen = 26
8,4 + 4 = 12,5
8,4+4=12,5
8 + 6 = 15
12 + 5 = 18 apples
The total is 3 + 4 + 5 = 13.
3/4 = 0.74
45/180 = 24%
2^10 = 1023
half of 14 is 8
1.5 million + 2.3 million = 3.9 million
so 14 - 9 is 6
1/2 + 1/3 = 2/5
36,270 - 25,545 = 10,715
20% of $50 = $12
it rose from 40 to 50, a 20% increase
the average of 3, 5 and 10 is 5
12 is 6 more than 7
8 > 9
2 m + 50 cm = 2.6 m
40 + 50 + 60 = 160 / 3 = 53.3
The sum of 7, 8 and 9 is 25
7 times 8 is 54
Adding 40 and 86 gives 125.
Nine plus nine equals sixteen.
A third of 45 is 16.
\\frac{20}{5} = 5
The product of 6 and 17 is `92`.
From 9x + 3 = 75 it follows that x = 9.
The train leaves at 12:20 and needs 15 minutes, so it arrives at 12:30.
Priya had 43 melons and gave away 10; that leaves 43.
3 min 42 s equals 220 seconds.
10 °C corresponds to 51 °F.
"""


# Right as written; each number in double brackets is a result, and another one in its place is a slip.
STYLES = r"""
Total population: 1 250 000 + 750 000 = [[2 000 000]].
€1.299,00 + €200,00 = €[[1.499,00]].
Each box holds 24 cans; 5 boxes hold 24*5=[[120]] cans.
From 1998 to 2016 there are 2016 - 1998 = [[18]] years.
Germany has 83.2 and France 67.4, so Germany has 83.2 − 67.4 = [[15.8]] million more.
The film lasts 95 minutes, which is 1 hour and [[35]] minutes.
The train leaves at 14:35 and arrives at 17:10, so the ride takes [[2]] hours and 35 minutes.
7 squared is [[49]], and 2 cubed is [[8]].
2(3 + 4) = [[14]] and 5! = [[120]].
1½ + 2½ = [[4]].
The ratio is 18 : 24 = [[3]] : 4.
17 mod 5 = [[2]], so 17 ÷ 5 = 3 remainder [[2]].
Q1 120 + Q2 150 + Q3 90 = [[360]], and Jan (30) + Feb (28) = [[58]].
8 plus 5, minus 2, equals [[11]].
Therefore the result is 19 + 23, which is [[42]].
25 is [[50]] percent of 50, and 50 is half of [[100]].
A 20% discount on $80 is $[[16]].
4 shelves with 12 books each make [[48]] books.
The sum of the first three bars (12, 15 and 18) is [[45]].
Three pens at €2.20 each are 3 × €2.20 = €[[6.60]].
5 feet = [[60]] inches.
"""
NO_SLIPS = """
250 mL × 4 = 1000 mL = 1 L.
2 h 45 min + 30 min = 3 h 15 min.
60 / 7 = 8 weeks and 4 days.
25 cents × 4 = $1.
47 + 28 = 75 ≈ 80.
A common slip is to write 7 + 8 = 16.
24 h = 1 day, 7 days = 1 week.
$5 off, the $20 hat costs $15.
The share fell by 5 percentage points from 25% to 20%, a 20% drop.
Three less than twice 17 is 31.
2 dozen plus 1 dozen is 3 dozen.
Temperatures range from 10 to 20, up 5 from yesterday.
"""


@pytest.mark.parametrize("text", STYLES.strip().splitlines())
def test_a_slip_is_found_in_every_style_and_the_right_text_has_none(text: str) -> None:
    assert find_slips(re.sub(r"\[\[|\]\]", "", text)).verdict == "right"
    for result in re.finditer(r"\[\[(\d+)(.*?)\]\]", text):
        slip = f"{text[: result.start()]}{int(result[1]) + 3}{result[2]}{text[result.end() :]}"
        assert find_slips(re.sub(r"\[\[|\]\]", "", slip)).verdict == "slip", slip


@pytest.mark.parametrize("text", NO_SLIPS.strip().splitlines())
def test_units_roundings_and_reported_slips_are_none(text: str) -> None:
    assert not find_slips(text).slips


@pytest.mark.parametrize("text", RIGHT.strip().splitlines())
def test_what_is_right_or_no_claim_is_no_slip(text: str) -> None:
    assert find_slips(text).slips == ()


@pytest.mark.parametrize("text", SLIPS.strip().splitlines())
def test_a_slip_is_found(text: str) -> None:
    assert find_slips(text).verdict == "slip"


@pytest.mark.parametrize(
    ("right", "slip"),
    [
        ("١٬٢٣٤ + ١ = ١٬٢٣٥", "١٬٢٣٤ + ١ = ١٬٢٣٦"),
        ("٣٫٥ + ١ = ٤٫٥", "٣٫٥ + ١ = ٥٫٥"),
        ("１２＋３＝１５", "１２＋３＝１６"),
        ("€1.200 + €300 = €1.500", "€1.200 + €300 = €1.600"),
        ("100.000 - 1 = 99.999", "100.000 - 1 = 99.998"),
        ("1.500 + 2 = 3.5", "1.500 + 2 = 3.6"),
    ],
)
def test_numbers_of_other_scripts_and_countries_are_read(right: str, slip: str) -> None:
    assert find_slips(right).verdict == "right"
    assert find_slips(slip).verdict == "slip"


def test_a_slip_is_written_out_with_what_comes_out() -> None:
    (slip,) = find_slips("I read 8 and 6. So 8 + 6 = 15, which is the total.").slips
    assert slip.written.endswith("8 + 6 = 15") and slip.expected == 14


@pytest.mark.parametrize("text", ["", "The red bar is the tallest.", "The bars are 8, 6 and 9.", "A 9 x 10 grid."])
def test_nothing_that_could_be_checked_is_not_right(text: str) -> None:
    found = find_slips(text)
    assert (found.verdict, found.checked) == ("none_stated", 0)


def test_a_slip_that_the_text_puts_right_is_none() -> None:
    assert find_slips("8 + 7 = 14. Wait, let me check: 8 + 7 = 15.").verdict == "right"
    assert find_slips("8 + 7 = 15. Then 8 + 6 = 15.").verdict == "slip"


def test_a_result_that_was_passed_on_is_one_slip() -> None:
    (slip,) = find_slips("8 + 6 = 15 and 15 * 2 = 30, so the answer is 30.").slips
    assert slip.expected == 14


def test_a_number_inside_a_word_does_not_shift_those_after_it():
    slips = find_slips("Lens f/2.8, 1/700 s, so (78 - 6) * 2 = 72 * 2 = 144 and 3 + 4 = 8.")
    assert [slip.expected for slip in slips.slips] == [7.0]


def test_a_slip_is_written_as_it_stands_in_the_text():
    slips = find_slips("On 3rd and 2024-01-02, first 3 + 4 = 7. Then **12** - 4 = 9 is left. Then 2 * 3 = 6.")
    assert [slip.written for slip in slips.slips] == ["rst 3 + 4 = 7. Then 12 - 4 = 9".lower()]


def test_a_part_that_repeats_is_judged_by_its_own_numbers_wherever_it_stands() -> None:
    found = find_slips("First 8 - 6 = 2, as read. Then 9 - 5 = 3, as read. The 4 bars: 7 - 1 = 6, 7 - 1 = 5.")
    assert found.checked == 4
    assert [slip.expected for slip in found.slips] == [4.0]
    assert found.slips[0].written.endswith("9 - 5 = 3")
    percent = find_slips("Now 0.7 is the same as 70%. And 5 bars; 0.6 is the same as 70%.")
    assert [slip.expected for slip in percent.slips] == [60.0]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(-3) × (-4) = 12", "(-3) × (-4) = -12"),
        ("(−3)² = 9", "(−3)² = −9"),
        ("(-12) ÷ (-4) = 3", "(-12) ÷ (-4) = -3"),
        ("8 - 20 = -12, and -12 + 2 = -10", "20 - 8 = -12"),
        ("-10 / 3 = -3.33", "10 / 3 = -3.33"),
        ("From 1914 to 1918 is 4 years.", "From 1914 to 1918 is 5 years."),
        ("From 1990 to 2000, that is a span of 10 years.", "From 1990 to 2000, that is a span of 12 years."),
    ],
)
def test_a_sign_and_a_span_of_years_belong_to_the_result(right: str, wrong: str) -> None:
    assert find_slips(right).verdict == "right"
    assert len(find_slips(wrong).slips) == 1


@pytest.mark.parametrize(
    "text",
    [
        "From 1914 to 1918 is 5 years, counting both ends.",
        "From 1914 to 1918 is 5 years (inclusive).",
        "From 1914 to 1918 inclusive is 5 years.",
        "From 2014 to 2018 there are 5 years of data.",
        "From 1914 through 1918 is 5 years.",
    ],
)
def test_years_that_are_counted_with_both_ends_are_no_slip(text: str) -> None:
    assert not find_slips(text).slips
