"""The eight teachers of the steps task behind the OpenAI protocol: a program that reads the picture and solves it.

`distill` starts it as the server of a teacher: teacher.py --model NAME --host HOST --port PORT. It reads the shapes
from the pixels, carries them out, and writes the rationale of the teacher NAME; the seed of the request draws whether
that teacher's fault is made. It knows no gold answer.
"""

import argparse
import base64
import io
import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tiny"))
import steps
import world

_NUMBER = re.compile(r"Start at (\d+):")
_DIFFERENT = 60
"""How far the colour of a shape is from that of an empty cell, summed over red, green and blue."""


def read_cells(pixels: np.ndarray) -> list[str]:
    """The names of the 16 cells of a picture, (96, 96, 3) uint8."""
    size = world.CELL
    return [
        name_cell(pixels[row * size + 1 : (row + 1) * size, column * size + 1 : (column + 1) * size].astype(int))
        for row in range(world.GRID)
        for column in range(world.GRID)
    ]


def name_cell(cell: np.ndarray) -> str:
    """The shape by how much of its frame it fills, the colour by the nearest one."""
    filled = np.abs(cell - (246, 246, 242)).sum(-1) > _DIFFERENT
    if filled.sum() < 40:
        return world.EMPTY
    rows, columns = np.flatnonzero(filled.any(1)), np.flatnonzero(filled.any(0))
    share = filled.sum() / ((rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1))
    shape = "square" if share > 0.92 else "circle" if share > 0.68 else "triangle"
    mean = cell[filled].mean(0)
    colour = min(world.COLOURS, key=lambda name: float(np.abs(mean - world.COLOURS[name]).sum()))
    return f"{colour} {shape}"


def answer(teacher: str, request: dict[str, Any]) -> str:
    """The reply of a teacher to a chat request with one picture."""
    parts = [part for message in request["messages"] for part in message["content"] if isinstance(part, dict)]
    text = " ".join(part["text"] for part in parts if part["type"] == "text")
    url = next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))
    start = _NUMBER.search(text)
    if start is None:
        return "I can only answer questions of the steps task."
    rng = np.random.default_rng(request.get("seed", 0))
    return steps.reply(teacher, read_cells(pixels), int(start[1]), rng)


class Handler(BaseHTTPRequestHandler):
    """GET /health and /v1/models, POST /v1/chat/completions."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a response leaves in one piece
    teacher = ""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send({})
        elif self.path == "/v1/models":
            self._send({"object": "list", "data": [{"id": self.teacher, "object": "model"}]})
        else:
            self._send({"error": {"message": f"there is no {self.path}"}}, 404)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = answer(self.teacher, request)
        self._send(
            {
                "id": "steps",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self.teacher,
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            }
        )

    def _send(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """One line a request would fill the log."""


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    """Connections that may wait: a run opens many at once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=steps.FAULTS)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    Handler.teacher = options.model
    Server((options.host, options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
