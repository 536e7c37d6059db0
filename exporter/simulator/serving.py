"""The web server of the simulated node and of the simulated API, which may stop at any moment and start again."""

import asyncio
import socket
import ssl

from aiohttp import web

_TURNS_TO_CONNECT = 2


class Serving:
    """A web server, from `start` to `stop`."""

    def __init__(self, app: web.Application, *, drain_seconds: float) -> None:
        """When the server stops, requests in flight have `drain_seconds` to end."""
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=drain_seconds)
        self._listening: socket.socket | None = None
        self.address = ("127.0.0.1", 0)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0 is any free port. `address` then has the host and the port."""
        await self._runner.setup()
        self._listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        await web.SockSite(self._runner, self._listening, ssl_context=tls).start()
        self.address = self._listening.getsockname()[:2]

    async def stop(self) -> None:
        """Stop listening, then end the connections. If the server has stopped, do nothing.

        asyncio (seen with Python 3.11) forgets a connection that it accepted just before its listener is closed, and
        nobody closes that connection. So the server first accepts no more, until all accepted connections are known.
        """
        listening = self._listening
        self._listening = None
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
            for _ in range(_TURNS_TO_CONNECT):
                await asyncio.sleep(0)
        await self._runner.cleanup()
