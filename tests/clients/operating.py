"""Who is let in, as the official clients see it: encrypted and with keys, and with tokens of an issuer.

The server knows nobody but those. With keys it is reached over TLS, and the keys are made, taken
back and made again with the program's own commands while clients come and go. With tokens the
issuer changes its keys in between. Last, clients that know only an address find out by themselves
where to get a token. All that is done with an issuer of ours, which can lie, and with one that others
have written and that is certified; there the server is told nothing but who the issuer is. With
certificates one client is taken back while it is connected.
"""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from certified import Certified
from expectations import Check
from issuer import Issuer
from parts import Part, Stage, call, stage
from processes import HERE, Server, end

CLIENTS = {
    "python-2": ["legacy", "modern"],
    "python-1": ["legacy"],
    "typescript-2": ["modern"],
    "typescript-1": ["legacy"],
}
# Those that sign in, or bring a token, with an issuer of others: one of each language.
CERTIFIED = ("python-2", "typescript-2")
# Those that can be given a certificate.
CERTIFICATES = ("python-2", "python-1")
CONFIG = HERE / "bank" / "mcp-server.yaml"
SIGNING_IN = HERE / "python" / "signing_in.py"
# What a client calls itself says nothing about who it is.
CLAIMS = {"X-MCP-Client-ID": "somebody-else"}
ACCEPT = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
NOTICE_SECONDS = 20
METADATA = "/.well-known/oauth-protected-resource/mcp"

RULES = {
    "roles": {
        "teller": {"tools": {"allow": ["note", "pay"], "hide": ["wire"]}},
        "manager": {"tools": {"allow": ["*"]}},
    },
    # Who has no role has nothing.
    "default": {"tools": {"hide": ["*"]}},
}


def carry_out(client: str, era: str, binary: Path, cache: Path) -> list[Check]:
    """All checks of one client."""
    with stage(client, "http", era, "operating", CONFIG, cache) as here:
        door = Door(here, binary.absolute(), cache)
        door.keys()
        door.tokens()
        if client in CERTIFIED:
            door.certified()
        if client in CERTIFICATES:
            door.certificates()
    return here.checks


class Door:
    """Who may come in, in one run."""

    def __init__(self, here: Stage, binary: Path, cache: Path) -> None:
        self.here, self.binary, self.cache = here, binary, cache
        self.config = here.home / CONFIG.name

    # Keys, over TLS.

    def keys(self) -> None:
        check = self.here.check
        self._authority()
        self._configure({
            "identity": {"api_keys": {"file": "keys.json"}},
            "http": {"tls": {"enabled": True, "cert_file": "server.pem", "key_file": "server.key"}},
            "ledger": {"path": "keys.db"},
        })
        teller = self._key("ana", "teller")
        nobody = self._key("noah")
        with self._serving(over_tls=True) as server:
            url = f"https://127.0.0.1:{server.port}/mcp"
            self._works("a key over TLS", url, teller)
            steps = [{"id": "tools", "do": "tools"}, call("note", "note", {"text": "nobody"})]
            part = self._play("a key without a role", url, nobody, steps)
            if part.is_complete:
                part.check("it sees nothing", part.outcomes["tools"].get("tools") == [], part.outcomes)
                part.check("it may do nothing", "error" in part.outcomes["note"], part.outcomes)
            self._refused("a wrong key", url, teller[:-4] + "AAAA")
            self._refused("no key", url, None)
            # The one is taken back, and another is made, while the server runs.
            listed = json.loads(self._told("keys", "list", "--format", "json").stdout)
            (id,) = [key["id"] for key in listed if key["principal"] == "ana"]
            check("a key is taken back", self._told("keys", "revoke", id).returncode == 0, listed)
            self._until_refused(url, teller)
            self._refused("a key that was taken back", url, teller)
            self._works("a key that was made later", url, self._key("ana", "teller"))
        self._judge("keys.db", {"ana"})

    # Tokens.

    def tokens(self) -> None:
        home = self.here.home
        with Issuer(home) as issuer:
            # The name by which tokens are meant for us is ours to choose; an address that is not known yet is not.
            self._configure({
                "identity": {
                    "resource": "http://127.0.0.1:{port}/mcp",
                    "jwt": {
                        "bank": {
                            "issuer": issuer.url,
                            "jwks_url": f"{issuer.url}/jwks",
                            "scopes": {"mcp": ["teller"], "all": ["manager"]},
                            "required_scopes": ["mcp"],
                            "min_refetch_seconds": 1,
                        }
                    },
                },
                "ledger": {"path": "tokens.db"},
            })
            with self._serving() as server:
                url = f"http://127.0.0.1:{server.port}/mcp"
                first = issuer.token(url)
                self._works("a token", url, first)
                # Keys are not asked for again sooner than `min_refetch_seconds` after the last time.
                time.sleep(max(0.0, issuer.asked_for_keys + 1.1 - time.monotonic()))
                before = issuer.rotate()
                self._works("a token of the issuer's next key", url, issuer.token(url))
                self._refused("a token of the key before", url, issuer.token(url, key=before))
                self._refused("a token for somebody else", url, issuer.token("https://bank.example/mcp"))
                self._refused("a token that has expired", url, issuer.token(url, exp=1))
                challenge = self._refused("no token", url, None)
                self._forbidden("a token without the scope", url, issuer.token(url, scope="other"))
                self._follows(issuer, url, challenge)
        self._judge("tokens.db", {"ana"})

    def certified(self) -> None:
        """With an issuer that nobody here has written."""
        with Certified(self.here.cache, self.here.env, self.here.results / "issuer.log") as issuer:
            self._configure({
                "identity": {
                    "resource": "http://127.0.0.1:{port}/mcp",
                    "jwt": {
                        "bank": {
                            "issuer": issuer.url,
                            "scopes": {"mcp": ["teller"]},
                            "required_scopes": ["mcp"],
                            "min_refetch_seconds": 1,
                        }
                    },
                },
                "ledger": {"path": "certified.db"},
            })
            with self._serving() as server:
                url = f"http://127.0.0.1:{server.port}/mcp"
                before = issuer.token(url)
                self._works("a token of a certified issuer", url, before)
                self._refused("one for somebody else", url, issuer.token("https://bank.example/mcp"))
                if self.here.client == "python-2":
                    self._signs_in("a client signs in with a certified issuer", url)
                issuer.rotate()
                self._until_welcome(url, issuer.token(url))
                self._works("a token of a certified issuer's next key", url, issuer.token(url))
                self._refused("one of the key before", url, before)
        signed_in = {"ana"} if self.here.client == "python-2" else set()
        self._judge("certified.db", {"program"} | signed_in)

    # Certificates.

    def certificates(self) -> None:
        authority = self._authority()
        self._configure({
            "identity": {
                "certificates": {"principal": "san_uri", "roles": {"spiffe://bank.example/tellers/*": ["teller"]}}
            },
            "http": {
                "tls": {
                    "enabled": True,
                    "cert_file": "server.pem",
                    "key_file": "server.key",
                    "client_ca_file": "authority.pem",
                    "client_crl_file": "revoked.pem",
                }
            },
            "ledger": {"path": "certificates.db"},
        })
        teller, other, nobody = (f"spiffe://bank.example/{name}" for name in ("tellers/ana", "tellers/ben", "noah"))
        own = {name: authority.issue(number, name) for number, name in enumerate((teller, other, nobody))}
        authority.revoke()
        with self._serving(over_tls=True) as server:
            url = f"https://127.0.0.1:{server.port}/mcp"
            self._works("a certificate", url, certificate=own[teller])
            steps = [{"id": "tools", "do": "tools"}, call("note", "note", {"text": "nobody"})]
            part = self._play("a certificate without a role", url, None, steps, own[nobody])
            if part.is_complete:
                part.check("it sees nothing", part.outcomes["tools"].get("tools") == [], part.outcomes)
            self._refused("no certificate", url, None)
            # The one is taken back while it listens.
            with self._listening(url, own[teller]) as stream:
                authority.revoke(own[teller])
                self.here.check("who was revoked is hung up on", _ends(stream), "it is still open")
            self._not_heard("a certificate that was revoked", url, own[teller])
            self._works("a certificate that was not", url, certificate=own[other])
        self._judge("certificates.db", {teller, other})

    def _follows(self, issuer: Issuer, url: str, challenge: str) -> None:
        check = self.here.check
        base = url.removesuffix("/mcp")
        check("the refusal says where to find out", f'resource_metadata="{base}{METADATA}"' in challenge, challenge)
        with urllib.request.urlopen(base + METADATA, timeout=10) as answer:
            metadata = json.load(answer)
        right = metadata["resource"] == url and metadata["authorization_servers"] == [issuer.url]
        check("it is found out", right, metadata)
        if self.here.client != "python-2":
            return
        self._signs_in("a client signs in by itself", url)
        # It comes back to a port that is always the same, so that there is one at a time.
        if self.here.era != "modern":
            return
        issuer.asked.clear()
        config = self.here.work / "inspector.json"
        config.write_text(json.dumps({"mcpServers": {"server": {"type": "streamable-http", "url": url}}}))
        words = ["node", self.here.env["INSPECTOR"], "--cli", "--config", config, "--server", "server"]
        words += ["--protocol-era", self.here.era, "--method", "tools/list", "--format", "json", "-q"]
        home = self.here.work / "inspector"
        home.mkdir()
        env = {**self.here.env, "HOME": str(home), "MCP_INSPECTOR_SECRET_STORE": "memory", "MCP_AUTO_OPEN_ENABLED": "true", "BROWSER": "true"}
        try:
            done = subprocess.run([str(it) for it in words], capture_output=True, text=True, timeout=15, env=env, stdin=subprocess.DEVNULL)
            said = done.stdout + done.stderr
        except subprocess.TimeoutExpired as waiting:
            # It waits for the person who should sign in now.
            said = str(waiting.stdout) + str(waiting.stderr)
        found = "GET /.well-known/oauth-authorization-server" in issuer.asked
        check("the Inspector finds the issuer", found, [issuer.asked, said[-1500:]])

    def _signs_in(self, name: str, url: str) -> None:
        """Nobody tells the client who the issuer is."""
        python = self.cache / "python-2/bin/python"
        words = [python, SIGNING_IN, url, "note", json.dumps({"text": "signed in"})]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=self.here.env)
        said = done.stdout + done.stderr[-1500:]
        right = done.returncode == 0 and json.loads(done.stdout)["called"]["structured"] == {"noted": "signed in"}
        self.here.check(name, right, said)

    # What is common.

    def _works(self, name: str, url: str, secret: str | None = None, certificate: str | None = None) -> None:
        text = name.replace(" ", "-")
        steps = [{"id": "tools", "do": "tools"}, call("note", "note", {"text": text}), call("wire", "wire", {"to": "x", "amount": 1})]
        part = self._play(name, url, secret, steps, certificate)
        if not part.is_complete:
            return
        names = sorted(it["name"] for it in part.outcomes["tools"].get("tools", []))
        part.check("it sees what its role may see", names == ["note", "pay"], names)
        part.check("it may do what its role may do", part.outcomes["note"].get("structured") == {"noted": text}, part.outcomes)
        part.check("what is hidden is unknown", "unknown tool" in json.dumps(part.outcomes["wire"]), part.outcomes)

    def _refused(self, name: str, url: str, secret: str | None) -> str:
        return self._turned_away(name, url, secret, 401)

    def _forbidden(self, name: str, url: str, secret: str) -> None:
        challenge = self._turned_away(name, url, secret, 403)
        self.here.check(f"{name}: it is told what is missing", "insufficient_scope" in challenge and "mcp" in challenge, challenge)

    def _until_refused(self, url: str, secret: str) -> None:
        """Waits until the server has read its file again, which it does by itself."""
        self._until(lambda: self._asked(url, secret)[0] == 401)

    def _until_welcome(self, url: str, secret: str) -> None:
        """Waits until the issuer may be asked again for its keys."""
        self._until(lambda: self._asked(url, secret)[0] == 200)

    def _until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + NOTICE_SECONDS
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.05)

    @contextmanager
    def _listening(self, url: str, certificate: str) -> Iterator[Any]:
        """A stream that is open for as long as both like."""
        version = "2026-07-28"
        meta = {"protocolVersion": version, "clientInfo": {"name": "checks", "version": "1"}, "clientCapabilities": {}}
        params = {
            "notifications": {"toolsListChanged": True},
            "_meta": {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).encode()
        headers = {**ACCEPT, "MCP-Protocol-Version": version, "Mcp-Method": "subscriptions/listen"}
        context = self._context(certificate)
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=NOTICE_SECONDS, context=context) as stream:
            first = stream.readline() + stream.readline()
            self.here.check("it listens", b"acknowledged" in first, first.decode())
            yield stream

    def _not_heard(self, name: str, url: str, certificate: str) -> None:
        try:
            with urllib.request.urlopen(f"{url}", timeout=10, context=self._context(certificate)) as answer:
                seen = str(answer.status)
        except urllib.error.HTTPError as error:
            seen = str(error.code)
        except (OSError, http.client.HTTPException) as error:
            seen = ""
            self.here.check(f"{name}: the handshake fails", True, str(error))
        if seen:
            self.here.check(f"{name}: the handshake fails", False, seen)

    def _context(self, certificate: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.here.env["SSL_CERT_FILE"])
        if certificate:
            context.load_cert_chain(certificate)
        return context

    def _turned_away(self, name: str, url: str, secret: str | None, expected: int) -> str:
        """Gives the challenge."""
        status, challenge = self._asked(url, secret)
        self.here.check(f"{name}: {expected}", status == expected and challenge.startswith("Bearer"), [status, challenge])
        return challenge

    def _asked(self, url: str, secret: str | None) -> tuple[int, str]:
        """The status that a request has come to, and its challenge."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        headers = {**ACCEPT, **CLAIMS}
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        request = urllib.request.Request(url, body, headers)
        try:
            with self._open(request) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("WWW-Authenticate") or ""

    def _open(self, request: urllib.request.Request) -> Any:
        secure = request.full_url.startswith("https")
        return urllib.request.urlopen(request, timeout=10, context=self._context() if secure else None)

    def _play(self, name: str, url: str, secret: str | None, steps: list[dict], certificate: str | None = None) -> Part:
        headers = {**({"Authorization": f"Bearer {secret}"} if secret else {}), **CLAIMS}
        more = {"certificate": certificate} if certificate else {}
        return self.here.play(name, "somebody-else", steps, url=url, headers=headers, **more)

    def _configure(self, more: dict) -> None:
        """The bank's configuration with other doors."""
        sections = {"app": "app.py", "python": "python3", "resources": {"skills_dir": "./skills"}, "tasks": {"path": "tasks.db"}}
        governance = {**RULES, "default_quota": {"max_calls_per_minute": 1000}}
        # JSON is YAML.
        self.template = json.dumps({"mcp_server": {**sections, "governance": governance, **more}}, indent=1)
        self.config.write_text(self.template.replace("{port}", "1"), encoding="utf-8")

    @contextmanager
    def _serving(self, over_tls: bool = False) -> Iterator[Server]:
        command = [self.binary, "start", "--config", self.config, "--transport", "http", "--port", "{port}"]
        prepare = lambda port: self.config.write_text(self.template.replace("{port}", str(port)), encoding="utf-8")
        authority = self.here.env["SSL_CERT_FILE"] if over_tls else None
        server = Server(command, self.here.env, self.here.results / "server.log", authority=authority, prepare=prepare)
        try:
            yield server
        finally:
            status = end(server.process)
            self.here.check("the server stops when asked", status == 0, f"status {status}")

    def _authority(self) -> Authority:
        """A new one, whom all trust from then on."""
        trusted = str(self.here.home / "authority.pem")
        self.here.env |= {"SSL_CERT_FILE": trusted, "NODE_EXTRA_CA_CERTS": trusted}
        return Authority(self.here.home)

    def _key(self, principal: str, *roles: str) -> str:
        words = [word for role in roles for word in ("--role", role)]
        made = self._told("keys", "create", "--principal", principal, *words)
        self.here.check(f"a key of {principal} is made", made.returncode == 0, made.stdout + made.stderr)
        return next((word for word in made.stdout.split() if word.startswith("owl_")), "owl_none")

    def _told(self, *words: str) -> subprocess.CompletedProcess:
        command = [str(self.binary), *words, "--config", str(self.config)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=self.here.env)

    def _judge(self, ledger: str, allowed: set[str]) -> None:
        """Nobody but those has had anything done, whatever they called themselves."""
        done = self._told("ledger", "query", "--limit", "1000", "--format", "json")
        calls = json.loads(done.stdout or "[]")
        succeeded = {it["client"] for it in calls if it["outcome"] == "succeeded"}
        self.here.check(f"{ledger}: nobody else had anything done", succeeded == allowed, [done.stderr, calls])
        said = (self.here.results / "server.log").read_text(errors="replace")
        self.here.check(f"{ledger}: no secret is in the log", "owl_" not in said.replace("owl_none", "").replace("`owl_…`", "") and "eyJ" not in said, said[-500:])


def _ends(stream: Any) -> bool:
    """Whether the other side hangs up on what we listen to."""
    try:
        while stream.readline():
            pass
    except TimeoutError:
        return False
    except (OSError, http.client.HTTPException):
        pass
    return True


class Authority:
    """Issues certificates with openssl: one for 127.0.0.1, to begin with. Made anew in each run, so that
    nothing expires in a repository."""

    NEW = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "index.txt").write_text("", encoding="utf-8")
        # With a number a list is of version 2, which alone is read.
        (home / "number.txt").write_text("01\n", encoding="utf-8")
        self._write("[server]", "subjectAltName=IP:127.0.0.1,DNS:localhost", "basicConstraints=CA:FALSE")
        self._say("req", "-x509", *self.NEW, "-keyout", "authority.key", "-out", "authority.pem", "-days", "60", "-subj", "/CN=checks")
        self._issue("server", "/CN=127.0.0.1", 1_000)

    def issue(self, number: int, uri: str) -> str:
        """A certificate for a client of this name, with its key; where they are."""
        name = f"client-{number}"
        self._write("[server]", f"subjectAltName=URI:{uri}", "basicConstraints=CA:FALSE", "extendedKeyUsage=clientAuth")
        self._issue(name, "/CN=client", 2_000 + number)
        both = self.home / f"{name}-both.pem"
        both.write_text((self.home / f"{name}.pem").read_text() + (self.home / f"{name}.key").read_text())
        return str(both)

    def revoke(self, *certificates: str) -> None:
        """Takes these back too, and publishes the list."""
        self._write("[ca]", "default_ca=own", "[own]", "database=index.txt", "crlnumber=number.txt", "default_md=sha256", "default_crl_days=1")
        by = ["-cert", "authority.pem", "-keyfile", "authority.key"]
        for certificate in certificates:
            self._say("ca", "-config", "openssl.cnf", *by, "-revoke", certificate)
        self._say("ca", "-config", "openssl.cnf", *by, "-gencrl", "-out", "new.pem")
        (self.home / "new.pem").rename(self.home / "revoked.pem")

    def _issue(self, name: str, subject: str, serial: int) -> None:
        key, asked, made = (f"{name}.{end}" for end in ("key", "csr", "pem"))
        self._say("req", *self.NEW, "-keyout", key, "-out", asked, "-subj", subject)
        by = ["-CA", "authority.pem", "-CAkey", "authority.key", "-set_serial", str(serial)]
        self._say("x509", "-req", "-in", asked, *by, "-out", made, "-days", "60", "-extfile", "openssl.cnf", "-extensions", "server")
        (self.home / key).chmod(0o600)

    def _write(self, *lines: str) -> None:
        (self.home / "openssl.cnf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _say(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.home, check=True, capture_output=True)
