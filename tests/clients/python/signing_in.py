"""Signs in as people do, with the official Python SDK 2.x: from the refusal to a token, without being
told anything but the server's address. Prints what it called, as JSON.

``signing_in.py URL TOOL ARGUMENTS``. The browser that a person would use is played here.
"""

import asyncio
import json
import sys
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

RETURN = "http://127.0.0.1:1/back"
MAX_STEPS = 10


class Memory:
    """What the client knows of the issuer."""

    def __init__(self):
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Browser:
    """Goes where it is sent, with what it was given to remember, until it is sent back."""

    async def open(self, url):
        async with httpx2.AsyncClient(timeout=30) as http:
            for _ in range(MAX_STEPS):
                answer = await http.get(url, follow_redirects=False)
                if "location" not in answer.headers:
                    raise RuntimeError(f"{url}: {answer.status_code} {answer.text[:500]}")
                url = urljoin(url, answer.headers["location"])
                if url.startswith(RETURN):
                    break
            else:
                raise RuntimeError(f"sent on without end: {url}")
        self.back = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}

    async def returned(self):
        back = self.back
        if "code" not in back:
            raise RuntimeError(f"sent back with {back}")
        return AuthorizationCodeResult(code=back["code"], state=back.get("state"), iss=back.get("iss"))


async def run(url, tool, arguments):
    browser, memory = Browser(), Memory()
    metadata = OAuthClientMetadata(client_name="checks", redirect_uris=[RETURN], grant_types=["authorization_code"])
    provider = OAuthClientProvider(url, metadata, memory, browser.open, browser.returned)
    http = httpx2.AsyncClient(auth=provider, timeout=30)
    async with Client(streamable_http_client(url, http_client=http)) as client:
        result = await client.call_tool(tool, arguments)
        called = {"isError": bool(result.is_error), "structured": result.structured_content}
        print(json.dumps({"revision": client.protocol_version, "called": called, "scope": memory.tokens.scope}))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
