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


COUNTED = "- Row 1: 2 blue, 1 white\n- Row 2: 2 blue, 3 grey\n\n"


@pytest.mark.parametrize(
    ("question", "gold", "trace"),
    [
        (
            "What is the total revenue in 2019?",
            "4.2 million",
            "- 2018: 3.9\n- 2019: 4.2\n\nIt grew.\n\n**4.2 million**",
        ),
        ("How many of the shirts are blue?", "4", f"{COUNTED}2 + 2 = 4\n\nThere are 4 blue shirts on the rack."),
        (
            "What is the man holding?",
            "a tennis racket",
            "A man is on a court.\n\nHe wears white.\n\nHe's holding a tennis racket.",
        ),
        (
            "What effort lifts the load?",
            "75 N",
            "The load is 300 N. The ratio is 4 here. 300 / 4 = 75. The effort is 75 N.",
        ),
        (
            "What is the total price?",
            "$91",
            "$15 each is $60. With $31 more it is $91. $10 off would be wrong.\n\nThe total price is **$91**.",
        ),
        (
            "What is the range of the ages?",
            "13",
            "From 8 to 21.\n\nSo the range is **13 years**. There are 24 dots here.",
        ),
        (
            "What is the ratio of tablets to laptops?",
            "2:3",
            "The columns are 96 and 144. Both have 48 as a divisor. Thus the ratio of tablets to laptops is 2:3. "
            "Other quarters have other ratios, but they aren't asked for.",
        ),
        (
            "What is the average of the three values?",
            "18",
            "They are 12, 18, 24.\n\n54 / 3 = 18\n\nThe average of the three values is 18.\n\nIt is the median too.",
        ),
        ("What is the resistance?", "7 ohm", "$5 + 2 = 7\\,\\Omega$.\n\nIt is $\\boxed{7\\ \\Omega}$."),
        ("How thick is the layer?", "3 µm", "5 - 2 = 3.\n\n\\boxed{3~\\mu\\text{m}}"),
        (
            "What is the perimeter?",
            "26 cm",
            "Sides: 8 cm, 5 cm.\n\n$P = 2(8 + 5) = 2 \\cdot 13 = \\mathbf{26\\text{ cm}}$",
        ),
        ("What is the use in kWh?", "245", 'Jan 310, Feb 180; 490 / 2 = 245.\n\n{"answer": 245, "unit": "kWh"}'),
        (
            "What color is it?",
            "red",
            'A blue one and this.\n\n```json\n{\n "answer": "Red",\n "confidence": 0.9\n}\n```',
        ),
        ("Which drinks?", "tea, milk", 'Coffee is out.\n\n{"answer": ["milk", "tea"]}'),
        ("How long?", '{"duration": "4:22"}', '8:56 to 13:18.\n\n```json\n{"duration":  "4:22"}\n```'),
        (
            "¿Qué animal aparece?",
            "un perro",
            "En el césped hay un animal con collar.\n\n**Respuesta final:** un perro",
        ),
        (
            "Who is the oldest person in the family tree?",
            "Agnes",
            "Agnes was born in 1921, Rolf in 1924. Ines came in 1949. The others are younger. The oldest is Agnes.",
        ),
        (
            "Can two adults and three children enter with $50?",
            "yes",
            "An adult pays $12, a child $6. That is $24 and $18, in all $42. It leaves $8 of the $50. Yes, they can.",
        ),
        (
            "On which date does the trip end that starts on July 26?",
            "August 4",
            "July 26 to July 31 are six days. Four are left, so August has begun. The trip ends on August 4.",
        ),
        (
            "How many days did the expedition last?",
            "47",
            "It left on 15 April, back on 1 June. All in all, the expedition lasted 47 days. That is 7 weeks.",
        ),
        (
            "三种水果一共卖出多少千克？",
            "195千克",
            "苹果80千克，香蕉65千克，合计145千克。加上橙子的50千克，一共是195千克。",
        ),
        (
            "How much did the rainfall differ between the two months?",
            "118 mm",
            "November: 131 mm, May: 13 mm.\n\nThat is ten times as wet.\n\nThe gap amounts to 118 mm.",
        ),
        ("What is written on the sign?", "ROAST", 'The first sign is empty. The word on it is "ROAST".'),
        (
            "How much is it?",
            "482.6",
            "The label is 482.6.\n\n**Answer: 482.6 million U.S. dollars**\n\nQ2 had 455.1.",
        ),
        (
            "Are there more male or female players?",
            "male",
            "Female players are 45%, male ones 55%.\n\nSince 55% > 45%, male players outnumber the female ones.",
        ),
        (
            "Which brand was overtaken by Aldo?",
            "Berg",
            "As it is under 11 until Q1, while Cona leads, it is Berg that was overtaken by Aldo.",
        ),
        ("What is the licence plate?", "KX59 BRT", "I can read it: **KX59 BRT**. The plate has seven signs."),
        ("Which street crosses Main St?", "Oak Ave", 'A sign says "Oak Ave". Hence, Oak Avenue crosses Main Street.'),
        ("Che cosa vende il negozio?", "gelato", "Il negozio vende gelato artigianale, come indica l'insegna."),
        ("この店は月曜日に営業していますか。", "いいえ", "定休日は月曜日です。つまり、月曜日は営業していません。"),
        ("What is the area?", "36π", "So r = 6.\nArea = π·6² = 36π (square units)."),
        ("What is the total of the bill?", "$435", "Nights: $375.\nFood: $60.\nThe total printed is $435 as well."),
    ],
)
def test_the_end_of_a_whole_trace_states_its_answer(question: str, gold: str, trace: str) -> None:
    assert judge(trace, gold, question=question).verdict == "correct"


@pytest.mark.parametrize(
    ("question", "gold", "trace"),
    [
        ("What is the total?", "5", "I add the items. Tax is left out.\n\nIt can't be **5**."),
        (
            "How many are red?",
            "3",
            "There are 8.\n\nThe blue ones are 5.\n\nThe blue ones outnumber the **3** red ones by 2.",
        ),
        ("How many are red?", "5", "There are 8 balls.\n\n3 of them are red.\n\nThe other 5 are blue."),
        ("What is the tax?", "$2", "The total is $20. It is 10 %.\n\nWithout the tip of $2 the tax is 10 %."),
        ("What is the total price?", "$91", "Sum of all: 100.\n\nI doubt that the total price is $91."),
        (
            "What is the range?",
            "13",
            "So the range is 13. If 21 is left out, the range is 9, which is what is asked for.",
        ),
        (
            "What is the range of the ages?",
            "24",
            "The ages go from 8 to 21. So the range of the ages is 13 years. There are 24 dots here.",
        ),
        ("Are there more men or women?", "women", "It is 51%. Since 51% > 49%, men outnumber the women."),
        ("Are there fewer men or women?", "men", "It is 51%. Since 51% > 49%, men outnumber the women."),
        ("Which city is cheaper, Rome or Bari?", "Rome", "It is 51. Rome exceeds Bari."),
        ("Which car is it?", "red", "Look at the car: the **red** one is behind it."),
        ("¿Qué deporte practican?", "fútbol", "Hay un campo. Practican fútbol americano."),
        ("How many more minutes does Sam read?", "25", "70 - 45 = 25 min.\n\nSam reads 25 more hours."),
        ("How many birds are there?", "6", "It is 6. Wait, no."),
        ("How tall is the tower?", "7", "The tower is 50 m tall. Next to it stands a tree of 7 m."),
        ("How tall is the tower?", "7", "The tower measures 50 m. The tree measures 7 m."),
        ("What is the range without 21?", "13", "There are 9 dots. So the range is 13. Without 21, the range is 9."),
        ("Which country is lowest?", "Peru", "Chile is at 5. Peru is at 7. That's the second lowest value."),
        ("What color is the car?", "red", "There is a car.\n\nThe one in front is blue.\n\nThe bike is red."),
        ("What color is the umbrella?", "red", 'It rains.\n\n{"answer": "blue", "coat": "red"}'),
        ("What color is the umbrella?", "red", 'It rains.\n\n{"coat": "red"}'),
        (
            "How many red and green ones are there?",
            "4",
            "I see two bowls. There are 3 red ones. There are 4 green ones.",
        ),
        ("What is the man holding?", "a racket", "The man is on a court.\n\nThe woman is holding a racket."),
        ("When does the shop open?", "9:00", "There are hours.\n\nIt opens at 10:00.\n\nIt closes at 9:00."),
        (
            "Which car is in front?",
            "red",
            "There are two.\n\nI see their colors.\n\nThe **red** car is behind the blue one.",
        ),
        (
            "Who is the second oldest person?",
            "Agnes",
            "There are four. Agnes was born in 1921. Rolf came next. The oldest is Agnes.",
        ),
        (
            "Who is the oldest?",
            "Agnes",
            "There are four. Agnes was born in 1961. Rolf came first. The youngest is Agnes.",
        ),
        ("सबसे ऊँची इमारत कौन सी है?", "B", "लाल (A) 40 मीटर है। नीली (B) 48 मीटर। इसलिए उत्तर A है।"),
    ],
)
def test_the_end_of_a_whole_trace_may_speak_of_another_thing(question: str, gold: str, trace: str) -> None:
    assert judge(trace, gold, question=question).verdict != "correct"
