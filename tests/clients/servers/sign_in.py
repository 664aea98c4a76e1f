"""Signs in with `owlclaw-mcp client` at an issuer and at servers that others have written.

Called by run.sh. The issuer is oidc-provider, which is certified for OpenID Connect. The servers are one by the official
Python SDK, which finds out about tokens by itself, and ours. A person's browser is played here; nobody types.
"""

from __future__ import annotations

import argparse
import base64
import http.cookiejar
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))

from certified import Certified  # noqa: E402
from check import end, free_port, run, wait_for  # noqa: E402

# Life of a token. The client renews it before its last fifth.
SECONDS = 3
SECRET = "not-a-secret"


def demand(condition: object, told: object) -> None:
    if not condition:
        if isinstance(told, subprocess.CompletedProcess):
            told = f"{told.args}: {told.returncode}: {told.stdout}{told.stderr}"
        raise SystemExit(f"FAILED {told}")


def browse(url: str, accepts: bool = True) -> None:
    """Goes to the address as a browser with cookies does, until it comes back to this machine's program."""
    jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    if accepts:
        urllib.request.build_opener(jar).open(url, timeout=30).read()
        return
    # Somebody who closes the page: the program hears that access is denied.
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
    issuer = url.split("/auth?")[0]
    back = {"error": "access_denied", "state": query["state"][0], "iss": issuer}
    urllib.request.urlopen(f"{query['redirect_uri'][0]}?{urllib.parse.urlencode(back)}", timeout=30).read()


class Client:
    """The program, with a directory of tokens of its own."""

    def __init__(self, binary: Path, work: Path, url: str) -> None:
        self.binary, self.work, self.url = binary, work, url
        self.tokens = Path(tempfile.mkdtemp(dir=work))

    def run(self, *words: str) -> subprocess.CompletedProcess:
        return run(self.binary, [*words, "--url", self.url, "--tokens", str(self.tokens)], self.work)

    def login(self, *words: str, accepts: bool = True) -> subprocess.CompletedProcess:
        command = [self.binary, "client", "login", "--url", self.url, "--no-browser", "--tokens", self.tokens]
        process = subprocess.Popen(
            [*command, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            line = process.stderr.readline()
            if shown := re.search(r"sign in at (\S+)", line):
                browse(shown[1], accepts)
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
        return subprocess.CompletedProcess(words, process.returncode, output, line + errors)

    def kept(self) -> dict:
        (file,) = self.tokens.glob("*.json")
        return json.loads(file.read_text())


def person(client: Client, call: list[str], expected: str, is_bound: bool) -> None:
    """From a refusal to an answer, by a sign-in in a browser; then the token's renewal, and its end."""
    refused = client.run("tools")
    demand(refused.returncode == 1 and "client login" in refused.stderr, refused)
    denied = client.login(accepts=False)
    demand(denied.returncode == 1 and "access_denied" in denied.stderr, denied)
    signed_in = client.login()
    demand(signed_in.returncode == 0, signed_in)
    first = client.kept()["tokens"]
    told = client.run(*call)
    demand(told.returncode == 0 and expected in told.stdout, told)
    time.sleep(SECONDS)
    told = client.run(*call)
    demand(told.returncode == 0 and expected in told.stdout, told)
    demand(client.kept()["tokens"]["access_token"] != first["access_token"], "the token was not renewed")
    # This issuer replaces refresh tokens that anybody could use, and not those that are bound to a key.
    is_replaced = client.kept()["tokens"]["refresh_token"] != first["refresh_token"]
    demand(is_replaced != is_bound, "its renewal was not kept")
    for text in (json.dumps(first["access_token"]).strip('"'), first["refresh_token"]):
        demand(text not in signed_in.stdout + signed_in.stderr + told.stderr, "a token was printed")
    gone = client.run("logout")
    demand(gone.returncode == 0, gone)
    demand(client.run("tools").returncode == 1, "it is known after it was forgotten")


def programs(client: Client, call: list[str], expected: str, issuer: str, key: Path, other: Path) -> None:
    """Tokens for the client itself: by a secret, and by a private key."""
    secret = client.work / "secret"
    secret.write_text(SECRET + "\n")
    by_secret = ["--client-credentials", "--client-id", "program", "--client-secret-file", str(secret)]
    by_key = ["--client-credentials", "--client-id", "robot", "--client-key", str(key)]
    for words in by_secret, by_key, [*by_secret, "--issuer", issuer, "--scope", "mcp"]:
        told = client.run(*call, *words)
        demand(told.returncode == 0 and expected in told.stdout, told)
    demand(not list(client.tokens.glob("*.json")), "a token of a program is kept")
    wrong = client.work / "wrong"
    wrong.write_text("quite-another-secret")
    told = client.run(*call, "--client-credentials", "--client-id", "program", "--client-secret-file", str(wrong))
    demand(told.returncode == 1 and "invalid_client" in told.stderr, told)
    demand("quite-another" not in told.stderr, told)
    told = client.run(*call, "--client-credentials", "--client-id", "robot", "--client-key", str(other))
    demand(told.returncode == 1 and "invalid_client" in told.stderr, told)
    # Its secret goes to the issuer that was named, or nowhere.
    told = client.run(*call, *by_secret, "--issuer", "https://issuer.example")
    demand(told.returncode == 1 and "https://issuer.example" in told.stderr, told)


def status(url: str, token: str) -> int:
    """Status of the answer to a list of tools."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }}}  # fmt: skip
    headers = {
        "Authorization": f"Bearer {token}", "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list",
    }  # fmt: skip
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code


def revoked(issuer: Certified, url: str) -> None:
    """A token that only the issuer can read, until it takes it back."""
    token = issuer.token(url)
    demand(token.count(".") == 0, "the issuer's token can be read")
    demand(status(url, token) == 200, "a good token is refused")
    demand(status(url, token[:-1] + ("A" if token[-1] != "A" else "B")) == 401, "a wrong token is accepted")
    demand(status(url, issuer.token(f"{url}/other")) == 401, "a token for another resource is accepted")
    issuer.revoke(token)
    time.sleep(1.2)
    demand(status(url, token) == 401, "a token is accepted that was taken back")


def stolen(client: Client, call: list[str], expected: str) -> None:
    """A token that is bound to a key (RFC 9449), which is worth nothing without the key."""
    signed_in = client.login()
    demand(signed_in.returncode == 0, signed_in)
    tokens = client.kept()["tokens"]
    demand(tokens.get("dpop_key"), "the token is not bound to a key")
    demand(status(client.url, tokens["access_token"]) == 401, "a bound token is accepted without a proof")
    told = client.run(*call)
    demand(told.returncode == 0 and expected in told.stdout, told)


def private_key(openssl: list[str], path: Path) -> Path:
    subprocess.run(["openssl", "genpkey", *openssl, "-out", path], check=True, capture_output=True)
    return path


def public_jwk(path: Path) -> str:
    """The public half of a P-256 key."""
    der = subprocess.run(["openssl", "pkey", "-in", path, "-pubout", "-outform", "DER"], check=True, capture_output=True)
    point = der.stdout[-64:]
    x, y = (base64.urlsafe_b64encode(half).decode().rstrip("=") for half in (point[:32], point[32:]))
    return json.dumps({"kty": "EC", "crv": "P-256", "x": x, "y": y, "use": "sig", "alg": "ES256"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="owlclaw-sign-in-") as name:
        work = Path(name)
        curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
        key, other = private_key(curve, work / "robot.pem"), private_key(curve, work / "other.pem")
        opaque = free_port()
        asks = f"http://127.0.0.1:{opaque}/mcp"
        env = {**os.environ, "ROBOT": public_jwk(key), "SECONDS": str(SECONDS), "OPAQUE": asks}
        with Certified(asked.cache, env, work / "issuer.log") as issuer:
            port, ours = free_port(), free_port()
            python = asked.cache / "servers-python/bin/python"
            own = {
                "transport": "http",
                "http": {"port": ours},
                "ledger": {"path": str(work / "ledger.db")},
                "commands": {"hello": {"description": "Says a word", "run": ["echo", "hello"]}},
                "identity": {
                    "resource": f"http://127.0.0.1:{ours}/mcp",
                    "jwt": {
                        "it": {"issuer": issuer.url, "jwks_url": f"{issuer.url}/jwks", "required_scopes": ["mcp"]}
                    },
                },
            }
            (work / "own.json").write_text(json.dumps({"mcp_server": own}))
            asking = {
                **own,
                "http": {"port": opaque},
                "ledger": {"path": str(work / "asking.db")},
                "identity": {
                    "resource": asks,
                    "introspection": {
                        "issuer": issuer.url, "url": f"{issuer.url}/token/introspection", "client_id": "program",
                        "client_secret": "${ASKS_WITH}", "principal_claim": "client_id", "required_scopes": ["mcp"],
                        "remember_seconds": 1,
                    },
                },
            }  # fmt: skip
            (work / "asking.json").write_text(json.dumps({"mcp_server": asking}))
            bound = free_port()
            binding = {
                **own,
                "http": {"port": bound},
                "ledger": {"path": str(work / "bound.db")},
                "identity": {
                    **own["identity"],
                    "resource": f"http://127.0.0.1:{bound}/mcp",
                    "dpop": {"required": True, "nonces": True},
                },
            }
            (work / "bound.json").write_text(json.dumps({"mcp_server": binding}))
            servers = [
                ([python, HERE / "tried.py", "mcp-2", "http", str(port)], port, ["call", "add", "--args", '{"a": 1, "b": 2}'], "3"),
                ([asked.binary, "start", "--config", work / "own.json"], ours, ["call", "hello"], "hello"),
                ([asked.binary, "start", "--config", work / "asking.json"], opaque, ["call", "hello"], "hello"),
                ([asked.binary, "start", "--config", work / "bound.json"], bound, ["call", "hello"], "hello"),
            ]
            for command, port, call, expected in servers:
                log = (work / "server.log").open("ab")
                server = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=work,
                    env={**os.environ, "ISSUER": issuer.url, "ASKS_WITH": SECRET}, start_new_session=True,
                )  # fmt: skip
                try:
                    wait_for(port, server)
                    client = Client(asked.binary, work, f"http://127.0.0.1:{port}/mcp")
                    person(client, call, expected, port == bound)
                    programs(client, call, expected, issuer.url, key, other)
                    if port == opaque:
                        revoked(issuer, asks)
                    if port == bound:
                        stolen(client, call, expected)
                except BaseException:
                    print((work / "server.log").read_text()[-3000:], file=sys.stderr)
                    raise
                finally:
                    end(server)
    print(f"signed in at oidc-provider: a person, a secret, a key, at four servers, one of which wants tokens that are bound to a key; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
