"""Frames, and the strict JSON inside them.

A frame is a 32-bit big-endian length and that many bytes of JSON. What a handler returns is encoded by
the C encoder in one go; only when that fails, or when the text looks suspicious, does the slow and exact
`to_plain` walk the value, to convert what can be converted and to name the path of what cannot.
"""

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import inspect
import ipaddress
import json
import math
import os
import pathlib
import re
import uuid
import zoneinfo

PROTOCOL = 2

# The largest frame either way, its length prefix not counted.
MAX_FRAME = 16 * 1024 * 1024

# The deepest result. The server's JSON reader gives up at 128 levels, and clients wrap results further.
MAX_DEPTH = 100

# Integers from 10**300 on do not fit a double, which is what most JSON readers make of them.
MAX_INTEGER_DIGITS = 300

# Bounds on what an error says, so that an error frame always fits.
MAX_MESSAGE = 64 * 1024
MAX_TRACEBACK = 256 * 1024


class ProtocolError(Exception):
    """The server broke the protocol; there is nothing to do but end."""


class Unserializable(Exception):
    """A value has no JSON form; `str()` says where and why."""


class TooLarge(Exception):
    """A frame would exceed `MAX_FRAME`."""


# Frames


def pack(payload):
    """The frame around one JSON object given as bytes."""
    if len(payload) > MAX_FRAME:
        raise TooLarge("%d bytes are more than the %d that fit a frame" % (len(payload), MAX_FRAME))
    return len(payload).to_bytes(4, "big") + payload


def encode_frame(frame):
    """The frame of a dictionary of our own making, whose texts may still hold lone surrogates."""
    text = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return pack(text.encode("utf-8", "replace"))


def encode_result(call_id, value):
    """The `result` frame of a call."""
    return pack(b'{"type":"result","id":%d,"value":%b}' % (call_id, encode_value(value)))


def encode_content(call_id, blocks, structured=None, meta=None, is_error=False):
    """The `content` frame of a call, whose result is blocks of content."""
    whole = {"content": list(blocks)}
    if structured is not None:
        whole["structured"] = structured
    if meta is not None:
        whole["meta"] = meta
    if is_error:
        whole["is_error"] = True
    return pack(b'{"type":"content","id":%d,"value":%b}' % (call_id, encode_value(whole)))


def as_text(value):
    """A value as a block of text: a text as it is, anything else as its JSON."""
    plain = to_plain(value, infinite_is_null=True)
    return {"type": "text", "text": plain if isinstance(plain, str) else _encoder.encode(plain)}


def shortened(text, limit):
    """`text` with its middle left out, if it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return "%s\n... %d characters left out ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self):
        self._buffer = bytearray()

    def feed(self, data):
        """Take `data` in; return the frames that are complete now, as dictionaries."""
        buffered = bool(self._buffer)
        if buffered:
            self._buffer += data
            data = self._buffer
        frames = []
        start = 0
        end = len(data)
        while end - start >= 4:
            length = int.from_bytes(data[start : start + 4], "big")
            if length > MAX_FRAME:
                raise ProtocolError("a frame of %d bytes" % length)
            if end - start - 4 < length:
                break
            start += 4
            frames.append(_decode_frame(data[start : start + length]))
            start += length
        if buffered:
            del self._buffer[:start]
        else:
            self._buffer += data[start:]
        return frames


_UNREADABLE = re.compile(rb'\{"type":"(call|state)","id":(\d{1,20})[,}]')


def _decode_frame(payload):
    try:
        frame = json.loads(str(payload, "utf-8"))
    except (ValueError, RecursionError) as error:
        # Such as an integer with more digits than Python wants to read: the fault of whoever sent the
        # arguments, and no reason to take the other calls of this worker down.
        head = _UNREADABLE.match(payload)
        if head is None:
            raise ProtocolError("a frame that is not JSON: %s" % error) from error
        return {"type": "unreadable", "id": int(head.group(2)), "reason": str(error)}
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise ProtocolError("a frame that is not an object with a type")
    if "arguments" in frame:
        frame["payload"] = payload
    return frame


class Written(float):
    """A number with a fraction or an exponent as it was written, for decimals: a float keeps about 17 digits of it."""

    __slots__ = ("text",)

    def __new__(cls, text):
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self):
        # What pydantic makes a decimal of.
        return self.text


def written_arguments(payload):
    """The arguments in the payload of a frame, with each number as it was written."""
    return json.loads(str(payload, "utf-8"), parse_float=Written)["arguments"]


# Long numbers with a fraction, and numbers with an exponent, which a float may not hold as they are.
_MAY_BE_ROUNDED = re.compile(rb"[0-9][eE]|(?<![0-9.])(?=[0-9.]{17})[0-9]+\.[0-9]")


def may_be_rounded(payload):
    """Whether a float may be another number than the one in the payload of a frame. Texts in it may make it say so wrongly."""
    return _MAY_BE_ROUNDED.search(payload) is not None


def unwritten(value):
    """The same with floats in place of `Written`."""
    kind = type(value)
    if kind is Written:
        return float(value)
    if kind is dict:
        return {name: unwritten(one) for name, one in value.items()}
    return [unwritten(one) for one in value] if kind is list else value


# Values


def encode_value(value):
    """Strict JSON of `value`, as bytes. Raises `Unserializable`."""
    try:
        body = _encoder.encode(value).encode("utf-8")
    except (Exception, RecursionError):
        return _encode_exactly(value)
    if len(body) > MAX_DEPTH and (_may_be_too_deep(body) or _LONG_NUMBER in body.translate(_ONE_DIGIT)):
        return _encode_exactly(value)
    if _KEY_OF_NO_STRING.search(body) is not None:
        # The encoder writes the keys 1 and "1" alike, and both.
        return _encode_exactly(value)
    return body


_KEY_OF_NO_STRING = re.compile(rb'[{,]"(?:-?[0-9][0-9.e+-]*|true|false|null)":')


def _encode_exactly(value):
    plain = to_plain(value, infinite_is_null=True)
    try:
        return _encoder.encode(plain).encode("utf-8")
    except Exception as error:  # Not expected: `to_plain` leaves nothing to object to.
        raise Unserializable("the value cannot be written as JSON: %s" % error) from error


_ONE_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER = b"0" * MAX_INTEGER_DIGITS
_ONE_KIND_OF_BRACKET = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def _may_be_too_deep(body):
    """Whether `body` could be nested too deeply. Brackets inside strings may make it say so wrongly."""
    brackets = body.translate(_ONE_KIND_OF_BRACKET, _NOT_BRACKETS)
    for level in range(MAX_DEPTH):
        before = len(brackets)
        if level + before <= MAX_DEPTH:
            return False
        # Takes away the innermost level, and only that.
        brackets = brackets.replace(b"[]", b"")
        if len(brackets) == before:
            return True
    return bool(brackets)


def to_plain(value, infinite_is_null=False):
    """`value` made of nothing but dict, list, str, int, float, bool and None. Raises `Unserializable`."""
    return _plain(value, "", 0, set(), infinite_is_null)


def _plain(value, path, depth, open_ids, infinite_is_null=False):
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, enum.Enum):
        # Before str and int, which an enumeration may also be.
        return _plain(value.value, path, depth, open_ids, infinite_is_null)
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        value = int(value)
        if value.bit_length() > 996:  # 10**300 has 997 bits.
            raise Unserializable("%s is an integer of %d digits or more" % (_place(path), MAX_INTEGER_DIGITS))
        return value
    if isinstance(value, decimal.Decimal) and not value.is_finite() and not infinite_is_null:
        raise Unserializable("%s is %s" % (_place(path), value))
    if isinstance(value, float):
        value = float(value)
        if not math.isfinite(value):
            # JSON has no such numbers. JavaScript, pandas and pydantic write null for them, too.
            if infinite_is_null:
                return None
            name = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
            raise Unserializable("%s is %s" % (_place(path), name))
        return value
    if id(value) in open_ids:
        raise Unserializable("%s contains itself" % _place(path))
    if depth >= MAX_DEPTH:
        raise Unserializable("%s is nested more than %d levels deep" % (_place(path), MAX_DEPTH))
    open_ids.add(id(value))
    try:
        if isinstance(value, dict):
            plain = {}
            for key, item in value.items():
                name = _key(key, path)
                if name in plain:
                    raise Unserializable("%s has two keys that are both written %r" % (_place(path), name))
                plain[name] = _plain(item, _member(path, name), depth + 1, open_ids, infinite_is_null)
            return plain
        if isinstance(value, (list, tuple)):
            return [
                _plain(item, "%s/%d" % (path, at), depth + 1, open_ids, infinite_is_null)
                for at, item in enumerate(value)
            ]
        try:
            simpler = _simpler(value)
        except Unserializable as error:
            raise Unserializable("%s is %s" % (_place(path), error)) from None
        except Exception as error:
            raise Unserializable(
                "%s: a %s that could not be read: %s: %s"
                % (_place(path), kind.__name__, type(error).__name__, error)
            ) from error
        return _plain(simpler, path, depth, open_ids, infinite_is_null)
    finally:
        open_ids.discard(id(value))


def _simpler(value):
    """One step from `value` towards JSON; the JSON encoder's `default`. Raises `Unserializable`."""
    if isinstance(value, enum.Enum):
        return value.value
    kind = type(value)
    if kind.__name__ in ("NaTType", "NAType") and kind.__module__.startswith("pandas"):
        return None
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return duration_text(value)
    if isinstance(value, decimal.Decimal) and not value.is_finite():
        return None
    if isinstance(value, (decimal.Decimal, fractions.Fraction, uuid.UUID, zoneinfo.ZoneInfo, pathlib.PurePath, *ADDRESSES)):
        return str(value)
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError as error:
            where = "(at offset %d)" % error.start
            raise Unserializable("bytes that are not UTF-8 %s; encode them yourself" % where) from None
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return list(value)
    if isinstance(value, type):
        raise Unserializable("the class %s" % value.__name__)
    if callable(getattr(kind, "model_dump", None)):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    if hasattr(kind, "__fields__") and callable(getattr(kind, "dict", None)):
        return value.dict(by_alias=True)
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    package = kind.__module__.partition(".")[0]
    if package == "pandas":
        if kind.__name__ == "DataFrame":
            _refuse_doubles(kind, value.columns)
            if not _is_plain_index(value.index):
                value = value.reset_index()  # The labels of the rows are columns of theirs.
            return value.to_dict(orient="records")
        if kind.__name__ == "Series" and not _is_plain_index(value.index):
            return _labelled(value)
        if callable(getattr(value, "tolist", None)):  # Series and Index
            return value.tolist()
        return str(value)  # Period, Interval
    if package == "polars" and hasattr(value, "to_dicts"):
        return value.to_dicts()
    if package == "pyarrow":
        _refuse_doubles(kind, getattr(value, "column_names", ()))
    if package in ("numpy", "polars", "pyarrow"):
        for name in ("tolist", "to_list", "to_pylist"):
            if callable(getattr(value, name, None)):
                return getattr(value, name)()
    if inspect.isgenerator(value) or inspect.isasyncgen(value) or isinstance(value, collections.abc.Iterator):
        raise Unserializable("a %s; return a list" % kind.__name__)
    if inspect.isawaitable(value):
        raise Unserializable("a %s that was not awaited" % kind.__name__)
    if isinstance(value, _SERIES):
        return list(value)
    raise Unserializable("a %s, which has no JSON form" % kind.__qualname__)


def _is_plain_index(index):
    """Tell the index that pandas makes where nobody has said one: 0, 1, 2."""
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1) and index.name is None


def _labelled(series):
    """An object of the values of a Series by their labels."""
    if getattr(series.index, "nlevels", 1) != 1:
        raise Unserializable("a Series with labels of several levels; return series.reset_index()")
    labels = series.index.tolist()
    made = dict(zip(labels, series.tolist()))
    if len(made) < len(labels):
        raise Unserializable("a Series with the same label twice; return series.reset_index()")
    return made


def _refuse_doubles(kind, columns):
    """Refuse a table of which a row, as an object, would have one of two values."""
    columns = list(columns)
    if len(set(columns)) < len(columns):
        double = next(name for at, name in enumerate(columns) if name in columns[:at])
        raise Unserializable("a %s with two columns named %r; rename one" % (kind.__name__, double))


_SERIES = (collections.abc.Sequence, collections.abc.Set, collections.abc.ValuesView, collections.deque)

ADDRESSES = (
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
)

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_simpler)


def _text(value, path):
    try:
        value.encode("utf-8")
        return str(value)
    except UnicodeEncodeError:
        pass
    try:
        # Two surrogates in the right order are one character that somebody cut in half.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise Unserializable("%s holds a lone surrogate, which UTF-8 cannot express" % _place(path)) from None


def _key(key, path):
    if isinstance(key, enum.Enum):
        return _key(key.value, path)
    if isinstance(key, str):
        return _text(key, path)
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(_plain(key, path, 0, set()))
    try:
        name = _simpler(key)
    except Exception:
        name = None
    if not isinstance(name, str):
        raise Unserializable("%s has a key of type %s; keys are strings" % (_place(path), type(key).__name__))
    return _text(name, path)


def _member(path, name):
    """The JSON pointer of a member of what is at `path`."""
    return "%s/%s" % (path, name[:40].replace("~", "~0").replace("/", "~1"))


def _place(path):
    if not path:
        return "the value"
    return path if len(path) <= 200 else path[:150] + "..." + path[-40:]


def duration_text(value):
    """ISO 8601 form of a timedelta, such as `P1DT2H` or `-PT0.5S`."""
    sign = ""
    if value < datetime.timedelta(0):
        sign, value = "-", -value
    hours, rest = divmod(value.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    clock = ""
    if hours:
        clock += "%dH" % hours
    if minutes:
        clock += "%dM" % minutes
    if value.microseconds:
        clock += ("%d.%06d" % (seconds, value.microseconds)).rstrip("0") + "S"
    elif seconds:
        clock += "%dS" % seconds
    if not value.days and not clock:
        clock = "0S"
    return "%sP%s%s" % (sign, "%dD" % value.days if value.days else "", "T" + clock if clock else "")


# Errors


# As many mistakes as the server tells of, and one by which it sees that there are more.
_MAX_MISTAKES = 21
_MAX_MISTAKE = 1000


def error_frame(call_id, kind, error=None, message=None, exception=None):
    """The `error` frame of a call, from an exception or from words. An `InvalidArgument` has places, too."""
    if message is None:
        message = _words(error)
    frame = {
        "type": "error",
        "id": call_id,
        "kind": kind,
        "exception": exception or (type(error).__name__ if error is not None else ""),
        "message": shortened(message, MAX_MESSAGE),
        "traceback": user_traceback(error) if error is not None else "",
    }
    if kind == "invalid_arguments" and error is not None:
        frame["violations"] = [
            {"pointer": shortened(place, _MAX_MISTAKE), "message": shortened(reason, _MAX_MISTAKE)}
            for place, reason in getattr(error, "mistakes", ())[:_MAX_MISTAKES]
        ]
    return encode_frame(frame)


def _words(error, depth=0):
    try:
        members = getattr(error, "exceptions", None)
        if depth < 5 and isinstance(members, tuple) and any(base.__name__ == "BaseExceptionGroup" for base in type(error).__mro__):
            # A group says how many there are, and not what they say.
            shown = ["%s: %s" % (type(one).__name__, _words(one, depth + 1)) for one in members[:10]]
            return _noted("%s: %s" % (error, "; ".join(shown)), error)
        return _noted(str(error), error)
    except BaseException:  # A __str__ is the application's code too.
        return "(the exception's own text could not be read)"


def _noted(text, error):
    """The words of an exception, and what `add_note` has added."""
    notes = getattr(error, "__notes__", None)
    return "\n".join([text, *map(str, notes)]) if isinstance(notes, (list, tuple)) else text


# Where this package lies.
OWN_DIRECTORY = os.path.dirname(os.path.abspath(__file__)) + os.sep


def user_traceback(error):
    """The traceback with the worker's and the importer's frames left out, causes and contexts included."""
    import traceback

    try:
        report = traceback.TracebackException(type(error), error, error.__traceback__)
        _trim(report, set())
        return shortened("".join(report.format()), MAX_TRACEBACK)
    except BaseException as problem:
        return "%s (its traceback could not be formatted: %s)" % (type(error).__name__, type(problem).__name__)


def _trim(report, seen):
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    # In place: a StackSummary is a list, and `format` is its method.
    report.stack[:] = [
        frame
        for frame in report.stack
        if not frame.filename.startswith(OWN_DIRECTORY) and not frame.filename.startswith("<frozen importlib")
    ]
    _trim(report.__cause__, seen)
    _trim(report.__context__, seen)
    for member in getattr(report, "exceptions", None) or ():
        _trim(member, seen)
