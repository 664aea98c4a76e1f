"""An issuer of tokens that others have written (``provider/``), as a process."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from processes import STOP_SECONDS, end

# Known to it beforehand, and a secret to nobody.
PROGRAM = base64.b64encode(b"program:not-a-secret").decode()


class Certified:
    """Runs until it is left."""

    def __init__(self, cache: Path, env: dict[str, str], log: Path) -> None:
        # Its script lies beside what it needs.
        command = ["node", str(cache / "provider/provider.mjs")]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env, text=True
            )
        self.url = self._said()

    def __enter__(self) -> Certified:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            end(self._process)

    def rotate(self) -> None:
        """Has it sign with a new key, and know the one before no more."""
        self._process.stdin.write("rotate\n")
        self._process.stdin.flush()
        if (said := self._said()) != "rotated":
            raise RuntimeError(f"the issuer did not rotate its keys: {said}")

    def token(self, audience: str, scope: str = "mcp") -> str:
        """One for a program, whose subject is its name: the client credentials grant."""
        wanted = {"grant_type": "client_credentials", "scope": scope, "resource": audience}
        request = urllib.request.Request(f"{self.url}/token", urlencode(wanted).encode())
        request.add_header("Authorization", f"Basic {PROGRAM}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["access_token"]

    def revoke(self, token: str) -> None:
        """Takes a token of the program back (RFC 7009)."""
        request = urllib.request.Request(f"{self.url}/token/revocation", urlencode({"token": token}).encode())
        request.add_header("Authorization", f"Basic {PROGRAM}")
        urllib.request.urlopen(request, timeout=30).read()

    def _said(self) -> str:
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("the issuer has ended")
        return line
