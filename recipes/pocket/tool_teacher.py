"""The tool teacher as a server that speaks the protocol of OpenAI's chat API, for `backend = "openai"`.

    python tool_teacher.py                          # serve on 127.0.0.1:8077 until interrupted
    python tool_teacher.py -- distill run ...       # serve while a command runs, and end with its exit code

Local, for one user: it checks no key and has no limits.
"""

import base64
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image
from setup import PACKAGES
from tools import load

PORT = 8077
MODEL = "pocket-tools"
Answering = Callable[[Image.Image, str], tuple[str, str]]


def make_server(teacher: Answering, port: int = PORT) -> ThreadingHTTPServer:
    """A server that has one picture looked at at a time: the tools use one core each way."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.endswith("/models"):
                self._send(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
            else:
                self._send(404, {"error": {"message": "not here"}})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                image, question = read_request(body)
            except (KeyError, ValueError, OSError, StopIteration) as error:
                self._send(400, {"error": {"message": f"one image and one question are needed: {error}"}})
                return
            with lock:
                rationale, answer = teacher(image, question)
            self._send(200, completion(rationale, answer))

        def _send(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def read_request(body: dict[str, Any]) -> tuple[Image.Image, str]:
    """The image and the text of the last message."""
    parts = body["messages"][-1]["content"]
    address = next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    question = next(part["text"] for part in parts if part["type"] == "text")
    content = base64.b64decode(address.partition("base64,")[2])
    return Image.open(io.BytesIO(content)).convert("RGB"), question.strip()


def completion(rationale: str, answer: str) -> dict[str, Any]:
    text = f"<think>\n{rationale}\n</think>\n\n{answer}"
    message = {"role": "assistant", "content": text}
    # No tokenizer is at work here: words stand for tokens.
    usage = {"prompt_tokens": 0, "completion_tokens": len(text.split()), "total_tokens": len(text.split())}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "pocket", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": usage}


def main(words: list[str]) -> int:
    server = make_server(load(PACKAGES))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"the tool teacher answers at http://127.0.0.1:{PORT}/v1", flush=True)
    try:
        if words[:1] == ["--"]:
            return subprocess.run(words[1:], check=False).returncode
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
