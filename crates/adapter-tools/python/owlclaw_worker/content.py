"""What a handler may return besides values: pictures, sound, files, and several blocks of content.

The names are FastMCP's.
"""

import base64
import dataclasses
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
    ) -> None:
        if (path is None) == (data is None):
            raise ValueError("%s takes either path or data" % type(self).__name__)
        self.path = None if path is None else pathlib.Path(os.path.expandvars(str(path))).expanduser()
        self.data = data
        self._format = format
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

    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, self.path or self._mime_type)


class Image(_Media):
    """A picture."""

    _family = "image"
    _fallback = "image/png"

    def block(self):
        """The block of content."""
        return {"type": "image", "data": self._base64(), "mimeType": self._mime_type}


class Audio(_Media):
    """Sound."""

    _family = "audio"
    _fallback = "audio/wav"

    def block(self):
        """The block of content."""
        return {"type": "audio", "data": self._base64(), "mimeType": self._mime_type}


class File(_Media):
    """A file, carried along: as text if its type is one of text, else as bytes."""

    def __init__(
        self,
        path: typing.Union[str, "os.PathLike[str]", None] = None,
        data: typing.Optional[bytes] = None,
        format: typing.Optional[str] = None,
        name: typing.Optional[str] = None,
    ) -> None:
        super().__init__(path, data, format)
        self._name = name

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
                return {"type": "resource", "resource": {**resource, "text": data.decode("utf-8")}}
            except UnicodeDecodeError:
                pass
        blob = base64.b64encode(data).decode("ascii")
        return {"type": "resource", "resource": {**resource, "blob": blob}}


@dataclasses.dataclass
class ToolResult:
    """A result that is said in full: blocks of content, an object for programs, and `_meta`."""

    content: typing.Any = None
    structured_content: typing.Optional[dict] = None
    meta: typing.Optional[dict] = None


# Longer lists are data.
_MAX_BLOCKS = 1000


def encode(call_id, value):
    """The `content` frame of a result that is or contains blocks of content; `None` if it is a value."""
    kind = type(value)
    if kind in (dict, str, int, float, bool, type(None)):
        return None
    if kind is ToolResult or (kind.__name__ == "ToolResult" and hasattr(value, "structured_content")):
        structured = value.structured_content
        said = value.content
        if said is None:
            said = [] if structured is None else [structured]
        parts = list(said) if isinstance(said, (list, tuple)) else [said]
        return protocol.encode_content(call_id, _blocks(parts), structured, getattr(value, "meta", None))
    if kind in (list, tuple):
        if len(value) <= _MAX_BLOCKS and any(_is_block(part) for part in value):
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


def _blocks(parts):
    for part in parts:
        made = block(part)
        yield protocol.as_text(part) if made is None else made


def _is_block(value):
    return isinstance(value, _Media) or _of_the_sdk(value)


def block(value):
    """The block of content that a value is; `None` if it is none."""
    if isinstance(value, _Media):
        return value.block()
    if _of_the_sdk(value):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if callable(getattr(type(value), "to_image_content", None)):
        return value.to_image_content().model_dump(mode="json", by_alias=True, exclude_none=True)
    return None


_SDK_BLOCKS = ("TextContent", "ImageContent", "AudioContent", "EmbeddedResource", "ResourceLink")


def _of_the_sdk(value):
    """Whether it is a block of content of the official SDK."""
    kind = type(value)
    return kind.__module__.partition(".")[0] == "mcp" and kind.__name__ in _SDK_BLOCKS
