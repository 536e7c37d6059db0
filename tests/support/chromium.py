"""Debian's Chromium, driven over its DevTools protocol (a WebSocket), which aiohttp speaks: no driver, no library.

https://chromedevtools.github.io/devtools-protocol/ has the methods and events.
"""

import asyncio
import base64
import json
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import aiohttp

from tests.support.components import real
from tests.support.waiting import PATIENCE_SECONDS, until

ANSWERS_SECONDS = 30.0


class Failed(AssertionError):
    """The browser refused a command, or a script threw."""


class Tab:
    """A tab. `said` is what the page wrote to the console or threw, `asked` the URLs that it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self._answered: dict[str, str] = {}  # URL → the id of its last request that has its whole answer
        self._urls: dict[str, str] = {}
        self._socket = socket
        self._commands = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._events: dict[str, asyncio.Event] = {}

    async def listen(self) -> None:
        """Take in what the browser says, until it closes the socket."""
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                answer = self._waiting.pop(told["id"])
                if "error" in told:
                    answer.set_exception(Failed(told["error"]["message"]))
                else:
                    answer.set_result(told["result"])
            else:
                self._note(told["method"], told["params"])

    def _note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.said.append(str(told["exceptionDetails"].get("exception", told["exceptionDetails"])))
        elif method == "Log.entryAdded":
            self.said.append(f"{told['entry']['level']}: {told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled":
            self.said.append(f"{told['type']}: {told['args']}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])
            self._urls[told["requestId"]] = told["request"]["url"]
        elif method == "Network.loadingFinished" and told["requestId"] in self._urls:
            self._answered[self._urls[told["requestId"]]] = told["requestId"]
        self._events.setdefault(method, asyncio.Event()).set()

    async def do(self, method: str, **parameters: Any) -> Any:
        """Run a command of the protocol, and return its result."""
        self._commands += 1
        answer = self._waiting[self._commands] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._commands, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, ANSWERS_SECONDS)

    async def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        loaded = self._events.setdefault("Page.loadEventFired", asyncio.Event())
        loaded.clear()
        went = await self.do("Page.navigate", url=url)
        if "errorText" in went:
            raise Failed(went["errorText"])
        await asyncio.wait_for(loaded.wait(), ANSWERS_SECONDS)

    async def answer(self, url: str) -> str:
        """What the page was last told at a URL."""
        body = await self.do("Network.getResponseBody", requestId=self._answered[url])
        return str(body["body"])

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        result = await self.do("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failed(str(result["exceptionDetails"].get("exception", result["exceptionDetails"])))
        return result["result"].get("value")

    async def until(self, script: str, seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait until the expression is true, and return its value."""
        return await until(lambda: self.run(script), seconds, why=lambda: script)

    async def press(self, key: Literal["Tab", "Enter"]) -> None:
        """Press and let go of a key."""
        code = {"Tab": 9, "Enter": 13}[key]
        more = {"text": "\r"} if key == "Enter" else {}
        await self.do("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        await self.do("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def look(self, *, width: int, height: int = 900, dark: bool = False, still: bool = False) -> None:
        """Have the page this large (CSS pixels), light or dark, and with or without motion."""
        await self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = {"prefers-color-scheme": "dark" if dark else "light"}
        if still:
            features["prefers-reduced-motion"] = "reduce"
        await self.do(
            "Emulation.setEmulatedMedia",
            features=[{"name": name, "value": value} for name, value in features.items()],
        )

    async def picture(self) -> bytes:
        """What is seen of the page, as PNG."""
        return base64.b64decode((await self.do("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def chromium() -> AsyncIterator["Browser"]:
    """A browser without a screen, and with a profile that nobody has used."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        process = await asyncio.create_subprocess_exec(
            real("chromium", "chromium-browser", "google-chrome"),
            "--headless=new",
            "--no-sandbox",  # root has none
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-default-apps",
            "--disable-extensions",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "about:blank",
            env={**os.environ, "HOME": folder, "LANG": "C.UTF-8"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        stack.push_async_callback(_end, process)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Browser(session, await _port(Path(folder) / "DevToolsActivePort"))


async def _port(file: Path) -> int:
    port, _ = await until(lambda: file.read_text().split() if file.exists() else [])
    return int(port)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


class Browser:
    """A running browser."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._base = f"http://127.0.0.1:{port}"

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        """A new tab, of which everything is heard from its beginning."""
        async with self._session.put(f"{self._base}/json/new?about:blank") as response:
            target = await response.json()
        async with self._session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = Tab(socket)
            listening = asyncio.create_task(tab.listen())
            for domain in ("Page", "Runtime", "Network", "Log"):
                await tab.do(f"{domain}.enable")
            try:
                yield tab
            finally:
                async with self._session.get(f"{self._base}/json/close/{target['id']}"):
                    pass
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
