"""A chat server that repeats every secret it gets: in its log, its version, its errors and its answers.

A word in the question decides: "refuse" (400), "fail" (500), "hang" (an answer only after minutes), else a text.
Started by hand it prints its address; started as a teacher's server it takes `--port`.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def secrets(self) -> str:
        headers = self.headers.get("authorization"), self.headers.get("x-team")
        return f"your headers are {headers}, my arguments are {sys.argv[1:]}"

    def do_GET(self) -> None:
        pages = {
            "/v1/models": {"data": [{"id": "leaky", "object": "model"}]},
            "/version": {"version": f"1 {self.secrets()}"},
            "/health": {},
        }
        self.reply(pages.get(self.path, {}), 200 if self.path in pages else 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        content = body["messages"][-1]["content"]
        question = content if isinstance(content, str) else content[-1]["text"]
        print(f"asked {question!r}: {self.secrets()}", flush=True)
        if "hang" in question:
            time.sleep(300)
        if "refuse" in question or "fail" in question:
            self.reply({"error": {"message": f"no: {self.secrets()}"}}, 400 if "refuse" in question else 500)
            return
        text = f"<think>{self.secrets()} \x1b]0;owned\x07\u202e</think>\nThe answer is 4."
        usage = {"prompt_tokens": 3, "completion_tokens": 9}
        message = {"role": "assistant", "content": text}
        self.reply({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

    def reply(self, value: object, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 0
    print(f"non-default args: {sys.argv[1:]}", flush=True)
    sys.stderr.write(f"environment: {json.dumps(dict(os.environ))}\n")
    if "--die" in sys.argv:
        raise ValueError(f"cannot start with {sys.argv[1:]}")
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"port {server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
