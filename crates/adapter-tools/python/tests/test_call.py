"""How arguments reach a handler: the five rules, and conversions."""

import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import io
import ipaddress
import pathlib
import sys
import typing
import unittest
import uuid
import zoneinfo
from collections import deque
from dataclasses import dataclass, field
from typing import (
    Any,
    Counter,
    Dict,
    FrozenSet,
    Generic,
    List,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    OrderedDict,
    Set,
    Tuple,
    TypedDict,
    TypeVar,
    Union,
)

import support  # noqa: F401  (puts the package on the path)
import postponed
from owlclaw_worker import protocol, schema
from owlclaw_worker.call import Handler
from owlclaw_worker.convert import InvalidArgument, converter, exact_converter

try:
    import pydantic
except ImportError:
    pydantic = None

try:
    import attr
except ImportError:
    attr = None

CONTEXT = {"client_id": "me", "request_id": "r1"}

DEFAULT_SESSION = {
    "agent_id": "me",
    "run_id": "r1",
    "trigger": "mcp",
    "focus": None,
    "payload": {},
    "tenant_id": "default",
}


def _even(value):
    if value % 2:
        raise ValueError("is odd")
    return value


def taking(hint):
    def handler(x):
        return x

    handler.__annotations__ = {"x": hint}
    return handler


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    LINE = (1, 0)


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Item:
    sku: str
    count: int = 1
    due: Optional[datetime.date] = None


@dataclass
class Positive:
    value: int

    def __post_init__(self):
        if self.value < 1:
            raise ValueError("must be positive")


@dataclass
class Node:
    value: int
    children: List["Node"] = field(default_factory=list)


@dataclass
class Circle:
    radius: float


class Order(TypedDict, total=False):
    item: Item
    placed: datetime.datetime


UserId = NewType("UserId", int)

T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    items: List[T]
    next: Optional["Page[T]"] = None


@dataclass
class Wish:
    item: Item = None


class Pair(NamedTuple):
    first: str
    second: Item = None


class Point(NamedTuple):
    x: int
    y: int = 0


def called(function, arguments):
    positional, keywords = Handler("h", function).bind(arguments, CONTEXT)
    return function(*positional, **keywords)


class Rules(unittest.TestCase):
    def test_arguments_are_mapped_as_owlclaw_maps_them(self):
        some = {"a": 1, "z": 9}
        rows = [
            # 1: everything goes to **kwargs
            (lambda **rest: rest, some, some),
            (lambda a, **rest: (a, rest), some, (1, {"z": 9})),
            (lambda **rest: rest, {}, {}),
            # 2: no parameters, no arguments
            (lambda: "none", some, "none"),
            (lambda *rest: rest, some, ()),
            # 3: session gets all of them
            (lambda session: session, some, some),
            (lambda *, session: session, some, some),
            (lambda session: session, {"session": {"b": 2}}, {"b": 2}),
            (lambda session: session, {"session": {"b": 2}, "z": 1}, {"b": 2}),
            # 4: the declared ones, others are dropped
            (lambda a: a, some, 1),
            (lambda a, b=5: (a, b), some, (1, 5)),
            (lambda a=3, b=4: (a, b), {"q": 1, "r": 2}, (3, 4)),
            # 5: nothing matched, one parameter: it takes the whole
            (lambda payload: payload, some, some),
            (lambda payload: payload, {}, {}),
            (lambda payload=None: payload, some, some),
            (lambda payload=None: payload, {}, None),
            (lambda *, payload: payload, some, some),
            (lambda *rest, payload: (rest, payload), some, ((), some)),
        ]
        for number, (function, arguments, expected) in enumerate(rows):
            with self.subTest(row=number):
                self.assertEqual(called(function, arguments), expected)

    def test_the_server_knows_which_parameter_gets_all_arguments(self):
        rows = [
            (lambda session: session, "session"),
            (lambda session, a, **rest: session, "session"),
            (lambda payload: payload, "payload"),
            (lambda *rest, payload=None: payload, "payload"),
            (lambda a, b: a, None),
            (lambda a, **rest: a, None),
            (lambda: "none", None),
        ]
        for number, (function, whole) in enumerate(rows):
            with self.subTest(row=number):
                handler = Handler("h", function)
                self.assertEqual((handler.whole, handler.aliased), (whole, []))

    def test_a_session_does_not_swallow_the_declared_arguments(self):
        self.assertEqual(called(lambda session, a, b=2: (session, a, b), {"a": 1}), ({"a": 1}, 1, 2))
        self.assertEqual(called(lambda session, **rest: (session, rest), {"a": 1}), ({"a": 1}, {"a": 1}))

    def test_a_session_without_arguments_is_what_the_runtime_provides(self):
        self.assertEqual(called(lambda session: session, {}), DEFAULT_SESSION)
        self.assertEqual(called(lambda session, a=1: (session, a), {}), (DEFAULT_SESSION, 1))
        self.assertEqual(called(lambda session, **rest: (session, rest), {}), (DEFAULT_SESSION, {}))

    def test_a_session_says_who_calls_whatever_the_arguments_are(self):
        forged = {"agent_id": "root", "run_id": "x", "tenant_id": "x", "trigger": "cron", "a": 1}
        true = {"agent_id": "me", "run_id": "r1", "tenant_id": "default", "trigger": "mcp", "a": 1}
        with contextlib.redirect_stderr(io.StringIO()) as told:
            self.assertEqual(called(lambda session: session, forged), true)
            self.assertEqual(called(lambda session: session, {"session": forged}), true)
            self.assertEqual(called(lambda session, **rest: session, {"session": forged}), true)
            self.assertEqual(called(lambda session, **rest: session, forged), true)
        self.assertIn("the argument 'agent_id' is not in `session`", told.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as told:
            # A parameter of that name is an argument like others.
            self.assertEqual(called(lambda session, agent_id: (session["agent_id"], agent_id), {"agent_id": "x"}), ("me", "x"))
        self.assertEqual(told.getvalue(), "")
        self.assertEqual(called(lambda session: session["agent_id"], {"session": {}}), "me")

    def test_the_session_is_a_copy(self):
        arguments = {"a": 1}
        self.assertIsNot(called(lambda session: session, arguments), arguments)

    def test_positional_only_parameters_get_their_values(self):
        names = {}
        exec("def both(a, b=2, /, c=3): return a, b, c", names)
        self.assertEqual(called(names["both"], {"a": 1, "c": 5}), (1, 2, 5))
        with self.assertRaisesRegex(InvalidArgument, r"^/a: is missing$"):
            called(names["both"], {"c": 5})
        exec("def first(session, a, /, b): return session, a, b", names)
        self.assertEqual(called(names["first"], {"a": 1, "b": 2}), ({"a": 1, "b": 2}, 1, 2))

    def test_methods_and_callable_objects_get_no_self(self):
        class Shop:
            def sell(self, sku):
                return sku

            def __call__(self, sku):
                return sku

        self.assertEqual(called(Shop().sell, {"sku": 1}), 1)
        self.assertEqual(called(Shop(), {"sku": 1}), 1)

    def test_arguments_are_converted_on_the_way(self):
        def place(session, item: Item, count: int, name: str = None):
            return session, item, count, name

        raw = {"item": {"sku": "a"}, "count": 3.0, "name": 5}
        # The session stays as it came, and a plain hint changes nothing.
        session, item, count, name = called(place, raw)
        self.assertEqual((session, item, count, name), (raw, Item("a"), 3, 5))
        self.assertIsInstance(count, int)

    def test_the_whole_may_become_a_model(self):
        def place(item: Item):
            return item

        self.assertEqual(called(place, {"sku": "a", "count": 2}), Item("a", 2))
        self.assertEqual(called(place, {"item": {"sku": "a"}}), Item("a"))

    def test_null_passes_where_it_is_the_default(self):
        def find(color: Color = None, since: datetime.date = None, item: Item = None):
            return color, since, item

        self.assertEqual(called(find, {"color": None, "since": None, "item": None}), (None, None, None))
        with self.assertRaises(InvalidArgument):
            called(find, {"color": "green"})

    def test_the_stand_in_maps_arguments_by_the_same_rules(self):
        sys.path.append(str(support.PYTHON_DIRECTORY / "owlclaw_stand_in"))
        try:
            import owlclaw
        finally:
            sys.path.pop()
        some = {"a": 1, "z": 9}
        functions = [
            lambda **rest: rest,
            lambda a, **rest: (a, rest),
            lambda: "none",
            lambda session: session,
            lambda a: a,
            lambda a, b=5: (a, b),
            lambda payload: payload,
        ]
        for number, function in enumerate(functions):
            with self.subTest(row=number):
                self.assertEqual(function(**owlclaw._arguments_for(function, some)), called(function, some))

    def test_errors_name_the_argument(self):
        def place(items: List[Item]): ...

        with self.assertRaisesRegex(InvalidArgument, r"^/items/1/due: '2026-02-30' is no date$"):
            called(place, {"items": [{"sku": "a"}, {"sku": "b", "due": "2026-02-30"}]})


    def test_all_that_does_not_convert_is_told(self):
        @dataclass
        class Stay:
            begins: datetime.date
            ends: datetime.date

        def book(stay: Stay, paid: datetime.date, room: int = 1): ...

        with self.assertRaises(InvalidArgument) as raised:
            called(book, {"stay": {"begins": "x", "ends": "y"}, "paid": "z"})
        told = "/stay/begins: 'x' is no date; /stay/ends: 'y' is no date; /paid: 'z' is no date"
        self.assertEqual(str(raised.exception), told)

        names = ["a%d" % number for number in range(25)]
        stays = typing.TypedDict("stays", {name: datetime.date for name in names})

        def listed(days: stays): ...

        with self.assertRaisesRegex(InvalidArgument, "/days/a19: 'x' is no date; and more$"):
            called(listed, {"days": {name: "x" for name in names}})


    @unittest.skipIf(pydantic is None, "pydantic is not installed")
    def test_callers_use_the_alias_of_a_parameter(self):
        def move(
            from_: typing.Annotated[Level, pydantic.Field(alias="from")],
            class_: int = pydantic.Field(1, alias="class"),
            to: typing.Annotated[int, pydantic.Field(alias="from")] = 2,
        ):
            return from_, class_, to

        handler = Handler("move", move)
        wanted = schema.input_schema(handler.signature, {})
        self.assertEqual(list(wanted["properties"]), ["from", "class", "to"])
        self.assertEqual(wanted["required"], ["from"])
        self.assertEqual((handler.whole, handler.aliased), (None, ["from_", "from", "class_", "class"]))
        self.assertEqual(handler.invoke({"from": 1, "class": 3}, CONTEXT), (Level.LOW, 3, 2))
        self.assertEqual(handler.invoke({"from": 1}, CONTEXT), (Level.LOW, 1, 2))
        with self.assertRaisesRegex(InvalidArgument, "^/from: "):
            handler.invoke({"from": 7}, CONTEXT)
        self.assertEqual(
            handler.signature.problems, ["the alias 'from' of parameter 'to' is not used: another parameter has it"]
        )


class Conversions(unittest.TestCase):
    def test_values_become_what_the_hint_says(self):
        utc = datetime.timezone.utc
        rows = [
            (int, 3.0, 3),
            (int, 3.5, 3.5),
            (List[int], [1.0, 2], [1, 2]),
            (Dict[str, int], {"a": 1.0}, {"a": 1}),
            (Dict[int, str], {"1": "a"}, {1: "a"}),
            (Dict[Color, int], {"red": 1}, {Color.RED: 1}),
            (Optional[int], 3.0, 3),
            (Optional[int], None, None),
            (Optional[int], "x", "x"),
            (Color, "red", Color.RED),
            (Level, 2, Level.HIGH),
            (Level, 2.0, Level.HIGH),
            (Shape, "LINE", Shape.LINE),
            (Rights, 3, Rights.READ | Rights.WRITE),
            (Literal[Color.RED, "x"], "red", Color.RED),
            (datetime.datetime, "2026-01-02T03:04:05Z", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=utc)),
            (
                datetime.datetime,
                "2026-01-02T03:04:05.5+02:00",
                datetime.datetime(2026, 1, 2, 1, 4, 5, 500000, tzinfo=utc),
            ),
            (
                datetime.datetime,
                "2026-01-02T03:04:05.123456789Z",
                datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=utc),
            ),
            (datetime.date, "2026-01-02", datetime.date(2026, 1, 2)),
            (datetime.time, "03:04:05", datetime.time(3, 4, 5)),
            (datetime.timedelta, "P1DT2H", datetime.timedelta(days=1, hours=2)),
            (datetime.timedelta, "-PT0.5S", datetime.timedelta(seconds=-0.5)),
            (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
            (decimal.Decimal, 0.1, decimal.Decimal("0.1")),
            (ipaddress.IPv4Network, "10.0.0.0/8", ipaddress.ip_network("10.0.0.0/8")),
            (ipaddress.IPv6Interface, "::1/64", ipaddress.ip_interface("::1/64")),
            (fractions.Fraction, "1/3", fractions.Fraction(1, 3)),
            (zoneinfo.ZoneInfo, "UTC", zoneinfo.ZoneInfo("UTC")),
            (uuid.UUID, "12345678123456781234567812345678", uuid.UUID(int=0x12345678123456781234567812345678)),
            (pathlib.Path, "/a/b", pathlib.Path("/a/b")),
            (ipaddress.IPv4Address, "10.0.0.1", ipaddress.IPv4Address("10.0.0.1")),
            (bytes, "é", "é".encode()),
            (Item, {"sku": "a", "count": 2.0, "due": "2026-01-02"}, Item("a", 2, datetime.date(2026, 1, 2))),
            (Node, {"value": 1, "children": [{"value": 2}]}, Node(1, [Node(2)])),
            (Order, {"item": {"sku": "a"}, "more": 1}, {"item": Item("a"), "more": 1}),
            (Point, [1.0], Point(1)),
            (Tuple[int, Color], [1.0, "red"], (1, Color.RED)),
            (Tuple[Color, ...], ["red", "blue"], (Color.RED, Color.BLUE)),
            (Tuple[()], [], ()),
            (tuple, [1], (1,)),
            (Set[Color], ["red"], {Color.RED}),
            (FrozenSet[int], [1.0], frozenset([1])),
            (deque, [1], deque([1])),
            (Union[Item, Circle], {"radius": 1.5}, Circle(1.5)),
            (Union[Item, Circle], {"sku": "a"}, Item("a")),
            (Union[int, str], "5", "5"),
            (Union[int, List[int]], [1.0], [1]),
            (Union[datetime.date, str], "2026-01-02", datetime.date(2026, 1, 2)),
            (Union[datetime.date, str], "soon", "soon"),
            (Union[bool, Color], True, True),
            (Dict[Level, int], {"1": 2.0}, {Level.LOW: 2}),
            (Dict[bool, int], {"true": 1}, {True: 1}),
            (Dict[float, int], {"1.5": 1}, {1.5: 1}),
            (Dict[Literal["a", 2], int], {"a": 1, "2": 2}, {"a": 1, 2: 2}),
            (Dict[datetime.date, int], {"2026-01-02": 1}, {datetime.date(2026, 1, 2): 1}),
            (Dict[UserId, int], {"7": 1}, {7: 1}),
            (Counter[str], {"a": 2.0}, collections.Counter({"a": 2})),
            (OrderedDict[str, Color], {"a": "red"}, collections.OrderedDict(a=Color.RED)),
            (Page[Item], {"items": [{"sku": "a"}], "next": {"items": []}}, Page([Item("a")], Page([]))),
            (Wish, {"item": None}, Wish(None)),
            (Pair, ["a", None], Pair("a", None)),
            (Optional[Item], None, None),
            (postponed.Room, {"beds": 1, "next_door": {"beds": 2}}, postponed.Room(1, postponed.Room(2))),
        ]
        for hint, value, expected in rows:
            with self.subTest(hint=hint, value=value):
                converted = converter(hint)(value, "$")
                self.assertEqual(converted, expected)
                self.assertIs(type(converted), type(expected))

    def test_plain_hints_need_no_conversion(self):
        plain = [str, float, bool, dict, list, None, Any, object, List[str], Dict[str, Any], Optional[str]]
        plain += [Union[str, float], Literal["a", 1], "no type", Rules, Dict[str, List[Optional[str]]]]
        for hint in plain:
            with self.subTest(hint=hint):
                self.assertIsNone(converter(hint))

    def test_what_does_not_suit_is_refused_with_its_place(self):
        rows = [
            (Color, "green", r"^\$: expected one of 'red', 'blue'$"),
            (Color, ["red"], r"^\$: expected one of"),
            (Level, True, r"^\$: expected one of"),
            (datetime.date, 5, r"^\$: expected a string$"),
            (datetime.datetime, "2026-01-02", r"is no datetime"),
            (datetime.timedelta, "P", r"is no timedelta"),
            (decimal.Decimal, "ten", r"'ten' is no Decimal"),
            (decimal.Decimal, True, r"expected a string"),
            (uuid.UUID, "x" * 1000, r"is no UUID$"),
            (fractions.Fraction, "1/0", r"^\$: '1/0' is no Fraction$"),
            (zoneinfo.ZoneInfo, "Mars/Olympus", r"is no ZoneInfo$"),
            (Item, {"count": 1}, r"^\$/sku: is missing$"),
            (Item, {"sku": "a", "size": 1}, r"^\$/size: Item has no such member$"),
            (Item, [], r"^\$: expected an object$"),
            (Positive, {"value": 0}, r"^\$: Positive refused it: ValueError: must be positive$"),
            (Node, {"value": 1, "children": [{"value": 1}, {}]}, r"^\$/children/1/value: is missing$"),
            (Optional[Item], {"sku": "a", "due": "x"}, r"^\$/due: 'x' is no date$"),
            (Union[Item, Circle], {"size": 1}, r"suits no member of its union"),
            (Tuple[int, Color], [1], r"^\$: expected 2 items$"),
            (Set[Color], [["red"]], r"^\$/0: expected one of"),
            (Set[Any], [[]], r"unhashable"),
            (Literal[Color.RED], "blue", r"none of the allowed"),
            (Dict[Level, int], {"3": 1}, r"^\$/3: expected one of '1', '2'$"),
            (Dict[float, int], {"x": 1}, r"'x' is no float"),
            (Page[Item], {"items": [{}]}, r"^\$/items/0/sku: is missing$"),
        ]
        for hint, value, message in rows:
            with self.subTest(hint=hint, value=value):
                with self.assertRaisesRegex(InvalidArgument, message):
                    converter(hint)(value, "$")

    @unittest.skipIf(pydantic is None, "pydantic is not installed")
    def test_pydantic_models_validate(self):
        class Line(pydantic.BaseModel):
            sku: str
            due: Optional[datetime.date] = None

        line = converter(List[Line])([{"sku": "a", "due": "2026-01-02"}], "$")[0]
        self.assertEqual(line, Line(sku="a", due=datetime.date(2026, 1, 2)))
        with self.assertRaisesRegex(InvalidArgument, r"^\$/0/sku: Field required$"):
            converter(List[Line])([{}], "$")

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic 2 is not installed")
    def test_each_mistake_that_pydantic_finds_is_told_by_its_place(self):
        class Line(pydantic.BaseModel):
            sku: str
            count: typing.Annotated[int, pydantic.AfterValidator(_even)] = 0

        with self.assertRaises(InvalidArgument) as refused:
            converter(List[Line])([{"sku": "a", "count": 1}, {"sku": 1, "count": 1}], "")
        self.assertEqual(str(refused.exception), "/0/count: Value error, is odd")
        with self.assertRaises(InvalidArgument) as refused:
            converter(Line)({"sku": 1, "count": 1}, "")
        self.assertEqual(str(refused.exception), "/sku: Input should be a valid string; /count: Value error, is odd")

        class Cat(pydantic.BaseModel):
            kind: Literal["cat"]
            lives: typing.Annotated[int, pydantic.AfterValidator(_even)]

        class Dog(pydantic.BaseModel):
            kind: Literal["dog"]

        class Owner(pydantic.BaseModel):
            pets: Dict[str, Union[Cat, Dog]] = pydantic.Field(default={})
            first: typing.Annotated[Union[Cat, Dog], pydantic.Field(discriminator="kind")]

        with self.assertRaises(InvalidArgument) as refused:
            converter(Owner)({"first": {"kind": "cat", "lives": 9}, "pets": {"a/b": {"kind": "dog"}}}, "")
        self.assertEqual(str(refused.exception), "/first/lives: Value error, is odd")
        with self.assertRaises(InvalidArgument) as refused:
            converter(pydantic.FilePath)("/nowhere", "")
        self.assertEqual(str(refused.exception), "arguments: Path does not point to a file")

    @unittest.skipIf(pydantic is None, "pydantic is not installed")
    def test_types_of_pydantic_make_their_values(self):
        url = converter(pydantic.HttpUrl)("https://example.com/a", "$")
        self.assertIsInstance(url, pydantic.HttpUrl)
        with self.assertRaisesRegex(InvalidArgument, r"^\$: Input should be a valid URL"):
            converter(pydantic.HttpUrl)("no", "$")

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic.v1 is not installed")
    @unittest.skipIf(sys.version_info >= (3, 14), "pydantic.v1 knows no Python 3.14")
    def test_pydantic_models_of_version_1_validate(self):
        from pydantic import v1

        class Line(v1.BaseModel):
            sku: str

        self.assertEqual(converter(Line)({"sku": "a"}, "$"), Line(sku="a"))
        with self.assertRaisesRegex(InvalidArgument, r"^\$/sku: field required$"):
            converter(Line)({}, "$")

    @unittest.skipIf(attr is None, "attrs is not installed")
    def test_classes_of_attrs_are_made(self):
        @attr.s(auto_attribs=True)
        class Part:
            sku: str
            _due: datetime.date
            size: int = attr.ib(converter=int, default=1)

        made = converter(Part)({"sku": "a", "due": "2026-01-02", "size": "7"}, "$")
        self.assertEqual(made, Part("a", datetime.date(2026, 1, 2), 7))
        with self.assertRaisesRegex(InvalidArgument, r"^\$/due: is missing$"):
            converter(Part)({"sku": "a"}, "$")

    @unittest.skipIf(not hasattr(typing, "Self"), "Self and spread tuples need Python 3.11")
    def test_newer_notations_are_understood(self):
        @dataclass
        class Chain:
            color: Color
            next: Optional[typing.Self] = None

        made = converter(Chain)({"color": "red", "next": {"color": "blue"}}, "$")
        self.assertEqual(made, Chain(Color.RED, Chain(Color.BLUE)))
        spread = converter(eval("tuple[Color, *tuple[int, ...], Color]"))
        self.assertEqual(spread(["red", 1.0, "blue"], "$"), (Color.RED, 1, Color.BLUE))
        with self.assertRaisesRegex(InvalidArgument, "expected 2 items or more"):
            spread(["red"], "$")

    @unittest.skipIf(sys.version_info < (3, 12), "the syntax needs Python 3.12")
    def test_aliases_that_contain_themselves_convert(self):
        names = {"date": datetime.date}
        exec("type Days = dict[str, Days] | list[Days] | date | None", names)
        made = converter(names["Days"])({"a": [None, {"b": "2026-01-02"}]}, "$")
        self.assertEqual(made, {"a": [None, {"b": datetime.date(2026, 1, 2)}]})

    def test_a_union_is_the_member_that_knows_most_of_a_value(self):
        @dataclass
        class ByName:
            name: str = ""
            limit: int = 10

        @dataclass
        class ByPrice:
            price: float = 0.0
            limit: int = 10

        @dataclass
        class Texts:
            of: str = ""

        @dataclass
        class Dates:
            of: datetime.date

        class Named(TypedDict, total=False):
            name: str

        class Dated(TypedDict):
            name: str
            due: datetime.date

        class Placed(TypedDict, total=False):
            due: datetime.date

        day = datetime.date(2026, 1, 2)
        rows = [
            (Union[ByName, ByPrice], {"price": 5.0}, ByPrice(5.0)),
            (Union[ByName, ByPrice], {"limit": 1}, ByName(limit=1)),
            (Union[ByName, ByPrice], {}, ByName()),
            (Optional[Union[ByName, ByPrice]], {"price": 5.0}, ByPrice(5.0)),
            (Union[Texts, Dict[str, int]], {"of": 1}, {"of": 1}),
            (Union[Dates, Dict[str, str]], {"of": "soon"}, {"of": "soon"}),
            (Union[Named, Dated], {"name": "a", "due": "2026-01-02"}, {"name": "a", "due": day}),
            (Union[Named, Dated], {"name": "a", "more": 1}, {"name": "a", "more": 1}),
            (Union[List[Named], List[Dated]], [{"name": "a", "due": "2026-01-02"}], [{"name": "a", "due": day}]),
            (Union[Dict[str, Named], Dict[str, Dated]], {"x": {"name": "a", "due": "2026-01-02"}}, {"x": {"name": "a", "due": day}}),
            (Union[Named, Dict[str, Any]], {"other": 1}, {"other": 1}),
            (Union[Set[int], List[int]], [1, 1, 2], [1, 1, 2]),
            (Union[Set[int], List[int]], [1, 2], {1, 2}),
            (Union[Tuple[int, int], List[int]], [1, 2, 3], [1, 2, 3]),
            (Union[List[Color], List[str]], ["red", "other"], ["red", "other"]),
            (Union[Point, List[int]], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
        ]
        for hint, value, expected in rows:
            with self.subTest(hint=hint, value=value):
                self.assertEqual(converter(hint)(value, "$"), expected)
                self.assertEqual(converter(List[hint])([value], "$"), [expected])
        with self.assertRaisesRegex(InvalidArgument, r"^\$: suits Named and Placed alike, and neither knows all of its members$"):
            converter(Union[Named, Placed])({"name": "a", "due": "2026-01-02"}, "$")

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic 2 is not installed")
    def test_a_decimal_is_written_for_strict_models(self):
        class Payment(pydantic.BaseModel):
            day: datetime.date = pydantic.Field(strict=True)
            amount: decimal.Decimal
            count: int = 0

        convert = exact_converter(Payment)
        number = protocol.Written("3.00000000000000000001")
        made = convert({"day": "2026-01-02", "amount": number}, "$")
        self.assertEqual((made.day, str(made.amount)), (datetime.date(2026, 1, 2), number.text))
        with self.assertRaisesRegex(InvalidArgument, "^\\$/count: Input should be a valid integer"):
            convert({"day": "2026-01-02", "amount": 1, "count": number}, "$")

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic 2 is not installed")
    def test_pydantic_decides_unions_with_models(self):
        class Article(pydantic.BaseModel):
            sku: str = ""

        class Gift(Article):
            message: str

        class ByPrice(pydantic.BaseModel):
            price: decimal.Decimal

        @dataclass
        class Plain:
            name: str

        gift = {"sku": "A", "message": "hi"}
        rows = [
            (Union[Article, Gift], gift, Gift(**gift)),
            (Union[Article, Gift], {"sku": "A"}, Article(sku="A")),
            (Union[Gift, Article, None], {"sku": "A"}, Article(sku="A")),
            (typing.Annotated[Union[Article, Gift], pydantic.Field(description="d")], gift, Gift(**gift)),
            (Union[Article, ByPrice], {"price": 0.1}, ByPrice(price=decimal.Decimal("0.1"))),
            (Union[Article, Dict[str, int]], {"x": 1}, {"x": 1}),
            (Union[Article, Plain], {"name": "x"}, Plain("x")),
            (Union[List[Article], List[Gift]], [gift], [Gift(**gift)]),
            (Union[Article, Shape], "LINE", Shape.LINE),
        ]
        for hint, value, expected in rows:
            with self.subTest(hint=hint, value=value):
                for one, given, wanted in (
                    (hint, value, expected),
                    (List[hint], [value], [expected]),
                    (Dict[str, hint], {"a": value}, {"a": expected}),
                    (Optional[hint], value, expected),
                ):
                    self.assertEqual(repr(converter(one)(given, "$")), repr(wanted))
        with self.assertRaisesRegex(InvalidArgument, r"^\$/price: Field required"):
            converter(Union[ByPrice, Gift])({}, "$")

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic 2 is not installed")
    def test_a_validator_that_pydantic_would_pass_over_is_run_in_unions_with_models(self):
        class Is:
            def __init__(self, function):
                self.is_valid = function

        @dataclass
        class Even:
            value: typing.Annotated[int, Is(lambda value: value % 2 == 0)]

        class Article(pydantic.BaseModel):
            sku: str

        for hint in (Union[Even, Article], Union[Article, List[Even]]):
            value = {"value": 1} if hint == Union[Even, Article] else [{"value": 1}]
            with self.assertRaisesRegex(InvalidArgument, "suits no member of its union"):
                converter(hint)(value, "$")

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic 2 is not installed")
    def test_strict_models_take_what_their_schema_asks_for(self):
        class Booking(pydantic.BaseModel, strict=True):
            day: datetime.date
            rooms: Set[int]
            color: Color

        value = {"day": "2026-01-02", "rooms": [1, 2], "color": "red"}
        expected = Booking(day=datetime.date(2026, 1, 2), rooms={1, 2}, color=Color.RED)
        self.assertEqual(converter(Booking)(value, "$"), expected)
        self.assertEqual(converter(Union[int, List[Booking], Booking])([value], "$"), [expected])
        with self.assertRaisesRegex(InvalidArgument, r"^\$/rooms/1: Input should be a valid integer"):
            converter(Booking)({**value, "rooms": [1, "2"]}, "$")

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic 2 is not installed")
    def test_types_of_pydantic_that_contain_themselves_are_taken(self):
        value = {"a": [1, None, {"b": 1.5}]}
        for hint, given in (
            (pydantic.JsonValue, value),
            (Optional[pydantic.JsonValue], value),
            (List[pydantic.JsonValue], [value]),
            (Dict[str, pydantic.JsonValue], {"x": value}),
        ):
            self.assertEqual((converter(hint) or (lambda value, _: value))(given, "$"), given)
            self.assertEqual(Handler("f", taking(hint)).signature.refusals, [])

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic 2 is not installed")
    def test_a_type_that_is_not_complete_keeps_its_tool_from_being_offered(self):
        class Loose(pydantic.BaseModel):
            member: "Nowhere"  # noqa: F821

        for hint in (Loose, List[Loose], typing.Annotated[List[Loose], pydantic.BeforeValidator(list)]):
            (refusal,) = Handler("f", taking(hint)).signature.refusals
            self.assertIn("parameter 'x': ", refusal)

    def test_a_defaultdict_makes_what_is_not_there(self):
        made = converter(typing.DefaultDict[str, List[int]])({"a": [1.0]}, "$")
        made["b"].append(2)
        self.assertEqual((type(made), made), (collections.defaultdict, {"a": [1], "b": [2]}))
        nested = converter(typing.DefaultDict[str, typing.DefaultDict[str, int]])({}, "$")
        nested["a"]["b"] += 1
        self.assertEqual(nested, {"a": {"b": 1}})
        with self.assertRaises(KeyError):
            converter(typing.DefaultDict[str, Any])({}, "$")["a"]

    def test_keys_that_become_one_are_refused(self):
        for hint, value in ((Dict[int, int], {"1": 1, "01": 2}), (Dict[float, int], {"1.0": 1, "1.00": 2})):
            with self.assertRaisesRegex(InvalidArgument, r"^\$: two of its keys are the same: '1"):
                converter(hint)(value, "$")

    def test_deeply_nested_unions_take_no_time_to_speak_of(self):
        hint = datetime.date
        for _ in range(9):
            hint = Union[List[hint], Dict[str, hint], int]
        self.assertEqual(converter(hint)(3.0, "$"), 3)

    @unittest.skipIf(sys.version_info < (3, 10), "the notation needs Python 3.10")
    def test_the_newer_notation_of_unions_is_understood(self):
        self.assertEqual(converter(Item | None)({"sku": "a"}, "$"), Item("a"))


if __name__ == "__main__":
    unittest.main()
