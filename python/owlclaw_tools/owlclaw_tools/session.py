"""A session with a gateway: Streamable HTTP of revision 2025-11-25, by the standard library."""

import http.client
import itertools
import json
import ssl
import string
import threading
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import urlsplit

REVISION = "2025-11-25"
# The longest answer, in bytes.
MAX_ANSWER = 64 * 1024 * 1024
# Most pages of a list.
MAX_PAGES = 1000
# Characters of a name of a header.
_TOKEN = set(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~")


class ToolFailed(Exception):
    """A call that failed or was refused; the text is for the model. `data` is what the server says besides."""

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.data = data


class ConnectionFailed(Exception):
    """A request without an answer. `was_sent` is false if the server cannot have got it."""

    def __init__(self, message: str, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class _Forgotten(Exception):
    """The server does not know the session any more."""


class MCPRegistry:
    """The servers behind a gateway, at its address. Opens a session when it is first needed.

    :param url: address of the endpoint, such as ``http://127.0.0.1:8080/mcp``
    :param api_key: key of the agent, sent as ``Authorization: Bearer``, without white space around it; it is in no message
        and no error
    :param headers: further headers of each request
    :param timeout: seconds for each request
    :param context: TLS settings, where the system's do not do
    """

    def __init__(
        self,
        url: str,
        api_key: Optional[str] = None,
        headers: Optional[Dict[str, str]] = None,
        timeout: float = 60.0,
        context: Optional[ssl.SSLContext] = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the address must begin with http:// or https://")
        if parts.username or parts.password:
            raise ValueError("credentials belong into api_key, and not into the address")
        self.url = url
        self._parts = parts
        self._headers = {name: _header_value(name, value) for name, value in (headers or {}).items()}
        if api_key is not None:
            if any(name.lower() == "authorization" for name in self._headers):
                raise ValueError("Authorization is given by api_key and by headers: keep one of the two")
            key = _header_value("api_key", api_key)
            scheme, _, rest = key.partition(" ")
            if scheme.lower() == "bearer":
                key = rest.strip()
            if not key:
                raise ValueError("api_key is empty")
            self._headers["Authorization"] = "Bearer " + key
        self._timeout = timeout
        self._context = context
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._session: Optional[str] = None
        self._is_open = False

    def __repr__(self) -> str:
        return f"MCPRegistry({self.url!r})"

    def __enter__(self) -> "MCPRegistry":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session. The next request opens another one."""
        with self._lock:
            session, self._session, self._is_open = self._session, None, False
        if session is None:
            return
        try:
            self._exchange("DELETE", None, {"Mcp-Session-Id": session})
        except ConnectionFailed:
            pass

    def tools(self) -> List[Dict[str, Any]]:
        """All tools that the key may see, as `tools/list` has them."""
        found: List[Dict[str, Any]] = []
        cursor = None
        for _ in range(MAX_PAGES):
            page = self.request("tools/list", {} if cursor is None else {"cursor": cursor})
            found.extend(page.get("tools") or [])
            cursor = page.get("nextCursor")
            if not cursor:
                return found
        raise ConnectionFailed(f"the list of tools has more than {MAX_PAGES} pages")

    def call(self, name: str, arguments: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """Calls a tool by its name and returns its result as the protocol has it.

        :raises ToolFailed: if it failed or was refused
        :raises ConnectionFailed: if there is no answer
        """
        result = self.request("tools/call", {"name": name, "arguments": arguments or {}})
        if result.get("isError"):
            raise ToolFailed(text_of(result) or "the tool failed and does not say why", result)
        return result

    def request(self, method: str, params: Dict[str, Any]) -> Dict[str, Any]:
        """Sends a request and returns its result; opens a session before, if there is none."""
        for attempt in (1, 2):
            session = self._opened()
            try:
                return self._send(method, params, session)
            except _Forgotten:
                # A request of a session that is gone did not run.
                with self._lock:
                    if self._session == session:
                        self._session, self._is_open = None, False
                if attempt == 2:
                    break
        raise ConnectionFailed("the server forgets each session at once", was_sent=False)

    def _opened(self) -> Optional[str]:
        with self._lock:
            if not self._is_open:
                self._session = None
                hello = {
                    "protocolVersion": REVISION,
                    "capabilities": {},
                    "clientInfo": {"name": "owlclaw-tools", "version": "0.1.0"},
                }
                try:
                    result, session = self._post("initialize", hello, None)
                except _Forgotten:
                    raise ConnectionFailed("there is no MCP server at " + self.url, was_sent=False) from None
                except ToolFailed as error:
                    # No tool was asked.
                    raise ConnectionFailed(f"the server opens no session: {error}", was_sent=False) from None
                if result.get("protocolVersion") is None:
                    raise ConnectionFailed("there is no MCP server at " + self.url)
                notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                self._exchange("POST", notice, self._of(session))
                self._session, self._is_open = session, True
            return self._session

    def _of(self, session: Optional[str]) -> Dict[str, str]:
        headers = {"MCP-Protocol-Version": REVISION}
        if session is not None:
            headers["Mcp-Session-Id"] = session
        return headers

    def _send(self, method: str, params: Dict[str, Any], session: Optional[str]) -> Dict[str, Any]:
        return self._post(method, params, session)[0]

    def _post(
        self, method: str, params: Dict[str, Any], session: Optional[str]
    ) -> Tuple[Dict[str, Any], Optional[str]]:
        number = next(self._ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        headers = {} if method == "initialize" else self._of(session)
        status, answered, body = self._exchange("POST", message, headers)
        if status == 404:
            raise _Forgotten()
        if status in (401, 403):
            raise ConnectionFailed(f"the server wants other credentials ({status})", was_sent=False)
        kind = (answered.get("content-type") or "").split(";")[0].strip().lower()
        for candidate in _messages(kind, body):
            if candidate.get("id") != number or "method" in candidate:
                continue
            error = candidate.get("error")
            if isinstance(error, dict):
                raise ToolFailed(str(error.get("message") or "the request failed"), error)
            result = candidate.get("result")
            if isinstance(result, dict):
                return result, answered.get("mcp-session-id")
        raise ConnectionFailed(f"the server has answered {status} without an answer to the request")

    def _exchange(
        self, verb: str, message: Optional[Dict[str, Any]], headers: Dict[str, str]
    ) -> Tuple[int, Dict[str, str], bytes]:
        parts = self._parts
        assert parts.hostname is not None
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self._timeout, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._timeout)
        path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        sent = {"Accept": "application/json, text/event-stream", **self._headers, **headers}
        body = None
        if message is not None:
            body = json.dumps(message, allow_nan=False).encode()
            sent["Content-Type"] = "application/json"
        try:
            try:
                connection.connect()
            except OSError as error:
                raise ConnectionFailed(f"{self.url} cannot be reached: {error}", was_sent=False) from error
            try:
                connection.request(verb, path, body, sent)
                response = connection.getresponse()
                answer = response.read(MAX_ANSWER + 1)
            except (OSError, http.client.HTTPException) as error:
                raise ConnectionFailed(f"the connection ended before the answer: {error}") from error
            if len(answer) > MAX_ANSWER:
                raise ConnectionFailed(f"the answer is longer than {MAX_ANSWER} bytes")
            return response.status, {name.lower(): value for name, value in response.getheaders()}, answer
        finally:
            connection.close()


def _header_value(name: str, value: Any) -> str:
    """A value as headers have it, without white space around it. It may be a secret, and no error repeats it."""
    # Of the name, too: it may be the value, put in the wrong place.
    if not isinstance(name, str) or not name or not set(name) <= _TOKEN:
        raise ValueError("a name in headers is no name of a header")
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a str, found {type(value).__name__}")
    value = value.strip()
    if any(it not in "\t" and not " " <= it <= "~" for it in value):
        raise ValueError(f"{name} has a character that no header can have, such as a line break inside of it")
    return value


def _messages(kind: str, body: bytes) -> Iterator[Dict[str, Any]]:
    """The messages of an answer: one of JSON, or those of an event stream."""
    if kind == "text/event-stream":
        for event in body.decode("utf-8", "replace").replace("\r\n", "\n").split("\n\n"):
            # A blank before JSON means nothing.
            lines = [line[5:] for line in event.split("\n") if line.startswith("data:")]
            if lines:
                yield from _parsed("\n".join(lines).encode())
        return
    yield from _parsed(body)


def _parsed(body: bytes) -> Iterator[Dict[str, Any]]:
    try:
        message = json.loads(body)
    except ValueError:
        return
    if isinstance(message, dict):
        yield message


def text_of(result: Dict[str, Any]) -> str:
    """A result as a model reads it: its texts, what is structured if no text says it, and names of what is neither."""
    parts: List[str] = []
    others: List[str] = []
    said: List[Any] = []
    for block in result.get("content") or []:
        kind = block.get("type")
        if kind == "text":
            parts.append(block.get("text", ""))
            try:
                said.append(json.loads(parts[-1]))
            except ValueError:
                pass
        elif kind == "resource":
            resource = block.get("resource") or {}
            others.append(resource.get("text") or f"[resource uri={resource.get('uri')}]")
        elif kind == "resource_link":
            others.append(f"[resource uri={block.get('uri')}]")
        else:
            others.append(f"[{kind} content {block.get('mimeType', 'unknown')}]")
    structured = result.get("structuredContent")
    if structured is not None and structured not in said:
        parts.append(json.dumps(structured, indent=2, ensure_ascii=False))
    return "\n".join(parts + others)
