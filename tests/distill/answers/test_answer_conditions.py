"""Cases for conditions of the judge that few answers meet, by family: what is accepted, and what is not."""

from typing import Any

import pytest

from distill.answers import judge
from distill.answers.answer_types import looks_like
from distill.answers.consistency import compare_conclusion
from distill.answers.final_answer import final_answer

CORRECT, WRONG, UNDECIDED = "correct", "wrong", "undecided"
LIGHT, BED, DOOR = "Is the light on?", "Is the cat on the bed?", "Ist die Tür offen?"
MONTH, TRUCKS, CHANGE = (
    "Which month had the most rain?",
    "How many trucks are there?",
    "What was the change in sales?",
)
SHARES = "What percent of phones use Android and iOS?"
ALL = ["red", "blue", "green", "all of the above"]

Case = tuple[str, str, str, dict[str, Any]]


def case(said: str, gold: str, verdict: str, **arguments: Any) -> Case:
    return said, gold, verdict, arguments


FAMILIES: dict[str, list[Case]] = {
    "an option without text is never chosen": [
        case("?!", "B", UNDECIDED, options=["red", ""], answer_type="choice"),
        case("(B) !", "B", CORRECT, options=["", "red"]),
        case("it must be the red car here", "A", CORRECT, options=["red car", ""]),
    ],
    "a rejected letter is not chosen": [
        case("(A) is wrong; it is C", "C", CORRECT, options=["red", "blue", "green"]),
        case("(A) is wrong; it is C", "A", WRONG, options=["red", "blue", "green"]),
    ],
    "a gold letter beyond the options is compared like any other": [
        case("B or C", "A", WRONG, answer_type="choice"),
        case("A or B", "D", WRONG, answer_type="choice", options=["tin", "zinc", "iron"]),
        case("A and B", "D", UNDECIDED, options=ALL),
        case("all of them", "D", CORRECT, options=ALL),
    ],
    "an option is its value, sign and unit": [
        case("50 percent", "B", CORRECT, options=["50", "50%"]),
        case("50 percent", "A", WRONG, options=["50", "50%"]),
        case("five pears", "B", CORRECT, options=["5 apples", "5 pears"]),
        case("five pears", "A", WRONG, options=["5 apples", "5 pears"]),
    ],
    "an option with a denial is not the one without": [
        case(
            "The force is smaller in Pair 2", "A", UNDECIDED, options=["The force is not smaller in Pair 2.", "Same"]
        ),
    ],
    "an option with one letter more or less is this option where no other is near": [
        case("granitte", "A", CORRECT, options=["granite", "obsidian"]),
        case("granitte", "A", UNDECIDED, options=["granite", "granites"]),
    ],
    "a span of days is not one of its days": [
        case("March 3-5", "March 3", UNDECIDED, answer_type="date"),
        case("March 3", "March 3-5", UNDECIDED, answer_type="date"),
        case("March 3-5", "March 3-5 and March 8-9", UNDECIDED, answer_type="date"),
        case("March 3-5 and March 8-9", "March 3-5", WRONG, answer_type="date"),
    ],
    "a month is the answer to a question for a month only": [
        case("March 2020", "March", CORRECT, answer_type="date", question=MONTH),
        case("March 5", "March", UNDECIDED, answer_type="date", question=MONTH),
        case("March", "March 5", UNDECIDED, answer_type="date", question=MONTH),
        case("March", "March 2020", UNDECIDED, answer_type="date", question=MONTH),
        case("March 2020", "March", UNDECIDED, answer_type="date", question="When did it rain?"),
    ],
    "the order of a date in figures is that of the other date, if this has a day": [
        case("March 5, 2020", "3/5/2020", CORRECT, answer_type="date", question="When was it?"),
        case("5 March 2020", "3/5/2020", UNDECIDED, answer_type="date", question="When was it?"),
        case("March 2020", "3/5/2020", UNDECIDED, answer_type="date", question="When was it?"),
        case("03/2020", "3/5/2020", UNDECIDED, answer_type="date", question="When was it?"),
    ],
    "a card expires in the month of its two figures": [
        case("12/25", "12/2025", CORRECT, answer_type="date"),
        case("12/26", "12/2025", WRONG, answer_type="date"),
        case("11/25", "12/2025", WRONG, answer_type="date"),
    ],
    "a year has two figures or all four, and no decimals": [
        case("98", "1998", UNDECIDED, answer_type="year"),
        case("98", "1999", WRONG, answer_type="year"),
        case("100", "2000", WRONG, answer_type="year"),
        case("'98", "1998", CORRECT, answer_type="year"),
        case("1998.5 and 2003 are there", "2003", CORRECT, answer_type="year"),
        case("10,000", "10000", CORRECT, answer_type="year"),
    ],
    "no such thing is zero of it": [
        case("There are none.", "0", CORRECT, answer_type="number", question=TRUCKS),
        case("There are none.", "2", WRONG, answer_type="number", question=TRUCKS),
        case("There are no trucks", "2", WRONG, answer_type="number"),
        case("No trucks, one bus", "0", CORRECT, answer_type="number", question=TRUCKS),
        case("No trucks, one bus", "2", UNDECIDED, answer_type="number", question=TRUCKS),
    ],
    "a number in parentheses is negative in a table": [
        case("(1,500)", "-1500", CORRECT, answer_type="number"),
        case("(1,500)", "-1600", WRONG, answer_type="number"),
        case("-x", "(1,500)", WRONG, answer_type="number"),
    ],
    "an exclamation mark is a factorial or emphasis": [
        case("5!", "120", CORRECT, answer_type="number"),
        case("5!", "5", CORRECT, answer_type="number"),
        case("5!", "7", WRONG, answer_type="number"),
        case("120", "5!", CORRECT),
        case("5", "5!", UNDECIDED),
        case("121", "5!", WRONG),
    ],
    "a number of a part and its total is the part": [
        case("5 of the twelve people", "5", CORRECT, answer_type="number"),
        case("5 of the twelve people", "12", UNDECIDED, answer_type="number"),
        case("seven of the 12 people", "7", CORRECT, answer_type="number"),
        case("12 people, seven of them seated", "7", UNDECIDED, answer_type="number", question="How many people?"),
    ],
    "a fall is a negative change": [
        case("it fell by 7.3%", "-7.3%", CORRECT, question=CHANGE),
        case("it fell by 7.3%", "7.3%", UNDECIDED, question=CHANGE),
        case("it fell by 7.3%", "7.3%", CORRECT, question="By how much did sales fall?"),
        case("0% drop", "0%", CORRECT, question=CHANGE),
    ],
    "a rate answers a question for its period": [
        case("$15 per day", "$15", CORRECT, question="What is the daily wage?"),
        case("$15 per day", "$15", UNDECIDED, question="What is the hourly wage?"),
        case("$15 per hour", "$15", CORRECT, question="What is the hourly wage?"),
    ],
    "a calorie of food is a kilocalorie": [
        case("100 kcal", "100 calories", CORRECT, question="How many calories?"),
        case("100 kcal", "100", CORRECT, question="How many calories?"),
        case("100 kcal", "100 cal", WRONG, question="How much energy?"),
    ],
    "a count of another colour is another count": [
        case("3 blue cars", "3", UNDECIDED, question="How many red cars are there?"),
        case("3 blue cars", "3", CORRECT, question="How many cars are there?"),
    ],
    "a rounded number is right for a fraction with three digits, and open else": [
        case("0.667", "2/3", CORRECT, answer_type="number"),
        case("0.67", "2/3", UNDECIDED, answer_type="number"),
        case("0.7", "2/3", WRONG, answer_type="number"),
        case("1.23", "1.234", UNDECIDED, answer_type="number"),
        case("0.13", "1/8", UNDECIDED, answer_type="number"),
        case("about 10", "10.3", UNDECIDED, answer_type="number"),
        case("about 9", "9.3", WRONG, answer_type="number"),
    ],
    "units of one letter more or less are other units": [
        case("0.005 mW", "5 uW", CORRECT),
        case("5 mW", "5 MW", WRONG),
        case("5 Mb", "5 MB", UNDECIDED),
        case("33°F", "0°C", UNDECIDED),
        case("34°F", "0°C", WRONG),
        case("1100 MB", "1 GB", UNDECIDED),
        case("1101 MB", "1 GB", WRONG),
    ],
    "a ratio has no part of zero": [
        case("0:0", "0.25", WRONG, answer_type="number", question="What is the ratio?"),
        case("1:0", "5", WRONG, answer_type="ratio"),
        case("0.5", "0:0", WRONG, answer_type="ratio"),
        case("π/0 rad", "180°", WRONG),
        case("π rad", "180°", CORRECT),
        case("π rad", "120°", WRONG),
        case("1:3", "0.333333333333", CORRECT, answer_type="ratio"),
        case("1:3", "0.3333", WRONG, answer_type="ratio"),
        case("2:3:4", "0.5", WRONG, answer_type="ratio"),
    ],
    "a limit has its number, side and unit": [
        case("5 or less", "at most 5", CORRECT),
        case("5 or more", "at least 5", CORRECT),
        case("less than 5", "at most 5", UNDECIDED),
        case("at least 5 km", "at least 5", CORRECT, answer_type="text"),
        case("at least 5 km", "at least 5 kg", WRONG, answer_type="text"),
    ],
    "a value with its name is the value, another name another answer": [
        case("x = 3", "3", CORRECT, answer_type="text"),
        case("x = 4", "3", WRONG, answer_type="list"),
        case("x = dog", "dog", UNDECIDED, answer_type="text"),
        case("max = 3", "3", CORRECT, answer_type="text"),
    ],
    "yes and no by repeating the question": [
        case("It is off", "no", CORRECT, question=LIGHT),
        case("It's off and cold", "no", CORRECT, question=LIGHT),
        case("It is bright", "yes", UNDECIDED, question=LIGHT),
        case("It is not off", "yes", UNDECIDED, question=LIGHT),
        case("It is off", "false", CORRECT, question=LIGHT),
        case("It is off", "true", WRONG, question=LIGHT),
        case("It is under the bed", "yes", UNDECIDED, question=BED),
        case("No, it is under the bed", "no", CORRECT, question=BED),
        case("No is seen", "no", UNDECIDED, question="Is there an effusion?"),
        case("The left door is open", "no", UNDECIDED, question="Is the right door open?"),
        case("There is a closed door", "no", UNDECIDED, question="Is there an open door?"),
        case("No dog is not here", "no", UNDECIDED, question="Is there a dog?"),
        case("!!", "yes", WRONG),
    ],
    "yes and no in other languages": [
        case("जी", "हाँ", CORRECT),
        case("जी हाँ", "हाँ", CORRECT),
        case("जी नहीं", "हाँ", WRONG),
        case("!!", "oui", UNDECIDED),
        case("Die Tür ist nicht offen", "nein", CORRECT, question=DOOR),
        case("Die Tür ist nicht geschlossen", "ja", UNDECIDED, question=DOOR),
        case("nicht", "nein", UNDECIDED, question=DOOR),
        case("Das Auto ist blau und neu", "nein", UNDECIDED, question="Ist das Auto rot?"),
        case("没戴", "不是", CORRECT, question="他戴帽子了吗?"),
        case("没戴", "不是", UNDECIDED, question="他没戴帽子吗?"),
        case("没", "不是", UNDECIDED, question="他戴帽子了吗?"),
        case("他不戴帽子", "不是", UNDECIDED, question="他不戴帽子吗?"),
    ],
    "a name of the question's person may have more given names": [
        case("JOE BIDEN", "Biden", CORRECT, question="Who won?"),
        case("Ludwig van Beethoven", "Beethoven", CORRECT, question="Who is the author?"),
        case("Mr. Lee Smith", "Dr. Lee Smith", CORRECT),
        case("Smith 2, John", "John Smith 2", UNDECIDED),
        case("Anna Bella Carla Dora Elsa Fina", "Fina", CORRECT, question="Who won?"),
        case("Anna Bella Carla Dora Elsa Fina Gala", "Gala", UNDECIDED, question="Who won?"),
        case("Anna Smith 3", "Smith", UNDECIDED, question="Who won?"),
    ],
    "codes, telephone numbers and streets in other writings": [
        case("QR ST99", "QRST 99", CORRECT),
        case("AB 12 34", "AB1234", UNDECIDED),
        case("Bahnhofstr. 5", "Bahnhofstraße 5", CORRECT),
        case("Bahnhofstr. 5", "Bahnhofstrand 5", UNDECIDED),
        case("1234567", "123-4567", CORRECT),
        case("123456", "12-34-56", UNDECIDED),
        case("+49 30 1234567", "030 1234567", CORRECT),
        case("+49 30 1234567", "+43 30 1234567", WRONG),
        case("2010-14", "2010-2014", CORRECT),
        case("2011-14", "2010-2014", WRONG),
    ],
    "words turned, split or shortened": [
        case("U S A", "USA", CORRECT),
        case("a b", "ab", WRONG),
        case("over all", "overall", CORRECT),
        case("to do", "todo", UNDECIDED),
        case("Q2 2020", "2020 Q2", CORRECT),
        case("2020 in May Paris", "Paris May in 2020", UNDECIDED),
        case("HM", "Hennes Mauritz", UNDECIDED),
        case("H&M", "Hennes and Mauritz", CORRECT),
        case("naïve", "naive", CORRECT),
        case("año", "ano", UNDECIDED),
    ],
    "a code stands alone in a sentence": [
        case("the code ABCDE123", "ABCDE123", CORRECT, answer_type="text"),
        case("It is not AB12345678", "AB12345678", UNDECIDED, answer_type="text"),
        case("AB12345678 and CD22222222", "AB12345678", UNDECIDED, answer_type="text"),
    ],
    "ranges have both ends and their unit": [
        case("people aged 18 to 24", "18-24", CORRECT),
        case("65+", "65 and older", CORRECT),
        case("65+", "65", UNDECIDED),
        case("2-8 °C", "2 °C to 8 °C", CORRECT),
        case("2 °C to 8 °C", "2-8 °F", UNDECIDED),
        case("8-2", "2-8", WRONG),
    ],
    "a label in a sentence": [
        case("It leaves from track 4.", "track 4", CORRECT),
        case("It does not leave from track 4.", "track 4", UNDECIDED),
        case("Figure 3 b", "Figure 4 c", WRONG),
        case("Figure 3.0", "Figure 3", UNDECIDED),
    ],
    "a maker and its model": [
        case("It is a Dell Inspiron 15", "Dell", CORRECT, question="Which brand is it?"),
        case("It is a Dell Inspiron 15 Pro Max", "Dell", UNDECIDED, question="Which brand is it?"),
        case("A Dell Inspiron", "Dell", UNDECIDED, question="What is it?"),
        case("Dell beats Lenovo", "Dell", UNDECIDED, question="Which company wins?"),
    ],
    "words beside a noun": [
        case("two dogs", "dog", CORRECT),
        case("a red blue car", "blue", UNDECIDED),
        case("the small left", "left", UNDECIDED),
        case("the president's car", "car", CORRECT),
        case("The President's car", "car", UNDECIDED),
        case("He didn’t wear a hat", "hat", UNDECIDED, question="What does he wear?"),
        case("left side color", "left side", CORRECT, answer_type="text"),
        case("swing his bat", "swing the bat", CORRECT),
        case("Rome, Paris", "Rome", UNDECIDED),
    ],
    "an option with one letter less, beside one that differs in five": [
        case("granite", "A", CORRECT, options=["granitte", "magnetite"]),
        case("granitte", "A", CORRECT, options=["granite", "garnet"]),
    ],
    "a span of time needs the half of the day": [
        case("3 pm to 5 pm", "from 3:00 pm to 5:00 pm", CORRECT, answer_type="text"),
        case("3:10 to 5:10", "3:10 pm to 5:10 pm", UNDECIDED, answer_type="text"),
        case("3:10 pm to 5:20 pm", "3:10 pm to 5:10 pm", WRONG, answer_type="text"),
    ],
    "numbers belong to the names of the question": [
        case("Phones: Android 71%, iOS 27%", "71%, 27%", CORRECT, answer_type="list", question=SHARES),
        case("iOS 27%, Android 71%", "71%, 27%", CORRECT, answer_type="list", question=SHARES),
        case("iOS 71%, Android 27%", "71%, 27%", UNDECIDED, answer_type="list", question=SHARES),
        case("use Android 71%, iOS 27%", "71%, 27%", CORRECT, answer_type="list", question=SHARES),
    ],
    "powers of units in words": [
        case("5 meters cubed", "5 m^3", CORRECT),
        case("5 meters squared", "5 m^2", CORRECT),
        case("5 meters cubed", "5 m^2", WRONG),
        case("5 apples squared", "5 m^2", UNDECIDED),
    ],
    "equal numbers of different things are several numbers": [
        case("There are 7 apples and 7 pears on it", "7", UNDECIDED, answer_type="number"),
        case("7 apples and again 7 apples", "7", CORRECT, answer_type="number"),
        case("7 7", "7", UNDECIDED, answer_type="number"),
        case("7 and 7", "7", CORRECT, answer_type="number"),
    ],
    "mil is a million, and may be a thousand": [
        case("five mil", "5000000", CORRECT),
        case("five mil", "5000", UNDECIDED),
        case("five mil", "50", WRONG),
    ],
    "a correction counts, and a check that confirms": [
        case("It is 6. Wait, let me check. Yes, it is correct.", "6", CORRECT),
        case("It is 6. Wait, let me check. It is 7.", "6", WRONG),
        case("It is 6. Wait, let me check. Yes, that is wrong.", "6", UNDECIDED),
        case("Wait, it is 6.", "6", CORRECT),
    ],
    "a number of another year or case is open": [
        case("Last year it was 5.", "5", UNDECIDED, answer_type="number", question="What is it?"),
        case("Last year it was 5.", "5", CORRECT, answer_type="number", question="What was it last year?"),
        case("Last year it was 5.", "abc", WRONG, answer_type="number", question="What is it?"),
        case("In 2019 it was 5.", "5", UNDECIDED, answer_type="number", question="What was it in 2020?"),
        case("In 2020 it was 5.", "5", CORRECT, answer_type="number", question="What was it in 2020?"),
        case("It would be 5 if it rained.", "5", UNDECIDED, answer_type="number", question="What is it?"),
        case("It would be 5 if it rained.", "5", CORRECT, answer_type="number", question="What would it be?"),
        case("It would be 7 if it rained. It is 5.", "5", CORRECT, answer_type="number", question="What is it?"),
    ],
    "a share has its percentage": [
        case("1/2", "50%", CORRECT),
        case("2/2", "100%", UNDECIDED),
        case("it fell by 5%", "5%", CORRECT, question="By how much did the growth fall?"),
    ],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_of_a_family_has_its_verdict(family: str) -> None:
    judged = [(said, gold, judge(said, gold, **rest).verdict) for said, gold, _, rest in FAMILIES[family]]
    assert judged == [(said, gold, verdict) for said, gold, verdict, _ in FAMILIES[family]]


def test_comparisons_of_items_and_numbers_of_a_text_are_bounded() -> None:
    def listed(letter: str, count: int) -> str:
        return ", ".join(f"{letter}{number}" for number in range(count))

    assert judge(listed("w", 250), listed("a", 4), "list").verdict == WRONG
    assert judge(listed("w", 143), listed("a", 7), "list").reason == "too_many_items"
    assert judge("2 3 " * 100, "7").verdict == WRONG
    assert judge("2 3 " * 100 + "2", "7").verdict == UNDECIDED


@pytest.mark.parametrize(
    ("text", "answer", "marked"),
    [
        ("İstanbul. The answer is 5", "5", True),
        ("Die anſwer. The answer is 5", "5", True),
        ('"answer": "Lisbon"', "Lisbon", True),
        ('"Exit" is on it', 'Exit" is on it', False),
        ("so it is \\boxed", "so it is \\boxed", False),
        ("Lisbonです", "Lisbon", False),
    ],
)
def test_an_answer_is_found_in_rare_letters_and_forms(text: str, answer: str, marked: bool) -> None:
    found = final_answer(text)
    assert (found.text, found.marked) == (answer, marked)


@pytest.mark.parametrize(
    ("gold", "kind", "known"),
    [
        ("3", "date", False),
        ("noon", "number", False),
        ("3:30", "time", True),
        ("3", "number", True),
        ("3", "text", True),
    ],
)
def test_a_gold_answer_looks_like_its_type(gold: str, kind: str, known: bool) -> None:
    assert looks_like(gold, kind) is known


def test_a_rationale_that_concludes_another_choice_contradicts_its_answer() -> None:
    options = ["red", "blue", "green"]
    assert compare_conclusion("We look at it. So it is blue.", "B", "choice", options) == "agrees"
    assert compare_conclusion("We look at it. So it is blue.", "A", "choice", options) == "contradicts"
    assert compare_conclusion("We look at it. Blue!", "A", "choice", options) is None
