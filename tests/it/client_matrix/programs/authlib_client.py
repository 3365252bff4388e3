"""Authlib: a client that the operator has registered. It finds nothing by itself."""

import asyncio
import os
from urllib.parse import urlsplit

from authlib.common.security import generate_token
from authlib.integrations.httpx_client import AsyncOAuth2Client

from callback import Redirect, call_for_each_line

SERVER = os.environ["SERVER"]
ISSUER = f"https://{urlsplit(SERVER).netloc}"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}},
}


async def main():
    redirect = await Redirect().listen()
    client = AsyncOAuth2Client(
        os.environ["CLIENT_ID"],
        token_endpoint_auth_method="none",
        redirect_uri=redirect.uri,
        scope="mcp",
        code_challenge_method="S256",
        token_endpoint=f"{ISSUER}/oauth/token",
    )

    async def sign_in():
        verifier = generate_token(48)
        authorize = f"{ISSUER}/oauth/authorize"
        url, state = client.create_authorization_url(authorize, code_verifier=verifier, resource=SERVER)
        await redirect.open(url)
        came_back, _ = await redirect.came_back()
        await client.fetch_token(
            authorization_response=came_back, code_verifier=verifier, state=state, resource=SERVER
        )

    async def call():
        if not client.token:
            await sign_in()
        accept = {"Accept": "application/json, text/event-stream"}
        try:
            response = await client.post(SERVER, json=INITIALIZE, headers=accept)
            response.raise_for_status()
        except Exception:
            # The call after one that failed begins again.
            client.token = None
            raise

    await call_for_each_line(call)


asyncio.run(main())
