"""What concludes an answer: the last sentence of a chain of thought, the clause after "so", a statement of yes."""

import pytest

from distill.answers.conclusions import conclusions
from distill.answers.texts.other_words import has_same_content
from distill.answers.texts.stated_polarity import stated_polarity
from distill.answers.verdicts import judge


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        (
            "How many birds sit on the wire?",
            "7",
            "There are two wires. Four birds sit on the upper one and three on the lower one. In total, that makes "
            "seven birds.",
        ),
        (
            "What is the tallest building?",
            "Torre Azul",
            "The chart has five bars. The bar of Torre Azul is the longest one. Hence the tallest is Torre Azul.",
        ),
        (
            "Which year had the most rain?",
            "2014",
            "The first peak is 2009 with 80 mm. The second is 2014 with 95 mm. 2014 is therefore the wettest year.",
        ),
        ("What is x?", "4", "We have 3x + 2 = 14. Subtract 2 from both sides: 3x = 12. Divide by 3. So x = 4."),
        ("What is the sum of Q1 and Q2?", "34", "Q1: 15, Q2: 19 → 34"),
        ("How many more pens than cups are there?", "3", "5 pens − 2 cups = 3 more"),
        ("Which tea has the most caffeine?", "Assam", "The highest bar is 61, which belongs to Assam."),
        ("What time does the shop open?", "9:00", "The sign says 9:00 to 18:00, so it opens at 9:00."),
        (
            "Combien de personnes sont assises ?",
            "4",
            "Deux sont à gauche. Deux sont à droite. Donc quatre personnes.",
        ),
        ("Welche Farbe hat das Auto?", "blau", "Das Fahrrad ist rot. Der Roller ist gelb. Das Auto ist also blau."),
        ("图中有几只猫？", "3", "左边有两只猫。右边有一只猫。所以一共有3只猫。"),
        ("この店は何ですか？", "さくら", "看板があります。隣は「もみじ」です。答え：さくら"),
        (
            "What is the median?",
            "12",
            "Sorted, the values are 3, 9, 12, 20 and 31. There are five of them. The median, the middle one, is 12.",
        ),
        ("Which is odd?", "It is odd.", "The graph turns onto itself. So the function is odd."),
    ],
)
def test_what_a_chain_of_thought_concludes_is_its_answer(question: str, gold: str, text: str) -> None:
    options = ["It is even.", "It is odd.", "It is neither even nor odd."] if gold == "It is odd." else None
    assert judge(text, gold, options=options, question=question).verdict == "correct"


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        (
            "How many birds sit on the wire?",
            "7",
            "There are seven birds. Two of them fly off. So five sit on the wire.",
        ),
        ("How many apples are there?", "4", "There are two bowls. The left bowl has 6 apples. The right one has 4."),
        (
            "Which animal is on the left?",
            "cow",
            "I see two animals. The left one is a horse. The right one is a cow.",
        ),
        ("What is the value of A?", "5", "The chart has two bars. A is 7. B is 5."),
        ("Which city is largest?", "Rome", "Milan is the largest here. Turin comes after it. Rome is the smallest."),
        ("What is the man's job?", "baker", "He wears white. He buys bread. He talks to the baker."),
        ("What is in the glass?", "milk", "There is a glass. It is empty. So there is nothing left of the milk."),
        ("Which team won?", "Lions", "I see two teams. So the winner is the team that plays against the Lions."),
        ("Which team won?", "Lions", "The Bears are ahead. Time is up. So it may be the Lions."),
        ("What is the brown animal?", "bear", "The brown one is a moose; the black one is a bear."),
        ("What is the girl holding?", "a doll", "The girl's mother is holding a doll."),
        ("What is he eating?", "pizza", "He is baking pizza."),
        ("How many are red?", "3", "3 are blue."),
        ("What is it?", "cake", "It's a rice cake."),
    ],
)
def test_a_last_sentence_about_another_thing_concludes_nothing(question: str, gold: str, text: str) -> None:
    assert judge(text, gold, question=question).verdict != "correct"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Two and four → three", ["three"]),
        ("It is red. The sky is blue.", []),
        ("One. Two. Dr. J. R. Hale signed it.", []),
        ("It has bowls, so it isn't a P. So the letter is B.", ["the letter is B."]),
        ("The sum is 4. Thus it may be 5.", []),
        ("x" * 3000 + ". So it is 5.", []),
    ],
)
def test_a_conclusion_is_short_and_has_no_doubt(text: str, parts: list[str]) -> None:
    assert list(conclusions(text)) == parts


@pytest.mark.parametrize(
    ("question", "text", "verdict"),
    [
        ("Is there a clock on the wall?", "A clock hangs on the wall.", "yes"),
        ("Is there a clock on the wall?", "There isn't any clock on the wall.", "no"),
        ("Is there a clock on the wall?", "The clock is on the table.", None),
        ("Is there a train?", "A train station is visible.", None),
        ("Are there any people?", "People are absent.", None),
        ("Are there any people?", "There were people here.", None),
        ("Is the dog larger than the cat?", "The dog is larger than the cat.", "yes"),
        ("Is the dog larger than the cat?", "The dog is smaller than the cat.", "no"),
        ("Is the dog larger than the cat?", "The cat is larger than the dog.", None),
        ("Is the dog larger than the cat?", "The dog is hardly larger than the cat.", None),
        ("Are there fewer spoons than forks?", "Spoons are fewer than forks.", "yes"),
        ("Are there more spoons than forks?", "There are fewer spoons than forks.", "no"),
        ("Does the line ever fall?", "Never: it rises all the time.", "no"),
        ("Are the curtains drawn?", "They are.", "yes"),
        ("Is the gate locked?", "It isn't.", "no"),
        ("Is the sum 12?", "The statement does not hold.", "no"),
        ("Is the sum 12?", "The statement is correct.", "yes"),
        ("Is the cup on the left?", "It is right of the plate.", None),
        ("Is the man wearing glasses?", "He has no glasses on.", "no"),
        ("Is it red or blue?", "It is.", None),
        ("What is it?", "It is.", None),
    ],
)
def test_a_statement_is_yes_or_no_to_its_question(question: str, text: str, verdict: str | None) -> None:
    assert stated_polarity(text, question) == verdict


@pytest.mark.parametrize(
    ("gold", "text", "same"),
    [
        ("a basket of plums", "plums in a basket", True),
        ("put out the fire", "They put the fire out with sand.", True),
        ("holding a ladder", "He holds his ladder.", True),
        ("to protect from wind", "As protection against the wind", True),
        ("do not feed the ducks", "Feed the ducks", False),
        ("exit 14A", "exit 14B", False),
        ("plum and pear", "plum and apple", False),
        ("two dogs", "two dogs and a cat", False),
        ("San Diego", "UC San Diego", False),
        ("Main Street", "Main Street North", False),
        ("company president", "the assistant to the company president", False),
        ("left door", "left door of the right house", False),
        ("y = 2x - 3", "y = 2x + 3", False),
    ],
)
def test_a_sentence_has_the_content_words_of_a_longer_gold_answer(gold: str, text: str, same: bool) -> None:
    assert has_same_content(text, gold) is same


@pytest.mark.parametrize(
    ("question", "gold", "text", "verdict"),
    [
        ("When is the season?", "June, July, August", "June to August", "correct"),
        ("When is the season?", "June, July, August", "June to September", "undecided"),
        ("What % use tea and coffee, respectively?", "71%, 27%", "tea 71%, coffee 27%", "correct"),
        ("What % use tea and coffee, respectively?", "71%, 27%", "coffee 27%, tea 71%", "correct"),
        ("What % use tea and coffee, respectively?", "71%, 27%", "tea 27%, coffee 71%", "undecided"),
        ("Which is the largest and which is the smallest?", "Peru, Chad", "Chad, Peru", "undecided"),
        ("Which is the largest and which is the smallest?", "Peru, Chad", "Peru, Chad", "correct"),
        ("Which two are there?", "Peru, Chad", "Chad, Peru", "correct"),
        ("When does it expire?", "08/2025", "It expires in August 2025.", "correct"),
        ("What is the angle?", "40°", "40 Grad", "correct"),
        ("What is the area?", "52 cm²", "The area is $52\\,\\text{cm}^2$.", "correct"),
        ("How many million tonnes?", "5.3", "5.3 million metric tons", "correct"),
        ("How many lamps are lit?", "1", "A single lamp is lit.", "correct"),
        ("How can one reach her?", "a.b@c.org", "You can reach her at a.b@c.org.", "correct"),
        ("How can one reach her?", "a.b@c.org", "Write to a.b@c.org or d@c.org.", "undecided"),
        ("What brand is the car?", "ford", "It's a Ford Fiesta.", "correct"),
        ("What bird is it?", "seagull", "It is a sea gull.", "correct"),
        ("What is the weather like?", "it is foggy", "It must be foggy.", "correct"),
    ],
)
def test_lists_spans_units_and_names_in_a_sentence(question: str, gold: str, text: str, verdict: str) -> None:
    assert judge(text, gold, question=question).verdict == verdict


def test_a_state_is_no_option_that_is_a_part_of_its_name() -> None:
    assert judge("West Virginia", "Virginia", options=["Virginia", "Delaware"]).verdict != "correct"
