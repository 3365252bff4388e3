"""The Python client of MCP. SERVER, CLIENT_ID, DOCUMENT: as in typescript.mjs."""

import asyncio
import os

from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

from callback import Redirect, call_for_each_line

SERVER = os.environ["SERVER"]


class Memory:
    def __init__(self, client):
        self.client = client
        self.tokens = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def main():
    redirect = await Redirect().listen()

    async def came_back():
        _, answer = await redirect.came_back()
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))

    about = {"client_name": "A client in Python", "redirect_uris": [redirect.uri], "token_endpoint_auth_method": "none"}
    name = os.environ.get("CLIENT_ID")
    registered = OAuthClientInformationFull(client_id=name, **about) if name else None
    provider = OAuthClientProvider(
        SERVER,
        OAuthClientMetadata(**about),
        Memory(registered),
        redirect.open,
        came_back,
        client_metadata_url=os.environ.get("DOCUMENT"),
    )

    async def call():
        async with create_mcp_http_client(auth=provider) as http:
            async with Client(streamable_http_client(SERVER, http_client=http)) as client:
                await client.list_tools()

    await call_for_each_line(call)


asyncio.run(main())
