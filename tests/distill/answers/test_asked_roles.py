"""Gold words in another part of a sentence than the one that the question asks for, and lists whose order counts."""

import pytest

from distill.answers.verdicts import judge


@pytest.mark.parametrize(
    ("question", "gold", "said"),
    [
        ("Who wins the match?", "Spain", "Portugal beats Spain"),
        ("What animal is this?", "cow", "It's a sea cow."),
        ("What does the girl want?", "girl", "The girl wants a doll"),
        ("What is the woman looking at?", "phone", "She looks past her phone at the pigeons."),
        ("What is the vase made of?", "glass", "Plastic that imitates glass"),
        ("What is on the wall?", "clock", "A picture of a clock"),
        ("What is under the table?", "cat", "The bowl of the cat."),
        ("What is under the table?", "cat", "A cat sits on the table."),
        ("Who is behind the counter?", "woman", "A woman stands outside the counter."),
        ("What is on the table?", "vase", "The vase is on the floor."),
        ("Who is wearing glasses?", "boy", "The boy wears a cap."),
        ("Which layer is below the crust?", "mantle", "The mantle is below the core."),
        ("Who throws the ball?", "boy", "She throws the ball to the boy."),
        ("Who is being helped?", "child", "The child helps the old man."),
        ("Who signed the letter?", "John Smith", "It is addressed to John Smith."),
        ("Who is the sender?", "Mark Hill", "It is for Mark Hill."),
        ("Who signed the letter?", "Smith", "The letter was signed for Smith by Jones."),
        ("Who is the letter addressed to?", "Mr. Brown", "The letter is from Mr. Brown."),
        ("What is the main ingredient?", "rice", "rice is the side; the main ingredient is chicken"),
        ("What is the last word on the shirt?", "forever", 'It says "young forever".\nThe last word is "young".'),
        ("¿De qué color es la puerta?", "verde", "La puerta es amarilla y el marco es verde."),
        ("Which player has the ball?", "number 7", "The player in front of number 7"),
        ("Which day is the meeting?", "Friday", "They play cards on Friday."),
        ("Which colors stand for high risk and low risk?", "red, green", "Green for high risk and red for low risk"),
        ("Who are the author and the editor?", "Hale, Pike", "The author is Pike, the editor is Hale."),
        ("List the cities in ascending order.", "Rome, Oslo, Bonn", "Bonn, Oslo, Rome"),
        ("Rank the cities from largest to smallest.", "Rome, Oslo, Bonn", "Oslo, Rome, Bonn"),
        ("What is the total population in thousands?", "8400", "8.4 thousand"),
        ("What is the length of AC?", "5\\sqrt{3}", "AC = 10√3 because the half is 5√3."),
        (
            "How long can you park here?",
            "2 hours",
            "The sign beside it allows 2 hours. So you can't park here at all.",
        ),
        ("What was the GDP growth?", "7.3", "The economy shrank by 7.3% in 2012."),
        ("增长率是百分之多少？", "12.5%", "下降了12.5%"),
        ("What is the hourly rate?", "$18.75", "$18.75 per day"),
        ("How much is it per day?", "$5", "$5 per hour"),
        ("How many buses are parked?", "1", "No buses, one truck."),
        ("What is the highest value?", "38", "The values are 23 and 61, a difference of 38."),
        ("Is the left dog larger than the right dog?", "yes", "The right dog is larger."),
        ("What animal is it?", "duck", "It's a plastic duck."),
        ("What color is the hat?", "red", "The hat is blue, the coat: it's red."),
        ("What is the smaller value?", "38", "It runs from 23 up to 61, a gap of 38."),
        ("What is the man wearing?", "hat", "He sells hats."),
        ("Which country has the highest value?", "Italy", "It exceeds Italy."),
        ("Who signed the letter?", "John Smith", "It thanks John Smith."),
        ("What is the woman doing?", "reading", "She stopped reading."),
        ("What food is this?", "cake", "It's a rice cake."),
        ("What color is the cat?", "brown", "The dog is brown."),
        ("What is the girl looking at?", "phone", "She looks past her phone."),
        ("¿De qué color es la puerta?", "azul", "La ventana es azul y la puerta es marrón."),
    ],
)
def test_gold_words_in_another_role_are_undecided(question: str, gold: str, said: str) -> None:
    assert judge(said, gold, question=question).verdict == "undecided"


@pytest.mark.parametrize(
    ("question", "gold", "said"),
    [
        ("Who wins the match?", "Spain", "Spain wins the match."),
        ("What animal is this?", "bear", "It's a grizzly bear."),
        ("What system is on the phone?", "Android", "It runs Android."),
        ("What is the cashier's name?", "Denise", "You were served by Denise."),
        ("What does the screen say?", "low battery", 'The message on the screen is "Low battery".'),
        ("What animal is this?", "giraffe", "With its long neck, this is clearly a giraffe."),
        ("What fruit is in the bowl?", "apples and bananas", "The bowl has bananas and apples in it."),
        ("Wie lautet die IBAN?", "DE89 3704 0044 0532 0130 00", "IBAN: DE89370400440532013000"),
        ("联系电话是多少？", "010-62345678", "联系电话：01062345678"),
        ("How many red balls are there?", "7", "There are 7 red balls and 5 green ones."),
        ("Is the truck red?", "no", "The truck is blue."),
        ("Is there a signature at the bottom?", "yes", "At the bottom there is a signature by M. Keller."),
        ("Is the bar for Asia the tallest?", "yes", "No other bar is taller than Asia's, so yes."),
        ("这个人戴帽子了吗？", "没有", "这个人没有戴帽子。"),
        ("Y a-t-il un chien sur la photo ?", "non", "Il n'y a pas de chien sur la photo."),
        ("What animal is behind the fence?", "sheep", "A small flock of sheep"),
        ("What is under the table?", "cat", "A cat sits under the table."),
        ("Who is the person on the bill?", "George Washington", "President George Washington"),
        ("What does the sign say?", "stop", 'The red octagonal sign says "STOP".'),
        ("What season is it?", "winter", "There is snow on the ground, so it is winter."),
        ("What sport are they playing?", "soccer", "football (soccer)"),
        ("What team does the fan support?", "Red Sox", "Boston Red Sox"),
        ("What is the bus's destination?", "downtown", "The bus is headed downtown."),
        ("Which is bigger, the pizza or the plate?", "plate", "The plate is larger."),
        ("Which bar is the tallest?", "Germany", "Germany. It is the tallest bar."),
        ("Which colors stand for high risk and low risk?", "red, green", "Low risk is green, high risk is red."),
        ("List the cities in ascending order.", "Rome, Oslo, Bonn", "Rome, Oslo and Bonn"),
        ("What was the net income (in thousands)?", "7,204", "$7.204 million"),
        ("What was the GDP growth?", "-7.3", "The economy shrank by 7.3% in 2012."),
        ("By how much did sales fall?", "12%", "Sales fell by 12%."),
        ("How many candles are on the cake?", "0", "There aren't any candles on the cake."),
        ("What is the gap between the highest and the lowest value?", "38", "It runs from 23 up to 61, a gap of 38."),
        (
            "How much do 3 kg of figs and 2 kg of nuts cost?",
            "$11.70",
            "Figs: $8.70. Nuts: $3.00. Together they cost $11.70.",
        ),
        ("What is the hourly rate?", "$18.75", "$18.75 per hour"),
        ("Who signed the memo?", "Eleanor Vance", "The memo was signed by Dr. Eleanor Vance."),
        ("Who is the author of the book?", "Toni Morrison", "The book on the table was written by Toni Morrison."),
        ("What is the man leaning against?", "a wall", "A brick wall"),
        ("What room is this?", "kitchen", "With a stove, a fridge and a sink, this must be the kitchen."),
        ("Is the man wearing a tie?", "no", "His shirt is open at the neck and there's no tie."),
        ("哪个国家的人口最多？", "印度", "印度的人口最多。"),
        ("这张照片是在哪里拍的？", "海滩", "在海滩上"),
    ],
)
def test_gold_words_in_the_role_asked_for_are_correct(question: str, gold: str, said: str) -> None:
    assert judge(said, gold, question=question).verdict == "correct"


@pytest.mark.parametrize("question", ["", "...", "?", "who", "What", "which ("])
def test_a_question_of_a_few_signs_raises_no_error(question: str) -> None:
    assert judge("The winner is (Spain). Then; (.", "Spain", question=question).verdict in ("correct", "undecided")


@pytest.mark.parametrize(
    ("question", "gold", "said"),
    [
        ("How many people are sitting?", "5", "Five people are in the room, and three people are sitting."),
        ("Is there a cat on the table?", "yes", "There is a cat under the table."),
    ],
)
def test_other_numbers_and_another_place_are_no_evidence_for_the_gold_answer(
    question: str, gold: str, said: str
) -> None:
    assert judge(said, gold, question=question).verdict != "correct"


def test_a_number_of_another_form_than_the_gold_text_leaves_it_open() -> None:
    assert judge("17 days", "2w 3d", question="How long does the trip take?").verdict == "undecided"
    assert judge("2w 4d", "2w 3d", question="How long does the trip take?").verdict == "wrong"


@pytest.mark.parametrize("said", ["It runs Android", "It runs on Android.", "It's running Android"])
@pytest.mark.parametrize(
    "question",
    ["Which operating system is used?", "What operating system does the phone use?", "Which system does it have?"],
)
def test_what_says_which_thing_is_asked_for_is_no_verb(question: str, said: str) -> None:
    assert judge(said, "Android", question=question).verdict == "correct"
    assert judge("A building in Rome", "Rome", question="Which building is in Rome?").verdict != "wrong"


@pytest.mark.parametrize(
    ("question", "said", "verdict"),
    [
        ("Is the red car new?", "The blue car is new", "undecided"),
        ("Is the red car new?", "The blue car is not new", "undecided"),
        ("Is the cat asleep?", "The dog is asleep.", "undecided"),
        ("Is the first bar higher?", "The second bar is higher", "undecided"),
        ("Is the man in the coat smiling?", "The man in the hat is smiling.", "undecided"),
        ("Is the red car new?", "The red car is new", "correct"),
        ("Is the red car new?", "The car is new", "correct"),
        ("Is the red car new?", "The big red car is new", "correct"),
        ("Is the red car new?", "The red one isn't new", "wrong"),
        ("Is the fence made of wood?", "It's made of wood.", "correct"),
    ],
)
def test_a_sentence_about_another_subject_is_no_yes_and_no_no(question: str, said: str, verdict: str) -> None:
    assert judge(said, "yes", question=question).verdict == verdict
    opposite = {"correct": "wrong", "wrong": "correct"}.get(verdict, verdict)
    assert judge(said, "no", question=question).verdict == opposite
