"""Reference metrics with the definitions of the papers that introduced them.

They return a score and know no answer types; `distill.answers.verdicts` is the judge that the toolkit itself uses.
"""

from collections.abc import Sequence

from rapidfuzz.distance import LCSseq, Levenshtein

from distill.answers.vqa_normalize import normalise


def relaxed_accuracy(prediction: str, gold: str, *, tolerance: float = 0.05) -> float:
    """ChartQA's relaxed accuracy (Masry et al. 2022): numbers within 5 % of the gold, anything else exactly equal.

    A percent sign divides by 100; a gold of zero allows no tolerance; text is compared in lower case, as the
    pix2struct implementation does.
    """
    predicted_value, gold_value = _float(prediction), _float(gold)
    if predicted_value is not None and gold_value:
        return float(abs(predicted_value - gold_value) / abs(gold_value) <= tolerance)
    return float(prediction.lower() == gold.lower())


def _float(text: str) -> float | None:
    try:
        return float(text.rstrip("%")) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        return None


def anls(prediction: str, golds: str | Sequence[str], *, threshold: float = 0.5) -> float:
    """Average normalised Levenshtein similarity of one answer (Biten et al. 2019): the best gold, zero from a
    normalised distance of `threshold` on. Case and surrounding space do not count."""
    predicted = " ".join(prediction.lower().split())
    best = 0.0
    for gold in [golds] if isinstance(golds, str) else golds:
        gold_text = " ".join(gold.lower().split())
        distance = Levenshtein.normalized_distance(predicted, gold_text)
        best = max(best, 1.0 - distance if distance < threshold else 0.0)
    return best


def vqa_accuracy(prediction: str, votes: Sequence[str]) -> float:
    """VQA's accuracy (Antol et al. 2015) against the answers of all annotators, mostly 10: 1/3 for each equal answer.

    At most 1, and averaged over the ways to leave one annotator out, which makes human accuracy comparable. Texts are
    compared as TextVQA's leaderboard does (`distill.answers.vqa_normalize`). Without votes the result is 0.
    """
    predicted = normalise(prediction)
    agreeing = [normalise(vote) == predicted for vote in votes]
    scores = [min(1.0, (sum(agreeing) - agrees) / 3) for agrees in agreeing]
    return sum(scores) / len(scores) if scores else 0.0


def exact_match(prediction: str, golds: str | Sequence[str]) -> float:
    """1 when the prediction is one of the golds, character by character."""
    return float(prediction in ([golds] if isinstance(golds, str) else golds))


def rouge_l(prediction: str, golds: str | Sequence[str]) -> float:
    """ROUGE-L (Lin 2004): F-measure of the longest common subsequence of words, with the best gold.

    The rouge-score package's words without stemming, and its numbers. Its own scorer loads for two seconds and takes
    22 ms for two texts of 300 words, this one 0.4 ms.
    """
    from rouge_score.tokenize import tokenize

    predicted_words = tokenize(prediction, None)
    best = 0.0
    for gold in [golds] if isinstance(golds, str) else golds:
        gold_words = tokenize(gold, None)
        common = LCSseq.similarity(predicted_words, gold_words)
        best = max(best, 2 * common / (len(predicted_words) + len(gold_words)) if common else 0.0)
    return best
