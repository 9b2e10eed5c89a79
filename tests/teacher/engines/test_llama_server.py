"""A llama.cpp server that verifies an export: what is asked of it, and what is said of one that cannot be used."""

import sys
from pathlib import Path

import pytest

from distill.errors import TeacherError
from distill.types import ImageRef, Sample
from teacher.engines.llama_cpp.llama_server import serve_gguf

# Tokens are the characters' numbers; an image has two tokens of the number 7.
FAKE = """\
import http.server, json, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, content, status=200):
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(content)
    def do_GET(self):
        told = {"build_info": "b1"} if self.path == "/props" else {}
        self.answer(json.dumps(told).encode())
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/apply-template":
            parts = body["messages"][0]["content"]
            texts = ["<__media__>" if part["type"] == "image_url" else part["text"] for part in parts]
            return self.answer(json.dumps({"prompt": "".join(texts)}).encode())
        if self.path == "/tokenize":
            return self.answer(json.dumps({"tokens": [ord(letter) for letter in body["content"]]}).encode())
        said = body["prompt"] if isinstance(body["prompt"], str) else body["prompt"]["prompt_string"]
        if said.endswith("refuse"):
            return self.answer(b"not this one", 400)
        tokens = len(said.replace("<__media__>", "77"))
        self.answer(COMPLETION)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
REPLY = 'json.dumps({"tokens_evaluated": tokens, "tokens": [1, body["n_predict"]]}).encode()'


def ask(folder: Path, *questions: str, reply: str = REPLY, images: int = 1) -> list[tuple[list[int], list[int]]]:
    (folder / "fake.py").write_text(FAKE.replace("COMPLETION", reply))
    refs = (ImageRef(sha256="0" * 64, path="p.png"),) * images
    samples = [Sample(id=question, images=refs, question=question) for question in questions]
    with serve_gguf(
        folder / "model.gguf",
        folder / "mmproj.gguf",
        command=[sys.executable, str(folder / "fake.py")],
        context=100,
        max_new_tokens=5,
        image=lambda ref: b"png",
        image_ids=[7, 7],
    ) as server:
        assert server.engine == "llama.cpp b1"
        return server.ask(samples)


def test_prompts_have_the_tokens_of_their_images_and_replies_their_own(tmp_path: Path) -> None:
    assert ask(tmp_path, "ab") == [([7, 7, 97, 98], [1, 5])]
    assert ask(tmp_path, "ab", images=0) == [([97, 98], [1, 5])]


def test_a_prompt_of_another_length_than_the_server_counted_is_not_compared(tmp_path: Path) -> None:
    assert ask(tmp_path, "ab", reply=REPLY.replace("tokens,", "99,", 1)) == [([], [1, 5])]


def test_a_refused_question_is_an_error_with_what_the_server_said(tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match=r"llama.cpp's server refused refuse: HTTP 400: not this one"):
        ask(tmp_path, "refuse")


@pytest.mark.parametrize("reply", ["b'[]'", "b'{}'", "b'a page'", "b'{\"tokens_evaluated\": 2}'"])
def test_a_server_that_gives_no_tokens_is_a_plain_error(tmp_path: Path, reply: str) -> None:
    with pytest.raises(TeacherError, match=r"llama.cpp's server .*ab"):
        ask(tmp_path, "ab", reply=reply, images=0)
