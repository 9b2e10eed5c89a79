"""The web server of `distill view`: this machine only, a token in the first address.

It writes labels, lines of the run's log, and the policy into the recipe that was named; nothing else. The token of
the address becomes a cookie that scripts cannot read. Requests need it, and must name this server as their host;
requests that change something must come from its own page. So other pages of the browser and other host names for
127.0.0.1 cannot reach the run. The page fetches nothing from elsewhere.
"""

import asyncio
import math
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from importlib import resources
from pathlib import Path
from typing import Any, Final

import duckdb
import orjson
from aiohttp import web

from distill.artifacts.integrity import require_run
from distill.commands.ask import AFTER, BEFORE, TEACHER
from distill.data.images import image_files
from distill.errors import BusyError, DataError, DistillError, ImageError, StaleError, StorageError
from distill.recipe.loading import load
from distill.recipe.sections.data import MAX_PIXELS
from distill.run_log import recording
from distill.trace_records.human_labels import LABELS, LabelJournal, compare_with_judge, read_labels
from distill.types import ImageRef
from distill.view.asking import Asking
from distill.view.facets import FACETS
from distill.view.policy import compare_policy, policy, write_policy
from distill.view.refusals import ConnectionLog, RefusalLog, page_message
from distill.view.student_facts import ReplyQuery, Students
from distill.view.trace_facts import trace_facts
from distill.view.trace_table import Query, TraceTable
from filters.what_if import LastTraces

HOST: Final = "127.0.0.1"
_PAGE: Final = {
    "/": ("index.html", "text/html"),
    "/view.css": ("view.css", "text/css"),
    "/view.js": ("view.js", "text/javascript"),
    "/labels.js": ("labels.js", "text/javascript"),
    "/bench.js": ("bench.js", "text/javascript"),
    "/shared.js": ("shared.js", "text/javascript"),
    "/pictures.js": ("pictures.js", "text/javascript"),
    "/students": ("students.html", "text/html"),
    "/students.js": ("students.js", "text/javascript"),
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MAX_BODY: Final = 64 * 1024
_PAGE_ROWS: Final = 200
_READ_AT_ONCE: Final = 20_000
"""Records of journals that one request reads: half a second. The page asks on until all are read."""
_SHOWN_ID: Final = 80
_END_S: Final = 2.0
"""How long Ctrl-C waits for answers."""
_IDLE_S: Final = 2.0
"""Without a request for traces for so long, the server prepares what may be asked for next."""
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ViewServer:
    """One run behind HTTP. `port` is known once it listens. `recipe`: the file that *Policy* may write rules to."""

    def __init__(
        self, run: Path, other: Path | None = None, *, recipe: Path | None = None, token: str | None = None
    ) -> None:
        self.run, self.recipe, self.port = run, recipe, 0
        self.token = token or secrets.token_urlsafe(24)
        self.table = TraceTable(run)
        self.students = Students(run, other)
        self.compared = LastTraces()
        self.journal: LabelJournal | None = None
        self.labelling_off = ""
        """Why no label is taken; empty where labels are."""
        self.asking: Asking | None = None
        self._labels_given = 0
        self._asked_at = math.inf
        """When traces were asked for last, by `time.monotonic`."""
        self.refusals = RefusalLog()
        self._labelling = asyncio.Lock()
        try:
            self.journal = LabelJournal(run)
        except (BusyError, StorageError) as error:  # another view labels, or the run is read-only: this one shows
            self.labelling_off = f"labelling is off: {error}"
        self.labels = self.journal.labels if self.journal else read_labels(run)
        self.table.set_labels({trace: label.label for trace, label in self.labels.items()})

    @property
    def address(self) -> str:
        """Where a browser begins."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._guard], client_max_size=_MAX_BODY)
        for path in _PAGE:
            application.router.add_get(path, self._page)
        application.router.add_get("/api/state", self._state)
        application.router.add_get("/api/traces", self._traces)
        application.router.add_get("/api/traces/{id}", self._trace)
        application.router.add_get("/api/agreement", self._agreement)
        application.router.add_get("/api/students", self._students)
        application.router.add_get("/api/replies", self._replies)
        application.router.add_get("/picture/{sample}/{index}", self._image)
        application.router.add_post("/api/labels", self._label)
        application.router.add_post("/api/ask", self._ask)
        application.router.add_get("/api/policy", self._policy)
        application.router.add_post("/api/policy", self._compare)
        application.router.add_post("/api/policy/write", self._write_policy)
        application.on_shutdown.append(self._stop_asking)
        return application

    async def serve(self, port: int, on_start: Callable[[str], None]) -> None:
        """Listen until cancelled. `port` 0 takes a free one.

        `on_start` gets the address, and on a second line why labelling is off where it is.
        """
        # Queries of a page that went on are not started; those that run end by themselves.
        runner = web.AppRunner(
            self.application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_END_S,
            max_line_size=_MAX_BODY,  # the user may search for a long pasted text
            logger=ConnectionLog(self.refusals),
        )
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, HOST, port).start()
            except OSError as error:
                raise BusyError(f"port {port} of {HOST}: {error.strerror}; choose another --port") from None
            self.port = runner.addresses[0][1]
            on_start("\n".join(filter(None, (self.address, self.labelling_off))))
            await self._prepare()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _prepare(self) -> None:
        """Count what the first page shows, while a person opens it. Then prepare searches and *Policy*.

        A million traces take 5 s for that, so it waits until the person reads a trace and asks for nothing else.
        """
        with suppress(DistillError):  # the page tells it
            await asyncio.to_thread(self.table.prepare)
        while (idle := time.monotonic() - self._asked_at) < _IDLE_S:
            await asyncio.sleep(min(_IDLE_S, _IDLE_S - idle))
        with suppress(DistillError, OSError, duckdb.Error):  # of a run that is being changed; the page asks again
            await asyncio.to_thread(self.table.scanned)
            await asyncio.to_thread(lambda: compare_policy(self.table, policy(self.table), self.compared))

    def close(self) -> None:
        self.table.close()
        if self.journal is not None:
            self.journal.close()

    # --- who may ask ---------------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            refusal = self._refusal(request)
            if refusal is None and request.method == "GET" and request.path.startswith(("/api/", "/picture/")):
                await asyncio.to_thread(self.table.require_run)  # not before a POST: its page may close meanwhile
            response = refusal if refusal is not None else await handler(request)
        except web.HTTPException as error:
            response = _Failure(error.status, error.reason)
        except (StaleError, BusyError) as error:  # the run is being changed; the same request may be answered later
            response = _Failure(409, page_message(error))
        except DistillError as error:
            response = _Failure(400, page_message(error))
        except ConnectionError:  # the client has closed the connection
            response = _Failure(400, "the connection ended before the whole request was there")
        if isinstance(response, _Failure):
            self.refusals.note(request.method, request.path, response.status, response.why)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _refusal(self, request: web.Request) -> web.StreamResponse | None:
        """Why a request is not answered; None if it is."""
        if request.host not in (f"{HOST}:{self.port}", f"localhost:{self.port}"):
            return _Failure(403, "this server answers to its own address only")
        given = request.query.get("token", "") if request.path == "/" else ""
        if given and secrets.compare_digest(given, self.token):
            welcome = web.Response(status=303, headers={"Location": "/"})
            welcome.set_cookie(self._cookie, self.token, httponly=True, samesite="Strict", path="/")
            return welcome
        if not secrets.compare_digest(request.cookies.get(self._cookie, ""), self.token):
            return _Failure(403, "open the address that `distill view` printed: it holds the token")
        if request.method != "GET" and request.headers.get("Origin") != f"http://{request.host}":
            return _Failure(403, "changes are taken from this server's own page only")
        return None

    @property
    def _cookie(self) -> str:
        return f"distill_view_{self.port}"

    # --- answers -----------------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.Response:
        name, kind = _PAGE[request.path]
        body = (resources.files("distill.view") / "page" / name).read_bytes()
        return web.Response(body=body, content_type=kind, charset="utf-8")

    async def _state(self, _: web.Request) -> web.Response:
        await asyncio.to_thread(self.table.refresh, _READ_AT_ONCE)
        facts = {
            "run": self.run.resolve().name,
            "filtered": self.table.filtered,
            "unread": self.table.unread,
            "version": [*(self.table.version or ()), self._labels_given],  # that of what a page shows
            "columns": self.table.columns.names,
            "descriptions": {
                column.name: (column.metadata or {}).get(b"description", b"").decode()
                for column in self.table.columns
            },
            "facets": FACETS,
            "labels": LABELS,
            "labelled": len(self.labels),
            "labelling_off": self.labelling_off,
            "recipe": str(self.recipe or ""),
        }
        return _json(facts)

    async def _traces(self, request: web.Request) -> web.Response:
        asked = request.query
        chosen = {name: asked.getall(name) for name in FACETS if name in asked}
        self._asked_at = time.monotonic()
        query = Query(
            where=asked.get("where", ""),
            words=asked.get("words", ""),
            chosen=chosen,
            find={name: asked.get(f"find.{name}", "") for name in FACETS},
            order=asked.get("order", ""),
            offset=_number(asked.get("offset", "0")),
            limit=min(_PAGE_ROWS, _number(asked.get("limit", "50"))),
        )
        return _json(await asyncio.to_thread(self.table.search, query))

    async def _trace(self, request: web.Request) -> web.Response:
        self._asked_at = time.monotonic()
        facts = await asyncio.to_thread(trace_facts, self.table, request.match_info["id"])
        label = self.labels.get(facts["id"])
        return _json(facts | {"label": label and {"label": label.label, "note": label.note, "at": label.at}})

    async def _agreement(self, _: web.Request) -> web.Response:
        verdicts = await asyncio.to_thread(self.table.verdicts, list(self.labels))
        return _json(compare_with_judge(self.labels, verdicts))

    async def _students(self, _: web.Request) -> web.Response:
        return _json({"run": self.run.resolve().name} | await asyncio.to_thread(self.students.overview))

    async def _replies(self, request: web.Request) -> web.Response:
        asked = request.query
        query = ReplyQuery(
            **{name: asked.get(name, "") for name in ("right", "wrong", "domain", "words")},
            offset=_number(asked.get("offset", "0")),
            limit=min(_PAGE_ROWS, _number(asked.get("limit", "20"))),
        )
        return _json(await asyncio.to_thread(self.students.questions, query))

    async def _image(self, request: web.Request) -> web.Response:
        name, index = request.match_info["sample"], _number(request.match_info["index"])
        asked = (await asyncio.to_thread(self.table.samples, [name])).get(name)
        references = asked["images"] if asked else (await asyncio.to_thread(self.students.images)).get(name, [])
        if index >= len(references):
            raise web.HTTPNotFound(reason="no such image")
        data, kind = await asyncio.to_thread(_portable, references[index])
        return web.Response(body=data, content_type=kind)

    async def _label(self, request: web.Request) -> web.Response:
        if self.journal is None:
            return _Failure(409, self.labelling_off)
        values = await _object(request)
        # A page that goes away stops a label at no moment but before it or after it.
        return await asyncio.shield(self._keep_label(self.journal, values))

    async def _keep_label(self, journal: LabelJournal, values: dict[str, Any]) -> web.Response:
        trace = str(values.get("trace", ""))
        async with self._labelling:  # labels keep their order
            await asyncio.to_thread(self.table.refresh, _READ_AT_ONCE)
            if not await asyncio.to_thread(self.table.holds, trace):
                return _Failure(404, f"no trace {trace[:_SHOWN_ID]!r} in {self.run}; no label was stored")
            label = await asyncio.to_thread(journal.add, values)  # the answer is sent when it is on the disk
            await asyncio.to_thread(self.table.set_label, label.trace, label.label)
            self._labels_given += 1
        return _json({"labelled": len(self.labels)})

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        """The replies of the run's models to a question about the image of a sample: one JSON object a line."""
        values = await _object(request)
        name = str(values.get("sample_id"))
        sample = (await asyncio.to_thread(self.table.samples, [name])).get(name)
        if sample is None or len(sample["images"]) != 1:
            raise web.HTTPBadRequest(reason="models are asked about samples with one image")
        kinds = (BEFORE, AFTER, TEACHER) if values.get("teachers") else (BEFORE, AFTER)
        question = str(values.get("question") or sample["question"])
        image = await asyncio.to_thread(image_files.read_bytes, ImageRef(**sample["images"][0]))
        if self.asking is not None:
            return _Failure(409, "another question to the models is in progress; wait for the replies")
        self.asking = asking = Asking(self.run, image, question, kinds)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"} | _HEADERS)
        try:
            await response.prepare(request)
            while (told := await asyncio.to_thread(asking.next)) is not None:
                await response.write(orjson.dumps(told) + b"\n")
        except ConnectionResetError:
            pass  # the page was closed
        finally:
            asking.stop()
            await asyncio.shield(asyncio.to_thread(asking.close))
            self.asking = None
        return response

    async def _stop_asking(self, _: web.Application) -> None:
        if self.asking is not None:
            self.asking.stop()

    async def _policy(self, _: web.Request) -> web.Response:
        return _json(await asyncio.to_thread(policy, self.table))

    async def _compare(self, request: web.Request) -> web.Response:
        asked = await _object(request)
        return _json(await asyncio.to_thread(compare_policy, self.table, asked, self.compared))

    async def _write_policy(self, request: web.Request) -> web.Response:
        if self.recipe is None:
            return _Failure(409, "no recipe was named; start `distill view RUN --recipe RECIPE`")
        await asyncio.to_thread(write_policy, self.table, await _object(request), self.recipe)
        return _json({"next": f"distill filter {shlex.join([str(self.recipe), '--run', str(self.run), '--fresh'])}"})


async def _object(request: web.Request) -> dict[str, Any]:
    try:
        values = orjson.loads(await request.read())
    except orjson.JSONDecodeError:
        values = None
    if not isinstance(values, dict):
        raise web.HTTPBadRequest(reason="the body is no JSON object")
    return values


def _portable(reference: dict[str, Any]) -> tuple[bytes, str]:
    try:
        return image_files.portable(image_files.read_bytes(ImageRef(**reference)), max_pixels=MAX_PIXELS)
    except ImageError as error:
        raise web.HTTPNotFound(reason="the image cannot be read") from error


def _number(value: str) -> int:
    if not value.isdecimal() or len(value) > 12:
        raise web.HTTPBadRequest(reason="not a whole number")
    return int(value)


def _json(values: Any) -> web.Response:
    return web.Response(body=orjson.dumps(values, default=str), content_type="application/json")


class _Failure(web.Response):
    """A refusal as JSON, with its reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(status=status, body=orjson.dumps({"error": why}), content_type="application/json")
        self.why = why


def view_run(
    run: Path, other: Path | None = None, *, recipe: Path | None = None, port: int, on_start: Callable[[str], None]
) -> None:
    """Serve a run until interrupted, beside the students of `other`. *Policy* may write to `recipe`.

    Raises DataError where a run or recipe is not there.
    """
    if recipe is not None:
        load(recipe)
        if not recipe.is_file():
            raise DataError(f"--recipe {recipe}: a shipped recipe is not written to; name a file of your own")
    if other is not None:
        require_run(other)
    with (
        closing(ViewServer(run, other, recipe=recipe)) as server,
        suppress(KeyboardInterrupt),  # Ctrl-C is how a person ends it
        recording(run, "view"),
    ):
        asyncio.run(server.serve(port, on_start))
