"""What handlers return, as strict JSON; and frames."""

import collections
import datetime
import decimal
import enum
import json
import pathlib
import types
import unittest
import uuid
import zoneinfo
from dataclasses import dataclass
from typing import Any

import support  # noqa: F401  (puts the package on the path)
from owlclaw_worker import protocol
from owlclaw_worker.protocol import Unserializable, encode_value

try:
    import pydantic
except ImportError:
    pydantic = None


class Color(enum.Enum):
    RED = "red"


class Name(str, enum.Enum):
    ANNA = "anna"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Row:
    total: Any
    when: datetime.date = datetime.date(2026, 1, 2)


def refuse_constant(name):
    raise AssertionError(name)


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


class Values(unittest.TestCase):
    def test_values_are_written_sensibly(self):
        rows = [
            (None, None),
            ("é\ud83d\ude00", "é😀"),  # a character cut in two by somebody's UTF-16
            ({"é": [1, 2.5, True]}, {"é": [1, 2.5, True]}),
            ((1, 2), [1, 2]),
            ({3, 1, 2}, [1, 2, 3]),
            (frozenset(["a"]), ["a"]),
            (b"abc", "abc"),
            (bytearray("é".encode()), "é"),
            (decimal.Decimal("1.10"), "1.10"),
            (zoneinfo.ZoneInfo("UTC"), "UTC"),
            (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc), "2026-01-02T03:04:05+00:00"),
            (datetime.date(2026, 1, 2), "2026-01-02"),
            (datetime.time(3, 4), "03:04:00"),
            (datetime.timedelta(days=1, hours=2, milliseconds=1500), "P1DT2H1.5S"),
            (datetime.timedelta(seconds=-1), "-PT1S"),
            (datetime.timedelta(0), "PT0S"),
            (pathlib.PurePosixPath("/a"), "/a"),
            (Color.RED, "red"),
            (Name.ANNA, "anna"),
            (Level.LOW, 1),
            (Row(decimal.Decimal(1)), {"total": "1", "when": "2026-01-02"}),
            ([Row(Row(1))], [{"total": {"total": 1, "when": "2026-01-02"}, "when": "2026-01-02"}]),
            (collections.OrderedDict(a=1), {"a": 1}),
            (types.MappingProxyType({"a": 1}), {"a": 1}),
            (collections.deque([1]), [1]),
            (range(3), [0, 1, 2]),
            ({"a": 1}.values(), [1]),
            ({"a": 1}.keys(), ["a"]),
            ({1: "a", None: "b", True: "c"}, {"1": "c", "null": "b"}),
            ({Color.RED: 1, datetime.date(2026, 1, 2): 2}, {"red": 1, "2026-01-02": 2}),
            ({uuid.UUID(int=1): 1, 2.5: 2}, {"00000000-0000-0000-0000-000000000001": 1, "2.5": 2}),
            (nested(100), nested(100)),
            ("[" * 1000, "[" * 1000),
            ("7" * 1000, "7" * 1000),
            (10**299, 10**299),
        ]
        for value, expected in rows:
            with self.subTest(value=str(value)[:80]):
                body = encode_value(value)
                self.assertEqual(json.loads(body.decode("utf-8"), parse_constant=refuse_constant), expected)

    def test_the_fast_and_the_exact_way_agree(self):
        shared = [1]
        value = {"a": shared, "b": shared, "row": Row([decimal.Decimal(2)]), "set": {1, 2}, "level": Level.LOW}
        self.assertEqual(json.loads(encode_value(value)), protocol.to_plain(value))

    def test_what_has_no_json_form_is_named(self):
        cycle = {"a": []}
        cycle["a"].append(cycle)
        self_row = Row(None)
        self_row.total = self_row

        def generator():
            yield 1

        async def coroutine(): ...

        waiting = coroutine()
        self.addCleanup(waiting.close)
        rows = [
            (cycle, "/a/0 contains itself"),
            (self_row, "/total contains itself"),
            (nested(101), "is nested more than 100 levels deep"),
            (nested(5000), "is nested more than 100 levels deep"),
            (Row(nested(100)), "is nested more than 100 levels deep"),
            ({"x": b"\xff"}, "/x is bytes that are not UTF-8 (at offset 0); encode them yourself"),
            ({"file name": "a\udc80"}, '/file name holds a lone surrogate'),
            ({"a\udc80": 1}, "the value holds a lone surrogate"),
            ({"g": generator()}, "/g is a generator; return a list"),
            (iter([1]), "the value is a list_iterator; return a list"),
            (waiting, "the value is a coroutine that was not awaited"),
            ([object()], "/0 is a object, which has no JSON form"),
            (Row, "the value is the class Row"),
            (1j, "the value is a complex, which has no JSON form"),
            ({(1, 2): 3}, "the value has a key of type tuple; keys are strings"),
            ({"big": 10**300}, "/big is an integer of 300 digits or more"),
            ({"big": 10**5000}, "/big is an integer of 300 digits or more"),
            ({1: "a", "1": "b"}, "the value has two keys that are both written '1'"),
            ([{"x": {True: 1, "true": 2}}], "/0/x has two keys that are both written 'true'"),
            ({1.5: 1, "1.5": 2}, "the value has two keys that are both written '1.5'"),
            ({Color.RED: 1, "red": 2}, "the value has two keys that are both written 'red'"),
        ]
        for value, message in rows:
            with self.subTest(message=message):
                with self.assertRaises(Unserializable) as caught:
                    encode_value(value)
                self.assertIn(message, str(caught.exception))
                self.assertLess(len(str(caught.exception)), 400)

    def test_properties_that_raise_are_named(self):
        class Model:
            def model_dump(self, **_):
                raise RuntimeError("not today")

        with self.assertRaisesRegex(Unserializable, r"/m: a Model that could not be read: RuntimeError: not today"):
            encode_value({"m": Model()})

    @unittest.skipIf(pydantic is None, "pydantic is not installed")
    def test_pydantic_models_are_written_as_json(self):
        class Line(pydantic.BaseModel):
            sku: str = pydantic.Field(alias="SKU")
            price: float = 1.0
            due: datetime.date = datetime.date(2026, 1, 2)

        self.assertEqual(json.loads(encode_value([Line(SKU="a")])), [{"SKU": "a", "price": 1.0, "due": "2026-01-02"}])
        self.assertIsNone(json.loads(encode_value([Line(SKU="a", price=float("nan"))]))[0]["price"])

    def test_numbers_that_json_does_not_have_are_null(self):
        rows = {"a": float("nan"), "b": [float("inf"), -float("inf")], "c": 1.5}
        self.assertEqual(json.loads(encode_value(rows)), {"a": None, "b": [None, None], "c": 1.5})
        self.assertEqual(encode_value(float("nan")), b"null")
        for name in ("NaN", "sNaN", "Infinity", "-Infinity"):
            self.assertEqual(encode_value([decimal.Decimal(name), decimal.Decimal("1.50")]), b'[null,"1.50"]', name)


class Frames(unittest.TestCase):
    def test_frames_survive_any_cut(self):
        frames = [{"type": "ping"}, {"type": "call", "id": 1, "text": "é" * 50}, {"type": "x"}]
        stream = b"".join(protocol.encode_frame(frame) for frame in frames)
        for size in range(1, len(stream) + 1):
            reader = protocol.FrameReader()
            read = []
            for start in range(0, len(stream), size):
                read += reader.feed(stream[start : start + size])
            self.assertEqual(read, frames)

    def test_a_frame_that_cannot_be_read_is_answered_or_fatal(self):
        digits = b"9" * 5000
        rows = [
            (b'{"type":"call","id":7,"arguments":{"n":' + b"[" * 100000 + b"]" * 100000 + b"}}", 7),
            (b'{"type":"state","id":8,"x":nonsense}', 8),
            (b'{"type":"ping"', None),
            (b'{"id":7,"type":"call"', None),
            (b"\xff", None),
            (b"[1]", None),
            (b'{"type":1}', None),
        ]
        try:
            int(digits)
        except ValueError:
            rows.append((b'{"type":"call","id":9,"arguments":{"n":' + digits + b"}}", 9))
        for payload, call_id in rows:
            with self.subTest(payload=payload[:40]):
                stream = len(payload).to_bytes(4, "big") + payload
                if call_id is None:
                    with self.assertRaises(protocol.ProtocolError):
                        protocol.FrameReader().feed(stream)
                else:
                    (frame,) = protocol.FrameReader().feed(stream)
                    self.assertEqual((frame["type"], frame["id"]), ("unreadable", call_id))

    def test_a_frame_that_announces_too_much_is_refused_at_once(self):
        with self.assertRaises(protocol.ProtocolError):
            protocol.FrameReader().feed((protocol.MAX_FRAME + 1).to_bytes(4, "big"))

    def test_the_bound_is_exact(self):
        overhead = len(b'{"type":"result","id":1,"value":""}')
        frame = protocol.encode_result(1, "a" * (protocol.MAX_FRAME - overhead))
        self.assertEqual(len(frame), protocol.MAX_FRAME + 4)
        with self.assertRaises(protocol.TooLarge):
            protocol.encode_result(1, "a" * (protocol.MAX_FRAME - overhead + 1))

    def test_errors_always_fit_and_are_always_strict(self):
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError

        for error in (ValueError("x" * 10**7), ValueError("\udc80"), Odd()):
            frame = protocol.error_frame(1, "raised", error)
            self.assertLess(len(frame), 10**6)
            self.assertEqual(json.loads(frame[4:].decode("utf-8"))["kind"], "raised")


if __name__ == "__main__":
    unittest.main()
