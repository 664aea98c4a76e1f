"""What a handler may return besides values: pictures, sound, files, and several blocks of content.

The names are FastMCP's.
"""

import base64
import dataclasses
import functools
import mimetypes
import os
import pathlib
import typing

from . import protocol

__all__ = ["Audio", "File", "Image", "ToolResult"]


class _Media:
    """Bytes, or a file that has them, with a format such as `png`."""

    _fallback = "application/octet-stream"
    _family = "application"

    def __init__(
        self,
        path: typing.Union[str, "os.PathLike[str]", None] = None,
        data: typing.Optional[bytes] = None,
        format: typing.Optional[str] = None,
        annotations: typing.Any = None,
    ) -> None:
        if (path is None) == (data is None):
            raise ValueError("%s takes either path or data" % type(self).__name__)
        self.path = None if path is None else pathlib.Path(os.path.expandvars(str(path))).expanduser()
        self.data = data
        self._format = format
        self.annotations = annotations
        self._mime_type = self._type_of(format)

    def _type_of(self, format):
        if format:
            return format if "/" in format else "%s/%s" % (self._family, format.lower())
        if self.path is not None:
            return mimetypes.guess_type(self.path.name)[0] or self._fallback
        return self._fallback

    def _read(self):
        data = self.path.read_bytes() if self.path is not None else self.data
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError("the data of %s must be bytes, not %s" % (type(self).__name__, type(data).__name__))
        return bytes(data)

    def _base64(self):
        return base64.b64encode(self._read()).decode("ascii")

    def _noted(self, block):
        annotations = _annotations(self.annotations)
        return {**block, "annotations": annotations} if annotations else block

    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, self.path or self._mime_type)


class Image(_Media):
    """A picture."""

    _family = "image"
    _fallback = "image/png"

    def block(self):
        """The block of content."""
        return self._noted({"type": "image", "data": self._base64(), "mimeType": self._mime_type})


class Audio(_Media):
    """Sound."""

    _family = "audio"
    _fallback = "audio/wav"

    def block(self):
        """The block of content."""
        return self._noted({"type": "audio", "data": self._base64(), "mimeType": self._mime_type})


class File(_Media):
    """A file, carried along: as text if its type is one of text, else as bytes."""

    def __init__(
        self,
        path: typing.Union[str, "os.PathLike[str]", None] = None,
        data: typing.Optional[bytes] = None,
        format: typing.Optional[str] = None,
        name: typing.Optional[str] = None,
        annotations: typing.Any = None,
    ) -> None:
        super().__init__(path, data, format, annotations)
        self._name = name

    def _type_of(self, format):
        # As in FastMCP.
        return "text/plain" if format and format.lower() in ("plain", "txt", "text") else super()._type_of(format)

    def block(self):
        """The block of content."""
        if self.path is not None:
            uri = self.path.resolve().as_uri()
        else:
            extension = "" if not self._format or "/" in self._format else "." + self._format.lower()
            uri = "file:///%s%s" % (self._name or "resource", extension)
        resource = {"uri": uri, "mimeType": self._mime_type}
        data = self._read()
        if self._mime_type.startswith("text/"):
            try:
                return self._noted({"type": "resource", "resource": {**resource, "text": data.decode("utf-8")}})
            except UnicodeDecodeError:
                pass
        blob = base64.b64encode(data).decode("ascii")
        return self._noted({"type": "resource", "resource": {**resource, "blob": blob}})


def _annotations(value):
    """The annotations of a block, given as a dictionary or as an object of the SDK's."""
    if value is None:
        return {}
    if callable(getattr(value, "model_dump", None)):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not isinstance(value, dict):
        raise TypeError("annotations are a dictionary, or Annotations of the SDK, and no %s" % type(value).__name__)
    value = protocol.to_plain(value)
    priority = value.get("priority", 0)
    if not set(value.get("audience", ())) <= {"user", "assistant"} or isinstance(priority, bool) or not 0 <= priority <= 1:
        raise ValueError("annotations have an audience of 'user' and 'assistant' and a priority from 0 to 1: %r" % value)
    return value


# Beginnings of names in `_meta` that the protocol and the server have for themselves.
_RESERVED = ("io.modelcontextprotocol/", "io.owlclaw/")


def _checked(meta):
    taken = [name for name in meta or () if isinstance(name, str) and name.startswith(_RESERVED)]
    if taken:
        raise ValueError("`_meta` of a result has %r, and names that begin with %s are reserved" % (taken[0], " or ".join(_RESERVED)))
    return meta


@dataclasses.dataclass
class ToolResult:
    """A result that is said in full: blocks of content, an object for programs, `_meta`, and whether it is a failure."""

    content: typing.Any = None
    structured_content: typing.Optional[dict] = None
    meta: typing.Optional[dict] = None
    is_error: bool = False


# Longer lists are data.
_MAX_BLOCKS = 1000


def encode(call_id, value):
    """The `content` frame of a result that is or contains blocks of content; `None` if it is a value."""
    kind = type(value)
    if kind in _PLAIN:
        return None
    if is_whole(kind):
        structured = _either(value, "structured_content", "structuredContent")
        said = value.content
        if said is None:
            said = [] if structured is None else [structured]
        parts = list(said) if isinstance(said, (list, tuple)) else [said]
        is_error = _either(value, "is_error", "isError")
        return protocol.encode_content(call_id, _blocks(parts), structured, _checked(getattr(value, "meta", None)), bool(is_error))
    if kind in (list, tuple):
        if len(value) <= _MAX_BLOCKS and any(is_block(type(part)) for part in value):
            return protocol.encode_content(call_id, _blocks(value))
        return None
    if kind in (bytes, bytearray):
        try:
            value.decode("utf-8")
            return None
        except UnicodeDecodeError:
            value = File(data=value)
    made = block(value)
    return None if made is None else protocol.encode_content(call_id, [made])


_PLAIN = frozenset((dict, str, int, float, bool, type(None)))


def _either(value, *names):
    """The member that has one of these names: version 2 of the SDK writes them otherwise than version 1."""
    return next((getattr(value, name) for name in names if hasattr(value, name)), None)


def _blocks(parts):
    for part in parts:
        made = block(part)
        yield protocol.as_text(part) if made is None else made


def block(value):
    """The block of content that a value is; `None` if it is none."""
    kind = type(value)
    if isinstance(value, _Media):
        return value.block()
    if not is_block(kind):
        return None
    for made_by in _MAKERS:
        if hasattr(kind, made_by):
            value = getattr(value, made_by)()
    made = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    _checked(made.get("_meta"))
    return made


# Classes of the official SDK, whose version 2 has them in a package of their own.
_SDK = ("mcp", "mcp_types")
_SDK_BLOCKS = ("TextContent", "ImageContent", "AudioContent", "EmbeddedResource", "ResourceLink")
# What `Image`, `Audio` and `File` of FastMCP and of the SDK make blocks with.
_MAKERS = ("to_image_content", "to_audio_content", "to_resource_content")


@functools.lru_cache(maxsize=1024)
def is_block(kind):
    """Whether values of a class are blocks of content."""
    return issubclass(kind, _Media) or of_the_sdk(kind, _SDK_BLOCKS) or any(callable(getattr(kind, one, None)) for one in _MAKERS)


@functools.lru_cache(maxsize=1024)
def is_whole(kind):
    """Whether values of a class are results that are said in full."""
    is_ours = any(base.__name__ == "ToolResult" for base in kind.__mro__) and (
        issubclass(kind, ToolResult) or kind.__module__.partition(".")[0] == "fastmcp"
    )
    return is_ours or of_the_sdk(kind, ("CallToolResult",))


def of_the_sdk(kind, names):
    """Whether a class is, or inherits, one of the official SDK with one of these names."""
    return any(base.__name__ in names and base.__module__.partition(".")[0] in _SDK for base in kind.__mro__)
