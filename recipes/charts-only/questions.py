"""ChartQA as published, to one JSON object a question, with the table behind each chart in `meta`.

    python charts-only/questions.py "ChartQA/ChartQA Dataset"

writes questions.jsonl (from `train`) and test.jsonl (from `test`) into that folder. Pictures stay where they are.
Does not repair tables: those that were read off a picture by machine have gaps and wrong cells, as published.
"""

import json
import sys
from pathlib import Path
from typing import Any

SPLITS = {"train": "questions.jsonl", "test": "test.jsonl"}
WRITERS = ("human", "augmented")
"""People, and a model: human questions need more steps."""


def rows(dataset: Path, split: str) -> list[dict[str, Any]]:
    """The questions of one split; `difficulty` says who wrote them."""
    folder = dataset / split
    found = []
    for writer in WRITERS:
        for row in json.loads((folder / f"{split}_{writer}.json").read_text(encoding="utf-8")):
            table = folder / "tables" / f"{Path(row['imgname']).stem}.csv"
            found.append(
                {
                    "image": f"{split}/png/{row['imgname']}",
                    "question": row["query"],
                    "answer": row["label"],
                    "difficulty": writer,
                    "meta": {"table": table.read_text(encoding="utf-8")} if table.is_file() else {},
                }
            )
    return found


def main(dataset: Path) -> None:
    for split, name in SPLITS.items():
        lines = [json.dumps(row, ensure_ascii=False) for row in rows(dataset, split)]
        (dataset / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
