from distill.answers.reference_metrics import vqa_accuracy


def test_vqa_accuracy_is_at_most_1() -> None:
    assert vqa_accuracy("cat", ["cat"] * 10) == 1.0
    assert vqa_accuracy("cat", ["cat"] * 2 + ["dog"] * 8) == (2 * 1 / 3 + 8 * 2 / 3) / 10
