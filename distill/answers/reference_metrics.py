"""Reference metrics with the definitions of the papers that introduced them.

They know two outcomes only and no types; `distill.answers.verdicts` is the judge that the toolkit itself uses.
"""

from collections.abc import Sequence

from rapidfuzz.distance import LCSseq, Levenshtein

from distill.answers.vqa_normalize import normalise


def relaxed_accuracy(prediction: str, gold: str, *, tolerance: float = 0.05) -> float:
    """ChartQA's relaxed accuracy (Masry et al. 2022): numbers within 5 % of the gold, anything else exactly equal.

    A percent sign divides by 100; a gold of zero allows no tolerance; text is compared in lower case, as the
    pix2struct implementation does.
    """
    said, meant = _float(prediction), _float(gold)
    if said is not None and meant:
        return float(abs(said - meant) / abs(meant) <= tolerance)
    return float(prediction.lower() == gold.lower())


def _float(text: str) -> float | None:
    try:
        return float(text.rstrip("%")) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        return None


def anls(prediction: str, golds: str | Sequence[str], *, threshold: float = 0.5) -> float:
    """Average normalised Levenshtein similarity of one answer (Biten et al. 2019): the best gold, zero from a
    normalised distance of `threshold` on. Case and surrounding space do not count."""
    said = " ".join(prediction.lower().split())
    best = 0.0
    for gold in [golds] if isinstance(golds, str) else golds:
        meant = " ".join(gold.lower().split())
        distance = Levenshtein.normalized_distance(said, meant)
        best = max(best, 1.0 - distance if distance < threshold else 0.0)
    return best


def vqa_accuracy(prediction: str, votes: Sequence[str]) -> float:
    """VQA's accuracy (Antol et al. 2015) against what every annotator said, usually ten: a third for each who agrees.

    At most 1, and averaged over the ways to leave one annotator out, so that people can be measured alike. Texts are
    compared as TextVQA's leaderboard does (`distill.answers.vqa_normalize`). Without votes nothing can be right.
    """
    said = normalise(prediction)
    agreeing = [normalise(vote) == said for vote in votes]
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

    said = tokenize(prediction, None)
    best = 0.0
    for gold in [golds] if isinstance(golds, str) else golds:
        meant = tokenize(gold, None)
        common = LCSseq.similarity(said, meant)
        best = max(best, 2 * common / (len(said) + len(meant)) if common else 0.0)
    return best
