"""What handlers return besides values: content, streams, frames of data."""

import base64
import json
import sys
import unittest

from support import OLD_PYDANTIC, WorkerProcess, call_frame

HEAD = """
import asyncio, datetime, decimal, math, os, threading, time, uuid
import owlclaw_worker
from owlclaw_worker import Audio, File, Image, ToolResult
from owlclaw import OwlClaw
app = OwlClaw("test")
app.mount_skills("skills")
handler = app.handler
"""


class Results(unittest.TestCase):
    maxDiff = None

    def test_content_of_all_kinds(self):
        text = HEAD + """
@handler("image")
def image(): return Image(data=b"\\x89PNG", format="png")
@handler("audio")
async def audio(): return Audio(data=b"RIFF", format="wav")
@handler("file")
def file():
    with open("note.txt", "w") as note: note.write("hello")
    return File(path="note.txt")
@handler("bytes")
def raw(): return b"\\xff\\x00"
@handler("text")
def text(): return File(data="Grüße".encode(), format="TXT", name="note")
@handler("several")
def several(): return ["a picture", Image(data=b"1", format="jpeg"), {"a": math.nan}]
@handler("full")
def full(): return ToolResult(content="said", structured_content={"a": 1}, meta={"m": 2})
@handler("structured")
def structured(): return ToolResult(structured_content={"a": decimal.Decimal("1.5")})
@handler("missing")
def missing(): return Image(path="no-such-file.png")
@handler("list")
def plain(): return ["a", 1]
"""
        blob = base64.b64encode(b"\xff\x00").decode()
        expected = {
            "image": {"content": [{"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"}]},
            "audio": {"content": [{"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"}]},
            "bytes": {
                "content": [
                    {
                        "type": "resource",
                        "resource": {"uri": "file:///resource", "mimeType": "application/octet-stream", "blob": blob},
                    }
                ]
            },
            "text": {
                "content": [
                    {"type": "resource", "resource": {"uri": "file:///note.txt", "mimeType": "text/plain", "text": "Grüße"}}
                ]
            },
            "several": {
                "content": [
                    {"type": "text", "text": "a picture"},
                    {"type": "image", "data": "MQ==", "mimeType": "image/jpeg"},
                    {"type": "text", "text": '{"a":null}'},
                ]
            },
            "full": {"content": [{"type": "text", "text": "said"}], "structured": {"a": 1}, "meta": {"m": 2}},
            "structured": {"content": [{"type": "text", "text": '{"a":"1.5"}'}], "structured": {"a": "1.5"}},
        }
        for threads in (1, 8):
            with WorkerProcess(text, threads=threads) as worker:
                worker.ready()
                for call_id, (name, content) in enumerate(expected.items()):
                    worker.send(call_frame(call_id, name))
                    frame = worker.frame()
                    self.assertEqual((frame["type"], frame["value"]), ("content", content), name)
                worker.send(call_frame(50, "file"))
                resource = worker.frame()["value"]["content"][0]["resource"]
                self.assertEqual((resource["mimeType"], resource["text"]), ("text/plain", "hello"))
                self.assertTrue(resource["uri"].startswith("file:///"), resource)
                self.assertIn("no-such-file.png", worker.error(51, "missing")["traceback"])
                self.assertEqual(worker.result(52, "list"), ["a", 1])

    def test_generators_report_their_items_and_answer_with_all_of_them(self):
        text = HEAD + """
@handler("count")
def count(to: int):
    for number in range(to): yield {"number": number}
@handler("count-later")
async def count_later(to: int):
    for number in range(to):
        await asyncio.sleep(0)
        yield {"number": number}
@handler("fails")
def fails():
    yield 1
    raise ValueError("no more")
"""
        for threads in (1, 8):
            with WorkerProcess(text, threads=threads) as worker:
                worker.ready()
                for call_id, name in enumerate(("count", "count-later")):
                    worker.send(call_frame(call_id, name, {"to": 3}))
                    frames = [worker.frame() for _ in range(4)]
                    self.assertEqual([frame["type"] for frame in frames], ["progress"] * 3 + ["result"])
                    self.assertEqual([frame["progress"] for frame in frames[:3]], [1, 2, 3])
                    self.assertEqual(frames[1]["message"], '{"number":1}')
                    self.assertEqual(frames[3]["value"], [{"number": 0}, {"number": 1}, {"number": 2}])
                worker.send(call_frame(9, "fails"))
                self.assertEqual(worker.frame()["type"], "progress")
                self.assertEqual(worker.frame()["exception"], "ValueError")

    def test_frames_of_data_are_their_records(self):
        # Of the shape of pandas, which need not be installed.
        text = HEAD + """
class RangeIndex:
    name, nlevels, start, step = None, 1, 0, 1
class Index(list):
    nlevels = 1
    def tolist(self): return list(self)
class DataFrame:
    def __init__(self, *columns, index=RangeIndex()): self.columns, self.index = columns or ("sku", "n"), index
    def to_dict(self, orient):
        labels = {} if isinstance(self.index, RangeIndex) else {"reset": False}
        return {"records": [{**labels, "sku": "a", "n": math.nan}]}[orient]
    def reset_index(self):
        frame = DataFrame(*self.columns)
        frame.to_dict = lambda orient: {"records": [{"index": self.index[0], "sku": "a", "n": math.nan}]}[orient]
        return frame
DataFrame.__module__ = "pandas.core.frame"
class Series:
    def __init__(self, index=RangeIndex()): self.index = index
    def tolist(self): return [1, math.inf]
Series.__module__ = "pandas.core.series"
@handler("labels")
def labels(): return [Series(Index(["a", "b"])), Series(Index([7, datetime.date(2026, 1, 2)])), DataFrame(index=Index(["mean"]))]
@handler("twice")
def twice(): return {"x": Series(Index(["a", "a"]))}
@handler("levels")
def levels():
    index = Index(["a", "b"])
    index.nlevels = 2
    return Series(index)
@handler("frame")
def frame(): return DataFrame()
@handler("nested")
def nested(): return {"rows": DataFrame(), "totals": Series()}
class Table:
    column_names = ["n", "sku", "n"]
    def to_pylist(self): return [{"n": 2, "sku": "a"}]
Table.__module__ = "pyarrow.lib"
@handler("doubles")
def doubles(kind: str): return [DataFrame("sku", "n", "sku") if kind == "pandas" else Table()]
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            self.assertEqual(worker.result(1, "frame"), [{"sku": "a", "n": None}])
            self.assertEqual(worker.result(2, "nested"), {"rows": [{"sku": "a", "n": None}], "totals": [1, None]})
            expected = [{"a": 1, "b": None}, {"7": 1, "2026-01-02": None}, [{"index": "mean", "sku": "a", "n": None}]]
            self.assertEqual(worker.result(5, "labels"), expected)
            for number, name, why in ((6, "twice", "/x is a Series with the same label twice; return series.reset_index()"),
                                      (7, "levels", "the value is a Series with labels of several levels; return")):
                self.assertIn(why, worker.error(number, name)["message"])
            for number, kind, why in ((3, "pandas", "a DataFrame with two columns named 'sku'"), (4, "pyarrow", "a Table with two columns named 'n'")):
                error = worker.error(number, "doubles", {"kind": kind})
                self.assertEqual(error["kind"], "unserializable")
                self.assertIn("/0 is %s; rename one" % why, error["message"])

    def test_notes_of_exceptions_are_told(self):
        text = HEAD + """
@handler("noted")
def noted():
    error = ValueError("no such order")
    error.__notes__ = ["it was deleted", "in May"]  # as `add_note` does it since Python 3.11
    raise error
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            self.assertEqual(worker.error(1, "noted")["message"], "no such order\nit was deleted\nin May")

    def test_the_members_of_a_group_of_exceptions_are_told(self):
        if sys.version_info < (3, 11):
            self.skipTest("there are no groups before Python 3.11")
        text = HEAD + """
@handler("grouped")
def grouped():
    raise ExceptionGroup("two failed", [ValueError("late"), ExceptionGroup("inner", [KeyError("sku")])])
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            message = worker.error(1, "grouped")["message"]
            self.assertIn("ValueError: late; ExceptionGroup: inner (1 sub-exception): KeyError: 'sku'", message)

    def test_a_sleep_in_a_thread_ends_when_its_call_is_cancelled(self):
        text = HEAD + """
@handler("rest")
def rest():
    try:
        owlclaw_worker.log("rests")
        time.sleep(600)
    finally:
        began = time.monotonic()
        time.sleep(0.1)
        owlclaw_worker.log("cleaned up after %.1f" % (time.monotonic() - began))
"""
        with WorkerProcess(text, threads=8) as worker:
            worker.ready()
            worker.send(call_frame(1, "rest"))
            # Else the cancellation could come before the handler began.
            self.assertEqual(worker.frame()["message"], "rests")
            worker.send({"type": "cancel", "id": 1})
            frames = [worker.frame(), worker.frame()]
            kinds = {frame["type"]: frame for frame in frames}
            self.assertEqual(kinds["error"]["kind"], "cancelled")
            self.assertIn("cleaned up after 0.1", kinds["log"]["message"])


class Decimals(unittest.TestCase):
    """A decimal has the digits of the number that was sent, and what is beside it stays a float."""

    TEXT = HEAD + """
import dataclasses
from decimal import Decimal
from typing import Any, List, Optional, Union
@dataclasses.dataclass
class Line:
    price: Decimal
    weight: float
    note: Any = None
@handler("one")
def one(price: Decimal, weight: float = 0): return repr((price, weight, type(weight).__name__))
@handler("many")
async def many(lines: List[Line], rest: Optional[Union[Decimal, str]] = None): return repr((lines, rest, type(lines[0].note[0]).__name__))
@handler("none")
def none(weight: float, more: dict): return repr((weight, more, type(more["a"]).__name__))
@app.prompt("offer")
def offer(price: Decimal): return repr(price)
"""

    def send(self, worker, call_id, name, arguments, kind="call"):
        frame = {**call_frame(call_id, name, {}), "type": kind}
        worker.send_raw(json.dumps(frame).replace('"arguments": {}', '"arguments": ' + arguments).encode())
        return worker.frame()["value"]

    def test_each_digit_is_kept(self):
        long = "12345678901234567890.123456789"
        rows = [
            ("one", '{"price": %s, "weight": 0.5}' % long, "(Decimal('%s'), 0.5, 'float')" % long),
            ("one", '{"price": 0.10}', "(Decimal('0.10'), 0, 'int')"),
            ("one", '{"price": 1e-30}', "(Decimal('1E-30'), 0, 'int')"),
            (
                "many",
                '{"lines": [{"price": %s, "weight": 1.5, "note": [0.25]}], "rest": 1.10}' % long,
                "([Line(price=Decimal('%s'), weight=1.5, note=[0.25])], Decimal('1.10'), 'float')" % long,
            ),
            ("none", '{"weight": 0.10, "more": {"a": 1.10}}', "(0.1, {'a': 1.1}, 'float')"),
        ]
        for threads in (1, 8):
            with WorkerProcess(self.TEXT, threads=threads) as worker:
                worker.ready()
                for call_id, (name, arguments, expected) in enumerate(rows):
                    self.assertEqual(self.send(worker, call_id, name, arguments), expected)
                said = self.send(worker, 90, "offer", '{"price": "%s"}' % long, "prompt")
                self.assertIn(long, said["messages"][0]["content"]["text"])

    def test_models_of_pydantic_keep_them_too(self):
        try:
            import pydantic  # noqa: F401
        except ImportError:
            self.skipTest("pydantic is not installed")
        text = HEAD + """
from decimal import Decimal
from typing import Optional
import pydantic
class Price(pydantic.BaseModel):
    amount: Optional[Decimal] = None
    rate: float = 1.0
@handler("price")
def price(price: Price): return repr((price.amount, price.rate, type(price.rate).__name__))
@handler("validated")
@pydantic.validate_call
def validated(amount: Decimal, rate: float): return repr((amount, rate, type(rate).__name__))
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            arguments = '{"amount": 1234567890123456.789012, "rate": 0.10}'
            expected = "(Decimal('1234567890123456.789012'), 0.1, 'float')"
            self.assertEqual(self.send(worker, 1, "price", '{"price": %s}' % arguments), expected)
            self.assertEqual(self.send(worker, 2, "validated", arguments), expected)


class Integers(unittest.TestCase):
    """A number for an integer is the one that was sent, or refused."""

    TEXT = HEAD + """
import dataclasses, enum
from typing import Any, Dict, List, Optional, Tuple, TypedDict, Union
class Size(enum.IntEnum):
    SMALL = 3
@dataclasses.dataclass
class Line:
    count: int
    weight: float = 0.5
class Row(TypedDict):
    count: int
def offer(name, hint):
    def shown(n): return "%s %r" % (type(n).__name__, n)
    shown.__annotations__["n"] = hint
    handler(name)(shown)
for name, hint in {
    "plain": int, "list": List[int], "pair": Tuple[int, float], "map": Dict[str, int], "maybe": Optional[int],
    "either": Union[int, str], "line": Line, "row": Row, "enum": Size, "any": Any, "float": float,
}.items():
    offer(name, hint)
@handler("rest")
def rest(**rest: int): return "%s %r" % (type(rest["n"]).__name__, rest["n"])
@handler("lines")
def lines(**rest: Dict[str, int]): return repr(rest["n"])
@handler("whole")
def whole(order: Line): return repr(order)
@app.prompt("asked")
def asked(n: int, pair: Tuple[int, float] = None): return "%s %r %s" % (type(n).__name__, n, pair and type(pair[1]).__name__)
"""
    LONG = [
        ("12345678901234567891.0", "12345678901234567891"),
        ("123456789012345678e3", "123456789012345678000"),
        ("9007199254740993.0", "9007199254740993"),
        ("-9007199254740993.0", "-9007199254740993"),
        ("90071992547409930E-1", "9007199254740993"),
        ("1e22", "10000000000000000000000"),
        ("3.0", "3"),
        ("30e-1", "3"),
    ]
    NONE = ["3.00000000000000000001", "9007199254740992.5", "300000000000000000001e-20"]

    def send(self, worker, name, arguments, kind="call"):
        self.sent = getattr(self, "sent", 0) + 1
        frame = {**call_frame(self.sent, name, {}), "type": kind}
        worker.send_raw(json.dumps(frame).replace('"arguments": {}', '"arguments": ' + arguments).encode())
        answer = worker.frame()
        if answer["type"] == "error":
            self.assertEqual(answer["kind"], "invalid_arguments", answer)
            return answer["message"]
        return answer["value"]

    def test_no_digit_is_lost(self):
        shapes = [
            ("plain", "%s", "int %s", "/n"),
            ("list", "[1, %s]", "list [1, %s]", "/n/1"),
            ("pair", "[%s, 0.10]", "tuple (%s, 0.1)", "/n/0"),
            ("map", '{"a": %s}', "dict {'a': %s}", "/n/a"),
            ("maybe", "%s", "int %s", "/n"),
            ("line", '{"count": %s, "weight": 0.25}', "Line Line(count=%s, weight=0.25)", "/n/count"),
            ("row", '{"count": %s, "more": 0.5}', "dict {'count': %s, 'more': 0.5}", "/n/count"),
            ("rest", "%s", "int %s", "/n"),
            ("lines", '{"a": %s}', "{'a': %s}", "/n/a"),
        ]
        with WorkerProcess(self.TEXT) as worker:
            worker.ready()
            for name, sent, seen, place in shapes:
                for written, number in self.LONG:
                    with self.subTest(name=name, written=written):
                        self.assertEqual(self.send(worker, name, '{"n": %s}' % (sent % written)), seen % number)
                for written in self.NONE:
                    with self.subTest(name=name, written=written):
                        told = self.send(worker, name, '{"n": %s}' % (sent % written))
                        self.assertEqual(told, "%s: %s is no integer" % (place, written))
            self.assertEqual(self.send(worker, "either", '{"n": 12345678901234567891.0}'), "int 12345678901234567891")
            for written, number in self.LONG:
                # A skill may publish a schema that names the members.
                arguments = '{"count": %s, "weight": 0.25}' % written
                self.assertEqual(self.send(worker, "whole", arguments), "Line(count=%s, weight=0.25)" % number)
            for written in self.NONE:
                told = self.send(worker, "whole", '{"count": %s}' % written)
                self.assertEqual(told, "/order/count: %s is no integer" % written)
            self.assertEqual(self.send(worker, "enum", '{"n": 30e-1}'), "Size <Size.SMALL: 3>")
            self.assertIn("is no integer", self.send(worker, "enum", '{"n": 3.00000000000000000001}'))
            # A double is what it is for these.
            for name in ("any", "float"):
                self.assertEqual(self.send(worker, name, '{"n": 9007199254740993.0}'), "float 9007199254740992.0")
            said = self.send(worker, "asked", '{"n": "12345678901234567891.0", "pair": "[1, 0.5]"}', "prompt")
            self.assertEqual(said["messages"][0]["content"]["text"], "int 12345678901234567891 float")

    def test_models_of_pydantic_lose_none_either(self):
        try:
            import pydantic  # noqa: F401
        except ImportError:
            self.skipTest("pydantic is not installed")
        text = HEAD + """
from decimal import Decimal
from typing import Annotated, Any, Union
import pydantic
class Order(pydantic.BaseModel):
    count: int
    weight: float = 0.5
    note: Any = None
class Priced(Order):
    price: Decimal = Decimal(1)
def halved(value): return value
@handler("order")
def order(n: Order): return repr((n.count, n.weight, n.note, type(n.note).__name__))
@handler("priced")
def priced(n: Priced): return repr((n.count, n.price))
@handler("orders")
def orders(n: Union[Order, list[Order]]): return repr(n[0].count)
@handler("noted")
def noted(n: Annotated[int, pydantic.BeforeValidator(halved)]): return repr(n)
@handler("validated")
@pydantic.validate_call
def validated(n: int, more: Any = None): return repr((n, type(more).__name__))
@handler("others")
@pydantic.validate_call
def others(**rest: int): return repr(rest["n"])
@handler("rest")
def rest(**rest: Order): return repr((rest["n"].count, rest["n"].weight))
@handler("priced_rest")
def priced_rest(**rest: Priced): return repr((rest["n"].count, rest["n"].price))
@handler("whole")
def whole(n: Order): return repr((n.count, n.weight))
"""
        shapes = [
            ("order", '{"n": {"count": %s, "note": 0.25}}', "(%s, 0.5, 0.25, 'float')"),
            ("priced", '{"n": {"count": %s, "price": 3.00000000000000000001}}', "(%s, Decimal('3.00000000000000000001'))"),
            ("orders", '{"n": [{"count": %s}]}', "%s"),
            ("noted", '{"n": %s}', "%s"),
            ("validated", '{"n": %s, "more": 0.5}', "(%s, 'float')"),
            ("others", '{"n": %s}', "%s"),
            ("rest", '{"n": {"count": %s, "weight": 0.99999999999999999}}', "(%s, 1.0)"),
            ("priced_rest", '{"n": {"count": %s, "price": 3.00000000000000000001}}', "(%s, Decimal('3.00000000000000000001'))"),
            ("whole", '{"count": %s, "weight": 1e-400}', "(%s, 0.0)"),
        ]
        with WorkerProcess(text) as worker:
            worker.ready()
            for name, sent, seen in shapes:
                for written, number in self.LONG:
                    with self.subTest(name=name, written=written):
                        self.assertEqual(self.send(worker, name, sent % written), seen % number)
                for written in self.NONE:
                    with self.subTest(name=name, written=written):
                        self.assertIn("/n", self.send(worker, name, sent % written))
            # A double is what it is for these.
            for written in ("0.99999999999999999", "1.00000000000000000001", "1e-400", "9007199254740992.5"):
                arguments = '{"n": {"count": 1, "weight": %s}}' % written
                self.assertIn("(1, %r, " % float(written), self.send(worker, "order", arguments))

    def test_models_of_pydantic_1_lose_none_either(self):
        if OLD_PYDANTIC is None:
            self.skipTest("pydantic 1 is not installed")
        text = HEAD + "import %s as pydantic\n" % OLD_PYDANTIC.__name__ + """
from decimal import Decimal
from typing import List, Optional
class Line(pydantic.BaseModel):
    count: pydantic.PositiveInt
    weight: float = 0.5
class Order(pydantic.BaseModel):
    lines: List[Line]
class Priced(pydantic.BaseModel):
    count: int = 0
    price: Decimal = Decimal(1)
@handler("order")
def order(n: Order): return repr((n.lines[0].count, n.lines[0].weight))
@handler("priced")
def priced(n: Priced): return repr((n.count, n.price + 0))
@handler("positive")
def positive(n: pydantic.conint(gt=-2**63)): return repr(n)
@handler("listed")
def listed(n: pydantic.conlist(int, min_items=1)): return repr(n[0])
@handler("weight")
def weight(n: pydantic.confloat(gt=0)): return repr((n, type(n).__name__))
@handler("validated")
@pydantic.validate_arguments
def validated(n: int, weight: float = 0.5): return repr((n, weight))
"""
        shapes = [
            ("order", '{"n": {"lines": [{"count": %s, "weight": 0.99999999999999999}]}}', "(%s, 1.0)"),
            ("priced", '{"n": {"count": %s, "price": 3.00000000000000000001}}', "(%s, Decimal('3.00000000000000000001'))"),
            ("positive", '{"n": %s}', "%s"),
            ("listed", '{"n": [%s]}', "%s"),
            ("validated", '{"n": %s, "weight": 0.99999999999999999}', "(%s, 1.0)"),
        ]
        with WorkerProcess(text) as worker:
            worker.ready()
            for name, sent, seen in shapes:
                for written, number in self.LONG:
                    if number.startswith("-") and name == "order":
                        continue
                    with self.subTest(name=name, written=written):
                        self.assertEqual(self.send(worker, name, sent % written), seen % number)
                for written in self.NONE:
                    with self.subTest(name=name, written=written):
                        self.assertIn("/n", self.send(worker, name, sent % written))
            self.assertEqual(self.send(worker, "weight", '{"n": 0.99999999999999999}'), "(1.0, 'float')")


class Contexts(unittest.TestCase):
    def test_a_context_is_no_argument_and_knows_the_call(self):
        text = HEAD + """
from typing import Optional
from owlclaw_worker import Context, get_context
@handler("sync")
def sync(what: str, ctx: Context):
    ctx.info("began")
    ctx.report_progress(1, 2)
    ctx.set_state("what", what)
    return [ctx.client_id, ctx.request_id, list(ctx.roles), get_context().get_state("what")]
@handler("async")
async def asynchronous(ctx: "Optional[Context]" = None, what: str = "x"):
    await ctx.warning("began", logger_name="shop", extra={"at": datetime.date(2026, 1, 2)})
    await ctx.report_progress(1, 2)
    return [ctx.client_id, what]
@handler("only")
def only(context: Context): return context.request_id
"""
        for threads in (1, 8):
            with WorkerProcess(text, threads=threads) as worker:
                tools = {tool["name"]: tool for tool in worker.ready()["tools"]}
                self.assertEqual(list(tools["sync"]["input_schema"]["properties"]), ["what"])
                self.assertEqual(list(tools["async"]["input_schema"]["properties"]), ["what"])
                self.assertEqual(tools["only"]["input_schema"].get("properties", {}), {})
                who = {"client_id": "anna", "roles": ["clerk"], "request_id": "r1"}
                worker.send({"type": "call", "id": 1, "name": "sync", "arguments": {"what": "tea"}, "ctx": who})
                frames = [worker.frame() for _ in range(3)]
                self.assertEqual([frame["type"] for frame in frames], ["log", "progress", "result"])
                self.assertEqual((frames[0]["to_client"], frames[0]["message"]), (True, "began"))
                self.assertEqual(frames[2]["value"], ["anna", "r1", ["clerk"], "tea"])
                # What a caller gives under its name is not it.
                arguments = {"ctx": "forged", "what": "tea"}
                worker.send({"type": "call", "id": 2, "name": "async", "arguments": arguments, "ctx": who})
                frames = [worker.frame() for _ in range(3)]
                self.assertEqual((frames[0]["logger"], frames[0]["extra"]), ("shop", {"at": "2026-01-02"}))
                self.assertEqual(frames[2]["value"], ["anna", "tea"])
                worker.send({"type": "call", "id": 3, "name": "only", "arguments": {}, "ctx": who})
                self.assertEqual(worker.frame()["value"], "r1")

    def test_outside_of_calls_there_is_no_context(self):
        import owlclaw_worker

        with self.assertRaisesRegex(RuntimeError, "there is no call here"):
            owlclaw_worker.get_context()


if __name__ == "__main__":
    unittest.main()
