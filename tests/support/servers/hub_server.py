"""A stand-in for the part of the Hugging Face hub's API that an upload uses, with large files by git-lfs.

POST /api/repos/create, POST /api/models/OWNER/NAME/preupload/main, POST /OWNER/NAME.git/info/lfs/objects/batch,
PUT /lfs/OID, POST /api/models/OWNER/NAME/commit/main; the same under datasets/
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_a-token-that-may-write"


class HubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, Any]] = {}
        """By kind and name: `private`, and the files of each commit, by path."""
        self.blobs: dict[str, bytes] = {}
        self.uploads = 0
        self.refuse: dict[str, int] = {}
        """Status to answer once, by a part of the path."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def files(self, repo: str) -> dict[str, bytes]:
        held: dict[str, bytes] = self.repos[repo]["files"]
        return held


class _Handler(BaseHTTPRequestHandler):
    server: HubServer

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _refused(self) -> bool:
        part = next((part for part in self.server.refuse if part in self.path), None)
        if part is not None:
            self._answer({"error": "planted"}, self.server.refuse.pop(part))
        elif not self.path.startswith("/lfs/") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer({"error": "Invalid credentials"}, 401)
        else:
            return False
        return True

    def do_PUT(self) -> None:
        body = self._body()
        if not self._refused():
            assert hashlib.sha256(body).hexdigest() == self.path.removeprefix("/lfs/")
            self.server.blobs[self.path.removeprefix("/lfs/")] = body
            self.server.uploads += 1
            self._answer({})

    def do_POST(self) -> None:
        body = self._body()
        if self._refused():
            return
        path = self.path.partition("?")[0]
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('type', 'model')}s/{asked.get('organization') or 'me'}/{asked['name']}"
            status = 409 if name in self.server.repos else 200
            self.server.repos.setdefault(name, {"private": _is_private(asked), "files": {}})
            self._answer({"url": f"{self.server.address}/{name}"}, status)
        elif path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif path.endswith("/info/lfs/objects/batch"):
            objects = [self._lfs_object(each) for each in json.loads(body)["objects"]]
            self._answer({"transfer": "basic", "objects": objects})
        elif "/preupload/" in path:
            files = [
                {
                    "path": each["path"],
                    "uploadMode": "lfs" if each["path"].endswith((".safetensors", ".parquet")) else "regular",
                    "shouldIgnore": False,
                }
                for each in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        else:
            repo = path.removeprefix("/api/").partition("/commit/")[0]
            self._commit(self.server.files(repo), [json.loads(line) for line in body.splitlines()])
            self._answer({"success": True, "commitOid": "c0", "commitUrl": f"{self.server.address}/{repo}/commit/c0"})

    def _lfs_object(self, asked: dict[str, Any]) -> dict[str, Any]:
        upload = {"upload": {"href": f"{self.server.address}/lfs/{asked['oid']}", "header": {}}}
        return {**asked, **({} if asked["oid"] in self.server.blobs else {"actions": upload})}

    def _commit(self, held: dict[str, bytes], lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                held[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                held[value["path"]] = self.server.blobs[value["oid"]]


def _is_private(asked: dict[str, Any]) -> bool:
    """Newer clients name the visibility, older ones say whether it is private."""
    return bool(asked["visibility"] == "private" if "visibility" in asked else asked["private"])


@contextmanager
def hub() -> Iterator[HubServer]:
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
