"""A server of a few pages that stay the same."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Pages = dict[str, tuple[int, str, bytes]]
"""By path: status, address that it leads to, body. Other paths end the connection without an answer."""


@contextmanager
def pages(answers: Pages) -> Iterator[str]:
    """A server of a few pages."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path not in answers:
                self.close_connection = True
                return
            status, place, body = answers[self.path]
            self.send_response(status)
            for name, value in (("location", place), ("content-length", str(len(body)))):
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()
