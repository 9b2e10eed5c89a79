"""Results that narrowly miss what a list before them gives, and numbers near one that say something else."""

import pytest

from distill.grounding.arithmetic_slips import find_slips

# A line is a text, the right result, and a wrong one.
LISTS = """
- Pen: 14¶- Ink: 9¶- Glue: 17¶¶That gives {} pieces in all. | 40 | 38
| Round | Points |¶|---|---|¶| 1 | 17 |¶| 2 | 21 |¶| 3 | 14 |¶| 4 | 19 |¶¶Summed up, they reach {} points. | 71 | 73
The chart has coal 21%, gas 26%, nuclear 16%, wind 23%, solar 14%. Together wind and solar make up {}%. | 37 | 35
Rent 34%, food 21% and travel 12%. Together these three make up {}%. | 67 | 77
Seven children stand outside, four are at the board and two are at the door. In all there are {} children. | 13 | 14
One is at 250 ml. The other stands below 200, thus at 175 ml. The two volumes come to {} ml together. | 425 | 415
Comparing the 435 km at the end with the 248 km at the beginning, we find an additional {} km. | 187 | 197
It opened in 1931. It closed in 1978. From the first to the last this is a span of {} years. | 47 | 57
28 of the 80 students is a share of {}%. | 35 | 32
Sharing 18 pets among 8 children gives {} per child. | 2.25 | 2.15
Das Regal fasst 48 Bücher, die Kiste 26. Zusammen sind das {} Bücher. | 74 | 84
4月9日，苹果12元，梨8元，香蕉15元。一共{}元。 | 35 | 36
北京685毫米。上海1,105毫米。上海比北京多了{}毫米。 | 420 | 430
共有5×3={}个。 | 15 | 16
The shop opens at 10 in the morning and closes at 9 in the evening, so it is open for {} hours. | 11 | 10
"""
# Near the result of a list, and right.
OTHERS = """
- Coal: 33%¶- Gas: 33%¶- Wind: 33%¶¶Together these are 100%.
Team A scored 21, 18 and 24 in three rounds. Team B has a total of 60.
- North: 24 stores¶- South: 31 stores¶- East: 18 stores¶¶The company has 80 stores in total worldwide.
There are 14 red, 9 blue and 6 green balls. All but one red ball together are 28.
The first row shows 3 apples, 4 pears. The second row shows 5 apples, 2 pears. The total of the apples is 8.
Step 1: 12 + 8 = 20.¶Step 2: 20 - 5 = 15.¶Step 3: In total 30.
The husband bought a package of 6 forks. She used 10 of the forks. Later, she had a total of 14 forks.
The left shelf has 12 books, the right one 15, of which 2 are double. All together there are 25.
Anna has 12 stamps. Ben has 15. Together with Carl they have 30.
The laptop costs 1.995 €, the bag 450 €. Together that is 2.445 €.
The bus leaves at 7:30 and 8:15. The total travel time is 46 minutes.
"""


@pytest.mark.parametrize("line", LISTS.strip().splitlines())
def test_a_number_that_narrowly_misses_the_result_of_a_list_is_a_slip(line: str) -> None:
    text, right, wrong = line.replace("¶", "\n").rsplit(" | ", 2)
    assert find_slips(text.format(right)).slips == ()
    assert find_slips(text.format(wrong)).verdict == "slip"


@pytest.mark.parametrize("line", OTHERS.strip().splitlines())
def test_a_number_near_the_result_of_a_list_may_say_something_else(line: str) -> None:
    assert find_slips(line.replace("¶", "\n")).slips == ()
