"""Raw completions to reasoning, answer and outcome."""

import time

import pytest

from distill.rationale import enclose
from distill.types import Outcome
from teacher.messages.parse import parse

C, TT, TA, EA = Outcome.COMPLETE, Outcome.TRUNCATED_THINKING, Outcome.TRUNCATED_ANSWER, Outcome.EMPTY_ANSWER
RE, RF, MA = Outcome.REPETITION, Outcome.REFUSAL, Outcome.MALFORMED

LOOP = "so 1 + 1 = 2. " * 12
LONG_LOOP = "so 1 + 1 = 2. " * 40

# text, mode, finish_reason -> reasoning, answer, outcome
TABLE = [
    # complete, by tags of several families
    ("<think>\n3 + 4 = 7\n</think>\n\n7", "auto", "stop", "3 + 4 = 7", "7", C),
    ("<think>3 + 4 = 7</think>7", "tags", "stop", "3 + 4 = 7", "7", C),
    ("3 + 4 = 7\n</think>\n\n7", "auto", "stop", "3 + 4 = 7", "7", C),
    ("3 + 4 = 7\n</think>\n\n7", "tags", "stop", "3 + 4 = 7", "7", C),
    ("[THINK]3 + 4[/THINK]7", "auto", "stop", "3 + 4", "7", C),
    ("◁think▷3 + 4◁/think▷ 7", "auto", "stop", "3 + 4", "7", C),
    ("<thinking>a</thinking><answer>7</answer>", "auto", "stop", "a", "7", C),
    ("<think></think>\n\n7", "auto", "stop", "", "7", C),
    # the final answer is taken out of its phrase and its marks
    ("<think>a</think>\n\nThe answer is **7**.", "auto", "stop", "a", "7", C),
    ("<think>a</think>**Answer:** 7", "auto", "stop", "a", "7", C),
    ("<think>a</think>\n### Final Answer: `7`", "auto", "stop", "a", "7", C),
    ("<think>a</think>Adding both gives $\\boxed{\\frac{7}{2}}$.", "auto", "stop", "a", "\\frac{7}{2}", C),
    ("<think>a</think>**7**", "auto", "stop", "a", "7", C),
    ("<think>a</think>7.", "auto", "stop", "a", "7", C),
    ("<think>a</think>3.5", "auto", "stop", "a", "3.5", C),
    ("<think>a</think>**a** and **b**", "auto", "stop", "a", "**a** and **b**", C),
    ("<think>a</think>There are two cats.", "auto", "stop", "a", "There are two cats.", C),
    # no tags: the last cue, else all of it is the answer
    ("3 + 4 is 7.\nAnswer: 7", "auto", "stop", "3 + 4 is 7.", "7", C),
    ("Count first. The answer is 7.", "auto", "stop", "Count first.", "7", C),
    ("Count: 3 + 4. So the answer is \\boxed{7}.", "auto", "stop", "Count: 3 + 4.", "7", C),
    ("We get 3 + 4 = \\boxed{7}", "auto", "stop", "We get 3 + 4 =", "7", C),
    ("Answer: maybe 6. No. Answer: 7", "auto", "stop", "Answer: maybe 6. No.", "7", C),
    ("Some steps. <answer>7</answer>", "auto", "stop", "Some steps.", "7", C),
    ("Seven apples", "auto", "stop", "", "Seven apples", C),
    ("The answer is not obvious.\n" + "Look closely at every row. " * 20, "auto", "stop", "", None, C),
    # none splits nothing; field trusts what the server composed
    ("3 + 4 is 7. Answer: 7", "none", "stop", "", "3 + 4 is 7. Answer: 7", C),
    ("<think>a</think>7", "field", "stop", "a", "7", C),
    ("Count. Answer: 7", "field", "stop", "", "7", C),
    # truncated inside the thinking, inside the answer
    ("<think>\n3 + 4", "auto", "length", "3 + 4", "", TT),
    ("3 + 4", "tags", "length", "3 + 4", "", TT),
    ("<think>a</think>The tot", "auto", "length", "a", "The tot", TA),
    ("<think>a</think>", "auto", "length", "a", "", TA),
    ("We count 3 and", "auto", "length", "", "We count 3 and", TA),
    # ended inside the thinking, or nothing after it
    ("<think>\n3 + 4", "auto", "stop", "3 + 4", "", EA),
    ("<think>a</think>\n \n", "auto", "stop", "a", "", EA),
    ("", "auto", "stop", "", "", EA),
    ("  \n", "none", "stop", "", "", EA),
    ("Some steps. Answer:", "auto", "stop", "Some steps.", "", EA),
    # repetition: the server says so, or the tail is a loop
    ("<think>a", "auto", "repetition", "a", "", RE),
    (f"<think>{LOOP}", "auto", "length", None, "", RE),
    (f"<think>a</think>{LOOP}", "auto", "length", "a", None, RE),
    (f"<think>{LONG_LOOP}", "auto", "stop", None, "", RE),
    ("<think>" + "1" * 300, "auto", "length", None, "", RE),
    (f"<think>{LOOP}</think>7", "auto", "stop", None, "7", C),
    ("<think>empty, empty, empty, empty, empty, empty</think>0", "auto", "stop", None, "0", C),
    # refusals are short and open with it
    ("I'm sorry, but I can't help with that.", "auto", "stop", "", None, RF),
    ("<think>Is this safe?</think>I cannot assist with this request.", "auto", "stop", "Is this safe?", None, RF),
    ("I’m sorry, I can’t assist with that request.", "auto", "stop", "", None, RF),
    ("As an AI language model, I do not see pictures", "auto", "stop", "", None, RF),
    ("whatever", "auto", "content_filter", "", "whatever", RF),
    ("I cannot tell the two bars apart; both are 7", "auto", "stop", "", None, C),
    # malformed: nested, several, text before, missing where demanded
    ("<think>a<think>b</think>7", "auto", "stop", None, "7", MA),
    ("<think>a</think>b<think>c</think>7", "auto", "stop", None, "7", MA),
    ("Sure! <think>a</think>7", "auto", "stop", "a", "7", MA),
    ("<think>a</think>7</think>", "auto", "stop", None, None, MA),
    ("<think>a</think>7<think>", "auto", "stop", None, "7", MA),
    ("3 + 4 is 7", "tags", "stop", "3 + 4 is 7", "", MA),
]


@pytest.mark.parametrize(("text", "mode", "finish", "reasoning", "answer", "outcome"), TABLE)
def test_a_completion_has_one_outcome(text, mode, finish, reasoning, answer, outcome) -> None:  # type: ignore[no-untyped-def]
    parsed = parse(text, mode=mode, finish_reason=finish)
    assert parsed.outcome == outcome
    assert reasoning is None or parsed.reasoning == reasoning
    assert answer is None or parsed.answer == answer


def test_the_table_shows_every_outcome_but_error() -> None:
    assert {row[-1] for row in TABLE} == set(Outcome) - {Outcome.ERROR}


@pytest.mark.parametrize("text", [row[0] for row in TABLE if row[1] == "auto"])
def test_any_prefix_of_a_completion_is_parsed_without_failing(text: str) -> None:
    for end in range(len(text)):
        for mode in ("auto", "field", "tags", "none"):
            assert parse(text[:end], mode=mode, finish_reason="length").outcome in set(Outcome)  # type: ignore[arg-type]


def test_a_reasoning_field_is_written_back_so_that_the_text_suffices() -> None:
    whole = parse(enclose("3 + 4", "7"), mode="auto")
    assert (whole.reasoning, whole.answer, whole.outcome) == ("3 + 4", "7", C)
    cut = parse(enclose("3 +", ""), mode="auto", finish_reason="length")
    assert (cut.reasoning, cut.outcome) == ("3 +", TT)
    ended_inside = parse(enclose("3 + 4", ""), mode="auto", finish_reason="stop")
    assert ended_inside.outcome == EA
    assert enclose("", "7") == "7"


def test_a_long_ordinary_text_is_no_loop() -> None:
    rows = " ".join(f"Row {row}: red circle, empty, blue square." for row in range(1, 60))
    assert parse(f"<think>{rows}", finish_reason="length").outcome == TT


@pytest.mark.timing
def test_a_long_text_is_parsed_in_milliseconds() -> None:
    import time

    text = "<think>" + "a b a b c " * 20_000 + "</think>7"
    started = time.perf_counter()
    parse(text)
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize("blank", ["\n", " ", "\t", "\n\n \n", "\u3000"])
@pytest.mark.parametrize(("finish_reason", "times"), [("length", 100), ("stop", 400)])
def test_a_text_that_ends_in_blanks_without_end_is_a_loop(blank: str, finish_reason: str, times: int) -> None:
    assert parse("<think>3 + 4 is 7" + blank * times, finish_reason=finish_reason).outcome == RE
    assert parse("<think>3 + 4</think>7" + blank * times, finish_reason=finish_reason).outcome == RE


def test_some_blank_lines_after_an_answer_are_no_loop() -> None:
    assert parse("<think>3 + 4</think>7" + "\n" * 40).outcome == C


@pytest.mark.parametrize("unit", [" ", "answer ", "the final answer\n", "so, ", "**", ".**", "{", "<answer>", "$$"])
@pytest.mark.timing
def test_the_time_of_parsing_grows_as_the_text_does(unit: str) -> None:
    def seconds(characters: int) -> float:
        texts = [prefix + unit * (characters // len(unit)) for prefix in ("", "\\boxed{", "answer", "<think>")]
        started = time.process_time()
        for text in texts:
            parse(text)
            parse(text + ".**", finish_reason="length")
        return time.process_time() - started

    # What grows with the square of the length takes 256 times as long: 16,000 blanks took 13 s.
    assert seconds(1 << 18) < 1.0


@pytest.mark.parametrize(
    ("text", "reasoning", "answer", "outcome"),
    [
        ('{"reasoning": "Two and two.", "answer": "4"}', "Two and two.", "4", "complete"),
        ('{"answer": 4, "steps": ["One.", "Two."], "sure": true}', "One.\nTwo.\ntrue", "4", "complete"),
        ('```json\n{"why": "Because.", "answer": "red"}\n```', "Because.", "red", "complete"),
        ('<think>Hm.</think>\n{"why": "Because.", "answer": "red"}', "Hm.\nBecause.", "red", "complete"),
        ('{"reasoning": "The answer is 5.", "answer": "4."}', "The answer is 5.", "4.", "complete"),
        ('{"reasoning": "Two and two."}', '{"reasoning": "Two and two."}', "", "malformed"),
        ('["answer"]', '["answer"]', "", "malformed"),
        ("The answer is 4", "The answer is 4", "", "malformed"),
        ('{"reasoning": "x", "answer": ""}', "x", "", "empty_answer"),
        ('{"reasoning": "x", "answer": null, "more": null}', "x", "", "empty_answer"),
        ("[" * 5000, "[" * 5000, "", "repetition"),
    ],
)
def test_a_json_object_is_an_answer_and_what_leads_to_it(
    text: str, reasoning: str, answer: str, outcome: str
) -> None:
    found = parse(text, mode="json")
    assert (found.reasoning, found.answer, str(found.outcome)) == (reasoning, answer, outcome)


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ('{"rationale": "The bar of 2014 is 7.", "answer": "7"}', "The bar of 2014 is 7.", "7"),
        ('The chart shows 7.\n{"final_answer": 7}', "The chart shows 7.", "7"),
        (
            'Two rows of {5, 6}.\n```json\n{"steps": ["One.", "Two."], "answer": "11"}\n```',
            "Two rows of {5, 6}.\nOne.\nTwo.",
            "11",
        ),
        ('<think>Hm.</think>\n{"why": {"rows": [2]}, "answer": "2"}', 'Hm.\n{"rows":[2]}', "2"),
        ('It prints {"answers": 3}', "", 'It prints {"answers": 3}'),
        ("The answer is \\frac{1}{2}", "", "\\frac{1}{2}"),
    ],
)
def test_a_json_object_with_an_answer_at_the_end_is_split_in_any_text(text: str, reasoning: str, answer: str) -> None:
    found = parse(text)
    assert (found.reasoning, found.answer, str(found.outcome)) == (reasoning, answer, "complete")


def test_a_json_object_that_was_cut_is_a_truncated_answer() -> None:
    assert str(parse('{"reasoning": "Two and', mode="json", finish_reason="length").outcome) == "truncated_answer"


@pytest.mark.parametrize("block", ["```\n42\n```", "```text\n42\n```", "\n```\n42\nmore\n```\n", "```\n42"])
def test_an_answer_in_a_code_block_is_what_the_block_holds(block: str) -> None:
    assert parse(f"<think>I count.</think>**Answer:**\n{block}").answer == "42"
