"""An issuer of tokens (OAuth 2.1 with JSON web tokens), small and complete enough for real clients.

It registers whoever asks, lets everybody sign in as `ana`, and remembers what it was asked for.
Keys and signatures are openssl's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

SIGNS_IN = "ana"


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


class Key:
    """An RSA key pair, with a name of its own."""

    def __init__(self, directory: Path) -> None:
        self.id = secrets.token_hex(4)
        self.path = directory / f"{self.id}.pem"
        make = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.path]
        subprocess.run(make, check=True, capture_output=True)
        read = ["openssl", "rsa", "-in", self.path, "-noout", "-modulus"]
        modulus = subprocess.run(read, check=True, capture_output=True, text=True).stdout.strip().partition("=")[2]
        self.public = {
            "kty": "RSA",
            "kid": self.id,
            "use": "sig",
            "alg": "RS256",
            "n": _encode(bytes.fromhex(modulus)),
            "e": _encode(b"\x01\x00\x01"),
        }

    def sign(self, claims: dict) -> str:
        head = {"alg": "RS256", "kid": self.id, "typ": "at+jwt"}
        text = ".".join(_encode(json.dumps(part).encode()) for part in (head, claims))
        sign = ["openssl", "dgst", "-sha256", "-sign", self.path]
        signed = subprocess.run(sign, input=text.encode(), check=True, capture_output=True)
        return f"{text}.{_encode(signed.stdout)}"


class Issuer:
    """Runs until it is left."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = Key(directory)
        # Method and path of each request.
        self.asked: list[str] = []
        # When its keys were asked for last.
        self.asked_for_keys = 0.0
        self._codes: dict[str, dict] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Issuer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def rotate(self) -> Key:
        """Has a new key from now on; gives the one before, of which the key set says nothing any more."""
        before, self.key = self.key, Key(self.directory)
        return before

    def token(self, audience: str, subject: str = SIGNS_IN, scope: str = "mcp", key: Key | None = None, **more) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "sub": subject, "aud": audience, "iat": now, "exp": now + 300, "scope": scope}
        return (key or self.key).sign({**claims, **more})

    # What it answers.

    def metadata(self) -> dict:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": ["mcp"],
        }

    def register(self, wanted: dict) -> dict:
        return {**wanted, "client_id": secrets.token_hex(8), "token_endpoint_auth_method": "none"}

    def authorize(self, query: dict) -> str:
        """Where the browser is sent."""
        code = secrets.token_urlsafe()
        self._codes[code] = query
        back = {"code": code, "iss": self.url, **({"state": query["state"]} if "state" in query else {})}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def exchange(self, form: dict) -> dict | None:
        """A token for a code, once, for who has the verifier that belongs to it."""
        began = self._codes.pop(form.get("code", ""), None)
        verifier = form.get("code_verifier", "").encode()
        if began is None or began.get("code_challenge") != _encode(hashlib.sha256(verifier).digest()):
            return None
        scope = began.get("scope") or "mcp"
        token = self.token(began["resource"], scope=scope)
        return {"access_token": token, "token_type": "Bearer", "expires_in": 300, "scope": scope}

    def _handler(issuer) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, query = self._asked()
                if path == "/jwks":
                    issuer.asked_for_keys = time.monotonic()
                    self._json({"keys": [issuer.key.public]})
                elif path == "/authorize":
                    self.send_response(302)
                    self.send_header("Location", issuer.authorize(query))
                    self.end_headers()
                elif path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
                    self._json(issuer.metadata())
                else:
                    self._json({"error": "not_found"}, 404)

            def do_POST(self) -> None:
                path, _ = self._asked()
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                if path == "/register":
                    self._json(issuer.register(json.loads(body)), 201)
                elif path == "/token":
                    token = issuer.exchange({name: values[0] for name, values in parse_qs(body).items()})
                    self._json(token or {"error": "invalid_grant"}, 200 if token else 400)
                else:
                    self._json({"error": "not_found"}, 404)

            def _asked(self) -> tuple[str, dict]:
                parts = urlsplit(self.path)
                issuer.asked.append(f"{self.command} {parts.path}")
                return parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()}

            def _json(self, value: dict, status: int = 200) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
