"""What a server says of itself: the model it serves, and how busy it is. Pure but for local checkpoints' digests."""

from pathlib import Path
from typing import Any

from distill.artifacts import directory_sha256
from distill.errors import TeacherError
from distill.recipe import Teacher
from teacher.identity import Model

_GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")


def queue(metrics: str) -> tuple[float, float] | None:
    """Requests that a vLLM server works on and those that wait, from its metrics; None when it does not say."""
    sums: dict[str, float] = {}
    for line in metrics.splitlines():
        if line.startswith(_GAUGES):
            name, _, value = line.partition("{")[0].partition(" ")
            sums[name] = sums.get(name, 0.0) + float(value or line.rsplit(" ", 1)[1])
    running, waiting = (sums.get(name) for name in _GAUGES)
    return None if running is None or waiting is None else (running, waiting)


def model_served(teacher: Teacher, model: Model, url: str, cards: list[Any]) -> str:
    """The name under which a server serves the teacher's model. Raises TeacherError when it serves another."""
    served = {str(card["id"]): card.get("root") for card in cards if isinstance(card, dict) and "id" in card}
    wanted = teacher.served_model or model.name
    if not served or wanted in served:
        return wanted
    listing = ", ".join(served)
    if teacher.served_model:
        raise TeacherError(
            f"{url} does not serve served_model = {wanted!r} of teacher '{teacher.name}'; it serves: {listing}"
        )
    roots = {name: root for name, root in served.items() if _same_place(root, model)}
    if len(roots) >= 1:
        return next(iter(roots))
    if len(served) == 1 and next(iter(served.values())) in (None, next(iter(served))):
        return next(iter(served))
    raise TeacherError(
        f"{url} serves {listing}, not model = {model.name!r} of teacher '{teacher.name}'; start the right server, or "
        "set served_model if it is the same model under another name"
    )


def _same_place(root: object, model: Model) -> bool:
    if not isinstance(root, str):
        return False
    if not model.local:
        return root == model.name
    return Path(root).is_dir() and model.revision == directory_sha256(Path(root).resolve())
