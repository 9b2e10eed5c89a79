"""The HTTP client of OpenAI-compatible chat servers (vLLM, SGLang, llama.cpp, hosted APIs).

Keeps as many requests in flight as the servers can work on, and takes each from the queue only when a server has a
free slot. Retries a failed request until it passes, until the row is proven to be the cause, or until an outage has
lasted too long (`teacher.engines.outage`). A circuit breaker stops a run in which too many rows fail by themselves.
Does not start servers and does not parse their answers.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from distill import redact
from distill.errors import TeacherError
from distill.word_tables import counted
from teacher.engines.circuit_breaker import Breaker
from teacher.engines.connect import ClientSettings, Done, Get, task_group
from teacher.engines.http.chat_protocol import request_headers
from teacher.engines.http.choices import ask_choices
from teacher.engines.http.concurrency import FoundLimit, new_limit
from teacher.engines.http.exchange import CONNECTION, CONTROL_AFTER_S, TIMEOUT, Control, Exchange
from teacher.engines.http.replicas import Replica, available, choose_other, take_slot
from teacher.engines.http.request_bodies import Body, RequestBodies
from teacher.engines.http.server_info import OTHER_MODEL, follow_queue, other_model, require_same_name, server_info
from teacher.engines.image_folders import Folders, UnreadableError
from teacher.engines.image_parts import ImageParts
from teacher.engines.outage import MAX_WAIT_S, Dependency, Failure, RowFailures, log
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.request import Request, plain_request

_POLL_S = 0.1
_MAX_WAITING = 1024
"""Rows that wait for a retry; while there are more, no new request is taken from the queue."""
_DRAIN_S = 0.05
_CHECK_S = (0.5, 15.0)
"""Between two looks at a server that is not up: at first, and later."""
_ISOLATE_AFTER, _FAIL_AFTER = 2, 4
"""After 2 crashes a request is retried alone; after 4 it fails as `server_lost`. One more
than in `vllm_offline.py`, because a server that did not answer for a while and came back counts as a crash, too."""


class ChatClient:
    """One teacher behind one or several URLs. Use as an async context manager; `check` comes before `answer`."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        urls: Sequence[str],
        media_root: Path | None = None,
        found: FoundLimit | None = None,
        revive: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """The servers may read the files below `media_root`. `revive` is asked to bring back a server that broke."""
        self._settings = settings
        self.teacher = teacher = settings.teacher
        self.replicas = [Replica(url.rstrip("/"), new_limit(teacher, found)) for url in urls]
        self.info = EngineInfo(
            model=teacher.served_model or teacher.model, engine={"name": teacher.backend, "version": ""}
        )
        self._revive = revive
        self._breaker = Breaker(settings.max_failure_share)
        self._folders = Folders(patience_s=settings.patience_s, say=settings.say)
        self._images = ImageParts(
            teacher,
            self._folders,
            max_pixels=settings.max_pixels,
            urls=urls,
            media_root=media_root,
            upcoming=settings.upcoming,
        )
        self._bodies = RequestBodies(teacher, self._images)
        self._shown_urls = [redact.url(replica.url) for replica in self.replicas]
        self._servers = Dependency(f"teacher '{teacher.name}' at {', '.join(self._shown_urls)}")
        self._control: Control | None = None
        self._known_request: Callable[[], Request | None] | None = settings.known_request
        self._plain_request = plain_request(teacher)
        self._next_control = 0.0
        self._slot_free = asyncio.Event()
        self._alone_lock = asyncio.Lock()
        self._isolated = self._waiting = self._first_tries = 0
        self._drawing = False
        self._first_alone = teacher.capabilities.may_charge
        """Whether one request at a time is under way: until the right model answers, each may be paid in vain."""

    @property
    def in_flight(self) -> int:
        return sum(replica.in_flight for replica in self.replicas)

    async def __aenter__(self) -> Self:
        self._headers = request_headers(self.teacher)
        self._exchange = Exchange(self.teacher, self._headers, self._on_begun)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._exchange.close()
        self._servers.log_failures()

    async def check(self, *, patience_s: float | None = None) -> None:
        """Ask every server for its models, and wait until one answers; the others are used as soon as they answer.

        Raises CircuitOpen when none is up within the patience, TeacherError when one serves another model.
        """
        patience_s = self._settings.patience_s if patience_s is None else patience_s
        while True:
            results = await asyncio.gather(*map(self._check, self.replicas), return_exceptions=True)
            for failure in results:
                if isinstance(failure, Failure):
                    self._servers.failed("check", failure)
                elif isinstance(failure, BaseException):
                    raise failure
            if any(replica.checked for replica in self.replicas):
                self._servers.recovered()
                return
            self._servers.wait(patience_s, self._settings.say, idle=True)
            await asyncio.sleep(min(self._servers.pause_s(*_CHECK_S), max(_DRAIN_S, patience_s / 4)))

    async def _check(self, replica: Replica) -> None:
        served = await server_info(self._headers, self.teacher, self._settings.model, replica.url)
        if any(each.checked for each in self.replicas):
            require_same_name(self.teacher, replica.url, served.model, self.info.model)
        self.info = replace(served, facts={"urls": self._shown_urls, **served.facts})
        replica.checked = True

    async def _check_later(self, replica: Replica) -> None:
        """Repeat the check of a server that was not up, until it is up."""
        reported = False
        while not replica.checked:
            try:
                await self._check(replica)
            except (Failure, TeacherError) as failure:
                if not reported:
                    text = f"continues without {redact.url(replica.url)} until it answers: {failure}"
                    log.warning("%s", text)
                    self._settings.say(text)
                    reported = True
                await asyncio.sleep(_CHECK_S[1])
        self._slot_free.set()

    async def answer(self, get: Get, done: Done) -> None:
        """Send every request that `get` gives until it gives None; call `done` for each as soon as it is finished.

        A request is taken from the queue only when a server has a free slot. Raises CircuitOpen. Then, and when
        `done` raises, the requests in flight are given up.
        """
        self._servers.recovered()  # rows of an earlier call that an outage ended are no failures of this call
        followed = self.replicas if self.teacher.capabilities.shows_queue else ()
        watchers = [asyncio.create_task(follow_queue(self._headers, each, self._slot_free.set)) for each in followed]
        watchers += [asyncio.create_task(self._check_later(each)) for each in self.replicas if not each.checked]
        try:
            async with task_group() as group:
                while True:
                    while self._drawing or not self._may_draw():
                        self._slot_free.clear()
                        await self._slot_free.wait()
                    request = await self._draw(get)
                    if request is None:
                        break
                    group.create_task(self._work(request, take_slot(self.replicas, request), get, done))
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)

    def _may_draw(self) -> bool:
        if self._isolated or self._servers.is_down or self._waiting >= _MAX_WAITING:
            return False
        if self._first_alone and self.in_flight:
            return False
        if len(self.replicas) == 1:
            return self.replicas[0].free
        return any(replica.free for replica in available(self.replicas, time.monotonic()))

    async def _work(self, request: Request, replica: Replica, get: Get, done: Done) -> None:
        """Finish a request, and go on with the next one as long as there is room for one."""
        following: Request | None = request
        while following is not None:
            request, following = following, None
            if request.siblings:
                async for each, finished in ask_choices(request, self.ask(request, replica), self._ask_alone):
                    self._hand_on(each, finished, replica, done)
            else:
                self._hand_on(request, (await self.ask(request, replica))[0], replica, done)
            if not self._drawing and self._may_draw():
                following = await self._draw(get)
                if following is not None:
                    replica = take_slot(self.replicas, following)
                    if self._may_draw():
                        self._slot_free.set()
        self._slot_free.set()

    def _hand_on(self, request: Request, finished: Completion, replica: Replica, done: Done) -> None:
        done(request, finished)
        self._breaker.record(f"teacher '{self.teacher.name}' at {replica.url}", finished.error)

    async def _ask_alone(self, request: Request) -> Completion:
        return (await self.ask(request, take_slot(self.replicas, request)))[0]

    async def _draw(self, get: Get) -> Request | None:
        """The next request. One task at a time waits for it: all that wait would wake up for each request."""
        self._drawing = True
        try:
            return await get()
        finally:
            self._drawing = False

    async def ask(self, request: Request, replica: Replica) -> list[Completion]:
        """The completions of one request, which counts as in flight at `replica` until it ends; one a choice.

        Its `error` says what is wrong with the row. Raises CircuitOpen when an outage lasts, TeacherError when the
        server is lost.
        """
        self._first_tries += 1
        try:
            answers, body, failure = await self._try(request, replica)
        finally:
            self._first_tries -= 1
        return answers if failure is None else await self._ask_again(request, replica, body, failure)

    async def _ask_again(
        self, request: Request, server: Replica, body: Body, failure: Failure | UnreadableError
    ) -> list[Completion]:
        """The completion of a request whose first try failed."""
        row_failures = RowFailures(request.sample.id)
        inside = after_timeout = False
        lost = 0
        async with AsyncExitStack() as alone:
            while True:
                blamed = False
                if isinstance(failure, UnreadableError):
                    blamed = await self.blames_image(failure)
                elif self._images.may_not_read(body, str(failure), refused=failure.refused):
                    inside = True
                elif failure.reason == CONNECTION and self._revive and await self._revive(server.url):
                    lost += 1
                    if lost >= _FAIL_AFTER:
                        return [
                            Completion(error=f"server_lost: the server went down {lost} times under this request")
                        ]
                    if lost == _ISOLATE_AFTER:
                        await alone.enter_async_context(self._alone())
                else:
                    if isinstance(failure, Failure) and failure.remedy and not self._servers.passes:
                        raise TeacherError(f"{self._servers.name}: {failure}")
                    after_timeout = after_timeout or failure.reason == TIMEOUT
                    blamed = await self._wait_for_retry(row_failures, failure, server)
                    server = choose_other(self.replicas, request, server, time.monotonic())
                if blamed:
                    self._servers.blame(row_failures.row)
                    tries = (
                        f" ({counted(row_failures.tries, 'try', 'tries')}, others passed)"
                        if row_failures.tries
                        else ""
                    )
                    return [Completion(error=f"{failure}{tries}")]
                server.in_flight += len(request.parts)
                answers, body, next_failure = await self._try(
                    request, server, inside=inside, after_timeout=after_timeout
                )
                if next_failure is None:
                    return answers
                failure = next_failure

    async def _try(
        self, request: Request, replica: Replica, *, inside: bool = False, after_timeout: bool = False
    ) -> tuple[list[Completion], Body, Failure | UnreadableError | None]:
        """The answers to one try and its body as far as it was made, or why it failed: also an image that changed."""
        body: Body = ()
        try:
            body = await self.body(request, inside=inside)
            answers = await self._exchange.send(replica, body, after_timeout=after_timeout, given=request.given)
            finished = answers[0]
            self._check_model(finished)
            self._images.check_unchanged(request.prompt.images, body)
            self._servers.passed(request.sample.id)
            replica.passed()
            for _ in answers:
                replica.concurrency.completed(replica.in_flight, time.monotonic(), finished.latency_s)
            if self._control is None or finished.latency_s < 0.9 * self._control.latency_s:
                self._control = Control(request.parts[0], finished.latency_s, inside)
            return answers, body, None
        except (Failure, UnreadableError) as failure:
            self._slot_free.set()
            return [], body, failure
        finally:
            replica.in_flight -= len(request.parts)

    def _check_model(self, finished: Completion) -> None:
        """Raises Failure when another model has answered, TeacherError when no other answer has come."""
        if problem := other_model(self.teacher, self.info.model, finished.model):
            if not self._servers.passes:
                raise TeacherError(f"{self._servers.name}: {problem}")
            raise Failure(OTHER_MODEL, problem, tries=self.teacher.max_retries + 1, paid=True)
        self._first_alone = False

    def _on_begun(self, model: str) -> None:
        """The text of an answer begins, and names its model: the servers may be given more requests."""
        if not other_model(self.teacher, self.info.model, model):
            self._first_alone = False
        self._slot_free.set()

    async def blames_image(self, failure: UnreadableError) -> bool:
        """Whether an image that cannot be read is at fault; if its folder is, waits for it. Raises CircuitOpen."""
        self._waiting += 1
        try:
            seconds = await asyncio.to_thread(self._folders.retry_wait_s, failure.ref, failure.error)
            await asyncio.sleep(seconds)
        finally:
            self._waiting -= 1
        return not seconds

    async def _wait_for_retry(self, row_failures: RowFailures, failure: Failure, replica: Replica) -> bool:
        """Wait until a failed row is to be retried. True if the row is proven to be the cause. Raises CircuitOpen."""
        servers, started = self._servers, time.monotonic()
        row_failures.failed(servers, failure, replica)
        replica.failed(row_failures.row, started, connection=failure.reason == CONNECTION)
        until = started + row_failures.backoff_s(failure, self._settings.patience_s)
        self._waiting += 1
        try:
            while not row_failures.proven(servers, failure):
                control = self._find_control()
                if not self._first_tries:
                    servers.wait(
                        self._settings.patience_s, self._settings.say, idle=not self.in_flight and control is None
                    )
                now = time.monotonic()
                if now >= until:
                    if await self._try_control(control, row_failures, replica):
                        continue
                    waits = (
                        self.in_flight and row_failures.no_other_passed and row_failures.has_enough(servers, failure)
                    )
                    if not waits and servers.may_try(self._settings.patience_s):
                        return False
                await asyncio.sleep(_POLL_S if now >= until else min(_POLL_S, until - now))
        finally:
            self._waiting -= 1
        return True

    def _find_control(self) -> Control | None:
        """A request that shows whether a server answers at all."""
        if self._control is None and self._known_request is not None:
            known_request, self._known_request = self._known_request, None
            request = known_request()
            self._control = None if request is None else Control(request)
        if self._control is None and not self._servers.is_down:
            return Control(self._plain_request)  # one or two rows are all there is to ask
        return self._control

    async def _try_control(self, control: Control | None, row_failures: RowFailures, replica: Replica) -> bool:
        """Send a control where a row failed, when no other has passed there since; whether the control passed."""
        servers, now = self._servers, time.monotonic()
        after_s = max(CONTROL_AFTER_S, 2 * control.latency_s) if control else 0.0
        overdue = not self.in_flight or servers.failing_s > after_s
        if control is None or not row_failures.no_other_passed or not overdue or now < self._next_control:
            return False
        self._next_control = now + MAX_WAIT_S
        replica.in_flight += 1
        try:
            body = await self.body(control.request, inside=control.inside or not self._images.reads_paths)
            given = control.request.given
            self._check_model((await self._exchange.send(replica, body, after_timeout=False, given=given))[0])
        except UnreadableError:
            self._control = None
            return False
        except Failure as failure:
            servers.failed("control", failure)
            replica.failed("control", now, connection=failure.reason == CONNECTION)
            self._next_control = time.monotonic() + servers.pause_s(*_CHECK_S)
            return False
        finally:
            replica.in_flight -= 1
            self._slot_free.set()
        self._next_control = 0.0
        servers.passed("control")
        replica.passed()
        return True

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Nothing else is under way inside: no new request is drawn, and requests that need it take turns."""
        self._isolated += 1
        try:
            async with self._alone_lock:
                while self.in_flight:
                    await asyncio.sleep(_DRAIN_S)
                yield
        finally:
            self._isolated -= 1
            self._slot_free.set()

    def body(self, request: Request, *, inside: bool = False) -> Awaitable[Body]:
        """The body of a request as it is sent; with `inside` its images are in it. Raises UnreadableError."""
        return self._bodies.body(request, self.info.model, inside=inside)
