"""A real browser for looking at pages: headless Chromium over its DevTools protocol, without any network."""

import asyncio
import atexit
import base64
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
PHONE, DESKTOP = (390, 844), (1280, 900)
Result = TypeVar("Result")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing can be fetched from elsewhere
    "--remote-debugging-port=0",
)


class Navigated(RuntimeError):
    """The tab went to another page before it answered."""


class Tab:
    """One page. `problems`: console errors, exceptions and violations of the page's policy; `requests`: URLs."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0
        self.patience_s = 60.0
        self._loaded = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        self.requests: list[str] = []

    async def listen(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
            else:
                self._notice(told["method"], told["params"])

    def _notice(self, method: str, facts: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(facts["exceptionDetails"]["exception"].get("description", "exception"))
        elif method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.problems.append(facts["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.problems.append(str([item.get("value") for item in facts["args"]]))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        answer = self._waiting[self._last] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters})
        told = await asyncio.wait_for(answer, self.patience_s)
        if "navigated" in told.get("error", {}).get("message", ""):
            raise Navigated(method)
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error']}")
        return dict(told["result"])

    async def open(
        self, page: Path | str, size: tuple[int, int] = DESKTOP, *, dark: bool = False, scripts: bool = True
    ) -> None:
        """Load a file or an address as a screen of this size would; a phone's is a touch screen."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        width, height = size
        mobile = width < 600
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._loaded.clear()
        await self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        await asyncio.wait_for(self._loaded.wait(), self.patience_s)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        told = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"]["exception"].get("description", told))
        return told["result"].get("value")

    async def screenshot(self, file: Path, *, top: int = 0, height: int | None = None) -> None:
        """An image of the page from `top` on; whole, or `height` pixels of it."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {
            "x": 0,
            "y": top,
            "width": size["width"],
            "height": min(height or 1e9, size["height"] - top),
            "scale": 1,
        }
        told = await self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(told["data"]))


@cache
def _chromium() -> tuple[str, str]:
    """Where DevTools listens in a browser of our own, which ends with this process, and the path of the browser."""
    assert CHROMIUM is not None
    profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    atexit.register(profile.cleanup)
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile.name}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(_end, process)
    note = Path(profile.name) / "DevToolsActivePort"
    for _ in range(1200):
        if note.exists() and len(lines := note.read_text().splitlines()) == 2:
            return f"ws://127.0.0.1:{lines[0]}", lines[1]
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError("chromium ended before it could be talked to")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@asynccontextmanager
async def _opened(session: aiohttp.ClientSession, address: str) -> AsyncIterator[Tab]:
    async with session.ws_connect(address, max_msg_size=0) as socket:
        tab = Tab(socket)
        listening = asyncio.create_task(tab.listen())
        try:
            yield tab
        finally:
            listening.cancel()


def browse(look: Callable[[Tab], Awaitable[Result]]) -> Result:
    """What `look` finds out with a tab that shares no cookie, storage or cache with other tabs."""

    address, path = _chromium()

    async def run() -> Result:
        async with aiohttp.ClientSession() as session, _opened(session, address + path) as browser:
            context = await browser.call("Target.createBrowserContext")
            tab = await browser.call("Target.createTarget", url="about:blank", **context)
            try:
                async with _opened(session, f"{address}/devtools/page/{tab['targetId']}") as page:
                    return await look(page)
            finally:
                await browser.call("Target.disposeBrowserContext", **context)

    return asyncio.run(run())


HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
"""A text that would change the title if a page took it for markup."""


async def press(tab: Tab, key: str) -> None:
    await tab.evaluate(f"document.dispatchEvent(new KeyboardEvent('keydown', {{key: {key!r}, bubbles: true}}))")
    await asyncio.sleep(0.15)


async def until(tab: Tab, condition: str) -> None:
    """Wait until a condition of the page is true, also while the tab goes to another page."""
    for _ in range(100):
        with suppress(Navigated):
            if await tab.evaluate(condition):
                return
        await asyncio.sleep(0.1)
    raise AssertionError(condition)
