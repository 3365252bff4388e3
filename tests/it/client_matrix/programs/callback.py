"""What library clients in Python share: the page to which the browser brings the code, and the calls of the tests."""

import asyncio
import sys
import traceback
from urllib.parse import parse_qs, urlsplit


class Redirect:
    """A redirect URI on a port of its own."""

    async def listen(self):
        self.server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}/callback"
        return self

    async def answer(self, reader, writer):
        line = (await reader.readline()).decode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        self.arrived.set_result(line.split(" ")[1])

    async def open(self, url):
        """Opens a page of the browser."""
        self.arrived = asyncio.get_running_loop().create_future()
        await asyncio.create_subprocess_exec("xdg-open", str(url))

    async def came_back(self):
        """The URL at which the browser came back, and its parameters."""
        path = await self.arrived
        parameters = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        return self.uri.removesuffix("/callback") + path, parameters


async def call_for_each_line(call):
    """Calls now, and again for each line of standard input. Prints a line for each call."""
    while True:
        try:
            await call()
            print("called", flush=True)
        except BaseException:
            print("failed: " + traceback.format_exc().replace("\n", " "), flush=True)
        if not await asyncio.to_thread(sys.stdin.readline):
            return
