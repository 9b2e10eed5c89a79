"""The engine of teachers that are asked by batch files: answers come within a day, for about half the price.

What is submitted is written down first (`batch_records.py`), and stays there. So a run that was killed at any moment
finds its batches again and pays for each batch once. A request in a known batch is answered from this batch's files,
and is sent again only if the files hold no answer.

A row's failure counts only if another row of the same batch has passed, as everywhere (`teacher.engines.outage`). A
batch that failed as a whole, or expired, says nothing about its rows: they go into the next one.
"""

import asyncio
import os
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import orjson

from distill.artifacts.files import storage_errors
from distill.artifacts.layout import BATCHES
from distill.errors import TeacherError
from distill.word_tables import counted
from teacher.engines.circuit_breaker import Breaker
from teacher.engines.connect import Done, EngineSettings, Get, ReadyRequests, task_group
from teacher.engines.http.batch_api import BatchApi, BatchState, line_failure, request_line
from teacher.engines.http.batch_records import FolderRecords, SubmittedBatch
from teacher.engines.http.chat_protocol import completion_from_body, parse_json, request_headers
from teacher.engines.http.exchange import request_failure
from teacher.engines.http.http_engine import HttpEngine
from teacher.engines.http.server_info import OTHER_MODEL, other_model
from teacher.engines.http.streaming import BYTE_ORDER_MARK
from teacher.engines.image_folders import UnreadableError
from teacher.engines.outage import Dependency, Failure
from teacher.messages.completion import Completion
from teacher.messages.request import Request

_CONTROL = "control"
"""The name of a request in a batch that is known to pass; its answer is dropped."""
_TAKEN_AT_ONCE = 256
_RETRY_S = (0.5, 60.0)
_TRIES = 2
"""Batches in which a row fails and others pass: such an API has tried it several times in each."""
Value = TypeVar("Value")


@dataclass(slots=True)
class _BatchAnswers:
    """What the files of a batch say of its requests."""

    completions: dict[str, Completion] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)


class BatchEngine(HttpEngine):
    """An attached server that is asked by batch files."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._folder = settings.folder / BATCHES
        self._records = settings.batch_records or FolderRecords(self._folder)
        self._limits = settings.teacher.batch
        self._breaker = Breaker(settings.max_failure_share)
        where = self._client.replicas[0].url
        self._server = Dependency(f"the batches of teacher '{settings.teacher.name}' at {where}")
        self._rows = Dependency(f"the answers of teacher '{settings.teacher.name}' at {where}")
        self._passed: Request | None = None
        self._under_way = 0
        self._taking, self._recording = asyncio.Lock(), asyncio.Lock()

    @property
    def in_flight(self) -> int:
        return self._under_way

    async def answer(self, get: Get, done: Done) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.glob("*.jsonl"):
            left.unlink()  # of a run that was killed while it wrote or uploaded it
        self._slots, self._done = asyncio.Semaphore(self._limits.at_once), done
        ready = ReadyRequests(get)
        try:
            async with (
                BatchApi(self._settings.teacher, request_headers(self._settings.teacher)) as self._api,
                task_group() as self._group,
            ):
                while window := await ready.window(self._limits.max_requests):
                    async with self._taking:  # what follows from one batch goes into one batch
                        window = await ready.window(self._limits.max_requests, window)
                    await self._start(window)
        finally:
            ready.close()
            self._under_way = 0
            self._server.log_failures()
            self._rows.log_failures()

    async def _start(self, requests: Sequence[Request]) -> None:
        """Answer requests: from each known batch, and the other requests by new batches."""
        known, seen = await self._on_record(self._records.find, {request.id for request in requests})
        groups: dict[str, list[Request]] = {}
        for request in requests:
            groups.setdefault(known[request.id].name if request.id in known else "", []).append(request)
        for name, group in groups.items():
            self._group.create_task(self._finish(group, known[group[0].id] if name else None, seen))

    async def _finish(self, requests: Sequence[Request], batch: SubmittedBatch | None, seen: int) -> None:
        """Ask until every request has an answer, or an error of its own. Raises CircuitOpen, TeacherError.

        `seen` records of batches were there when `batch` was found to be the last one of the requests.
        """
        open_requests = {request.id: request for request in requests}
        failed: Counter[str] = Counter()
        while open_requests:
            async with self._slots:
                if batch is None:
                    batch, beyond, seen = await self._submit(list(open_requests.values()), seen, failed)
                    for request in beyond:
                        del open_requests[request.id]
                    if beyond:
                        self._group.create_task(self._finish(beyond, None, seen))
                    if batch is None:
                        return  # no image could be read, or other batches have the requests
                else:
                    batch = await self._settle(batch, fresh=False)
                    if batch is None:
                        return await self._start(list(open_requests.values()))
                ids = frozenset(batch.ids)
                open_requests = {name: each for name, each in open_requests.items() if name in ids}
                answers = await self._answers(batch, len(open_requests))
            async with self._taking:
                await self._take(answers, open_requests, failed)
            batch = None
            if open_requests and not answers.completions:
                await self._pause()

    async def _take(self, answers: _BatchAnswers, open_requests: dict[str, Request], failed: Counter[str]) -> None:
        """Hand on the completions of a batch, and the errors that are proven to be rows' own."""
        for number, (name, completion) in enumerate(answers.completions.items()):
            if not number % _TAKEN_AT_ONCE:
                await asyncio.sleep(0)  # the journal writes what it holds
            self._rows.passed(open_requests[name].sample.id if name in open_requests else name)
            if request := open_requests.pop(name, None):
                self._passed = request
                self._hand_on(request, completion)
        for name, failure in answers.failures.items():
            if name in open_requests:
                row = open_requests[name].sample.id
                self._rows.failed(row, failure)
                if (failure.remedy or failure.reason == OTHER_MODEL) and not self._rows.passes:
                    raise TeacherError(f"{self._rows.name}: {failure}")
                failed[name] += bool(answers.completions)
                if failed[name] >= self._rows.tries_needed(row, failure):
                    self._rows.blame(row)
                    tries = f" ({counted(failed[name], 'batch', 'batches')}, others passed)"
                    self._hand_on(open_requests.pop(name), Completion(error=f"{failure}{tries}"))

    def _hand_on(self, request: Request, completion: Completion) -> None:
        self._done(request, completion)
        self._breaker.record(self._rows.name, completion.error)

    async def _pause(self) -> None:
        """Wait before rows are asked again of which none has passed. Raises CircuitOpen when that lasts too long."""
        if not self._under_way:  # a batch may fail because others are enqueued
            self._rows.wait(self._settings.patience_s, self._settings.say, idle=True)
        # Each try uploads all images again, so tries become rare where the last ones have changed nothing.
        await asyncio.sleep(self._rows.pause_s(min(_RETRY_S[0], self._limits.poll_s), self._settings.patience_s))

    async def _submit(
        self, requests: Sequence[Request], seen: int, failed: Counter[str]
    ) -> tuple[SubmittedBatch | None, list[Request], int]:
        """A new batch of these requests, the requests that do not fit into its file, and the new number of records.

        Requests that another agent has meanwhile put into a batch are waited for there.
        """
        path = self._folder / f"{secrets.token_hex(8)}.jsonl"
        try:
            names, beyond = await self._write_file(path, requests, failed)
            if not names:
                return None, beyond, seen
            begun = await self._on_record(self._records.begin, names, seen)
            batch: SubmittedBatch | None = None
            if begun is not None:
                batch, seen = begun
                file = await self._patiently(lambda: self._api.upload(path))
                batch = await self._on_record(self._records.note, replace(batch, file=file))
        finally:
            path.unlink(missing_ok=True)
        if batch is not None:
            batch = await self._settle(batch, fresh=True)
        if batch is None:
            written = set(names)
            await self._start([each for each in requests if each.id in written])
        else:
            self._settings.say(f"submitted batch {batch.batch} of {counted(len(names), 'request')}")
        return batch, beyond, seen

    async def _write_file(
        self, path: Path, requests: Sequence[Request], failed: Counter[str]
    ) -> tuple[list[str], list[Request]]:
        """Write requests to a batch file; the ids of the requests in it, and the requests that do not fit."""
        names: list[str] = []
        left = most = self._limits.max_mb * 1e6
        with path.open("wb") as file:
            if all(failed[request.id] for request in requests) and (control := self._control()):
                body = await self._body(control)
                left -= 0 if isinstance(body, Completion) else file.write(request_line(_CONTROL, body))
            for position, request in enumerate(requests):
                body = await self._body(request)
                if isinstance(body, Completion):
                    self._hand_on(request, body)
                    continue
                line = request_line(request.id, body)
                if len(line) > most:
                    self._hand_on(request, _too_large(line, self._limits.max_mb))
                    continue
                if names and (len(line) > left or len(names) >= self._limits.max_requests):
                    return names, list(requests[position:])
                left -= file.write(line)
                names.append(request.id)
            file.flush()
            os.fsync(file.fileno())
        return names, []

    def _control(self) -> Request | None:
        """A request that is known to pass, for a batch of rows that have all failed before."""
        if self._passed is None:
            self._passed = self._settings.known_request()
        return self._passed

    async def _body(self, request: Request) -> bytes | Completion:
        """The body of a request, or the error of its image. Raises CircuitOpen when the images stay away."""
        while True:
            try:
                return b"".join(await self._client.body(request, inside=True))
            except UnreadableError as failure:
                if await self._client.blames_image(failure):
                    return Completion(error=str(failure))

    async def _on_record(self, call: Callable[..., Value], *arguments: Any) -> Value:
        async with self._recording:
            return await asyncio.to_thread(call, *arguments)

    async def _settle(self, batch: SubmittedBatch, *, fresh: bool) -> SubmittedBatch | None:
        """A record once the server has made its batch; None where it makes none.

        Where the record is not `fresh` the batch may have been asked for by a process that was killed, or another
        agent is just about to.
        """
        found: SubmittedBatch | None = batch
        while found is not None and not found.batch:
            if not await self._on_record(self._records.may_submit, found):
                await asyncio.sleep(self._limits.poll_s)
                found = await self._on_record(self._records.look, found)
            elif found.file and (name := await self._create(found, fresh=fresh)):
                found = await self._on_record(self._records.note, replace(found, batch=name))
            else:
                found = await self._on_record(self._records.drop, found)
        return found

    async def _create(self, batch: SubmittedBatch, *, fresh: bool) -> str:
        """The server's id of a batch; "" where the file of an earlier process is no longer there."""
        asked = not fresh

        async def create() -> str:
            nonlocal asked
            # Whether a creation that got no answer has been carried out is for the server to say.
            found = await self._find(batch, fresh=fresh) if asked else None
            asked = True
            try:
                return found or await self._api.create(batch.name, batch.file)
            except Failure as failure:
                if fresh or not failure.refused:
                    raise
                return ""

        return await self._patiently(create)

    async def _find(self, batch: SubmittedBatch, *, fresh: bool) -> str | None:
        try:
            return await self._api.find(batch.name, batch.file)
        except Failure as failure:
            if fresh or not failure.refused:
                raise
            raise TeacherError(
                f"{self._records.place(batch)}: a batch may have been submitted, but {self._server.name} cannot "
                f"list its batches ({failure}); check there: {self._records.advice}"
            ) from None

    async def _answers(self, batch: SubmittedBatch, count: int) -> _BatchAnswers:
        """The answers of a batch, once it has ended."""
        self._under_way += count
        try:
            while not (state := await self._patiently(lambda: self._there(batch, self._api.look(batch.batch)))).ended:
                await asyncio.sleep(self._limits.poll_s)
            answers = _BatchAnswers()
            if state.status == "failed" and not state.files:
                failure = Failure(
                    "server_error", f"batch {batch.batch} has failed: {state.errors or 'no reason given'}"
                )
                self._rows.failed(batch.name, failure)
                return answers
            with storage_errors(self._folder), tempfile.TemporaryFile(dir=self._folder) as file:
                for name in state.files:
                    await self._patiently(partial(self._download, batch, name, file))
                file.seek(0)
                await asyncio.to_thread(self._read_answers, file, answers, max(0.0, time.time() - batch.created))
            self._note_missing(batch, state, answers)
            return answers
        finally:
            self._under_way -= count

    async def _there(self, batch: SubmittedBatch, call: Awaitable[Value]) -> Value:
        """What the server says of a batch. The error for a missing batch says what a user can do."""
        try:
            return await call
        except Failure as failure:
            if failure.kind == "HTTP 404":
                place = self._records.place(batch)
                remedy = f"if it was deleted, remove {place}: its requests are then asked, and paid, again"
                raise Failure(failure.reason, f"{failure}; {remedy}", kind=failure.kind) from None
            raise

    async def _download(self, batch: SubmittedBatch, name: str, into: IO[bytes]) -> None:
        start = into.tell()
        try:
            await self._there(batch, self._api.download(name, into))
        except Failure:
            into.seek(start)
            into.truncate()
            raise

    def _note_missing(self, batch: SubmittedBatch, state: BatchState, answers: _BatchAnswers) -> None:
        missing = len(set(batch.ids) - answers.completions.keys() - answers.failures.keys())
        if missing:
            self._settings.say(f"batch {batch.batch} ({state.status}) has no answer to {counted(missing, 'request')}")
            if not answers.completions:
                detail = f"batch {batch.batch} ({state.status}) has no answers{state.errors and f': {state.errors}'}"
                self._rows.failed(batch.name, Failure("server_error", detail))

    def _read_answers(self, lines: IO[bytes], answers: _BatchAnswers, latency_s: float) -> None:
        """The answers in a batch's files; the first of each request counts, and other lines are ignored."""
        teacher = self._settings.teacher
        for line in lines:
            found = parse_json(line.removeprefix(BYTE_ORDER_MARK))
            if not isinstance(found, dict) or not isinstance(found.get("custom_id"), str):
                continue
            name, response, error = found["custom_id"], found.get("response"), found.get("error")
            if name in answers.completions:
                continue
            try:
                if not isinstance(response, dict) or not response:
                    if lost := line_failure(error):
                        answers.failures[name] = lost
                    continue
                body = response.get("body")
                if response.get("status_code") != 200:
                    status = response.get("status_code")
                    payload = orjson.dumps(body)
                    raise request_failure(teacher, status if isinstance(status, int) else 500, payload, {})
                completion = completion_from_body(body, line[:2000], latency_s, logprobs=bool(teacher.logprobs))
                if problem := other_model(teacher, self._client.info.model, completion.model):
                    raise Failure(OTHER_MODEL, problem)
            except Failure as failure:
                failure.tries = _TRIES
                failure.paid = isinstance(response, dict) and response.get("status_code") == 200
                answers.failures[name] = failure
            else:
                answers.completions[name] = completion
                answers.failures.pop(name, None)

    async def _patiently(self, call: Callable[[], Awaitable[Value]]) -> Value:
        """What a call to the server gives, once it does. Raises CircuitOpen when that takes too long."""
        while True:
            try:
                value = await call()
            except Failure as failure:
                self._server.failed("batch", failure)
                self._server.wait(self._settings.patience_s, self._settings.say, idle=True)
                # A server that asks for hours is looked at as often as one that asks for nothing.
                pause_s = min(failure.wait_s or self._server.pause_s(*_RETRY_S), _RETRY_S[1])
                await asyncio.sleep(min(pause_s, max(_RETRY_S[0], self._settings.patience_s)))
            else:
                self._server.passed("batch")
                return value


def _too_large(line: bytes, max_mb: float) -> Completion:
    size = f"a request of {len(line) / 1e6:.2f} MB is larger than batch.max_mb = {max_mb:g}"
    return Completion(error=f"oversized_request: {size}; a row with fewer or smaller images fits")
