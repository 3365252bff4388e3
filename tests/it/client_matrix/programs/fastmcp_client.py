"""FastMCP's client. SERVER, CLIENT_ID, DOCUMENT: as in typescript.mjs. It opens the browser itself."""

import asyncio
import os

from fastmcp import Client
from fastmcp.client.auth import OAuth
from key_value.aio.stores.memory import MemoryStore

from callback import call_for_each_line


async def main():
    oauth = OAuth(
        client_id=os.environ.get("CLIENT_ID"),
        client_metadata_url=os.environ.get("DOCUMENT"),
        token_storage=MemoryStore(),
        callback_host="127.0.0.1",
    )

    async def call():
        async with Client(os.environ["SERVER"], auth=oauth) as client:
            await client.list_tools()

    await call_for_each_line(call)


asyncio.run(main())
