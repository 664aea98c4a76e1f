"""Handlers as services have them, each with the arguments that a client sends.

``python handlers.py`` prints what comes of each when Python calls it, as JSON. The same functions are tools of
app.py, which the server runs, and of ``python handlers.py fastmcp``, which FastMCP serves; check.py compares.
Most answer with the ``repr`` of what they got, so that an argument of another type is another answer.
"""

import asyncio
import base64
import collections
import concurrent.futures
import contextlib
import contextvars
import csv
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import http.server
import importlib.util
import inspect
import io
import ipaddress
import json
import logging
import math
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import typing
import urllib.request
import uuid
import warnings
import zoneinfo
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union

import annotated_types
import attrs
import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, HttpUrl, SecretStr

if os.environ.get("CORPUS_FRAMEWORK") == "fastmcp":
    from fastmcp import Context
    from fastmcp.utilities.types import Audio, File, Image
else:
    try:
        from owlclaw_worker import Audio, Context, File, Image
    except ImportError:
        Audio = Context = File = Image = None


@dataclasses.dataclass
class Case:
    function: Any
    arguments: dict
    python: Any  # the same arguments as Python has them; None where they are the same
    error: Optional[str]  # a part of the error that a client gets
    blocks: Optional[list]  # the blocks of content that a client gets
    value: Any  # what a client gets where JSON has no such value
    group: str


CASES: "dict[str, Case]" = {}
SKIPPED: "dict[str, str]" = {}
NOTHING = object()


def case(group, arguments=None, python=None, error=None, blocks=None, value=NOTHING, needs=None):
    """Register a function, unless it needs a package that is not installed."""

    def decorate(function):
        name = getattr(function, "__name__", None) or type(function).__name__
        assert name not in CASES, name
        if needs is not None and (" " in needs or importlib.util.find_spec(needs) is None):
            SKIPPED[name] = needs
        else:
            CASES[name] = Case(function, arguments or {}, python, error, blocks, value, group)
        return function

    return decorate


# Plain values


@case("plain", {"text": "Grüße, 世界 👋"})
def a_text(text: str) -> str:
    return text[::-1]


@case("plain", {"a": 2**53 + 1, "b": -(2**70)})
def large_integers(a: int, b: int) -> dict:
    return {"a": a + 1, "b": b - 1}


@case("plain", {"count": 3.0}, {"count": 3})
def an_integral_float_for_an_integer(count: int) -> str:
    return repr(count)


@case("plain", {"x": 3})
def an_integer_for_a_float(x: float) -> float:
    return x / 2


@case("plain", {"x": 0.1, "y": 1e300})
def floats(x: float, y: float) -> list:
    return [x + 0.2, y, -0.0, 5e-324]


@case("plain", {"yes": True, "no": False})
def truth_values(yes: bool, no: bool) -> str:
    return repr((yes, no))


@case("plain")
def nothing_in_nothing_out() -> None:
    return None


@case("plain", {"data": {"a": [1, {"b": None}], "c": "é"}})
def anything(data: Any) -> Any:
    return data


@case("plain", {"x": 1})
def without_hints(x, y="default"):
    return [x, y]


@case("plain", {"a": 1, "b": 2})
def keyword_only(*, a: int, b: int = 7) -> int:
    return a * b


@case("plain", {"a": 5, "b": 3})
def positional_only(a: int, b: int, /) -> int:
    return a - b


@case("plain", {"payload": "null"})
def text_that_is_json(payload: str) -> str:
    return payload


@case("plain")
def text_that_looks_like_a_number() -> str:
    return "007"


@case("plain")
def an_empty_list() -> list:
    return []


@case("plain")
def an_empty_text() -> str:
    return ""


@case("plain")
def zero() -> int:
    return 0


@case("plain")
def a_truth_value() -> bool:
    return False


@case("plain", {"value": "x" * 200_000})
def a_long_text(value: str) -> int:
    return len(value)


@case("plain", {"a": "no number"}, error="a")
def a_wrong_argument(a: int) -> int:
    return a


@case("plain", {"a": 1, "c": 2}, error="c")
def an_unknown_argument(a: int, b: int = 0) -> int:
    return a + b


# Defaults and bounds


@case("defaults", {"query": "tea"})
def default_by_field(query: str, limit: int = Field(10, ge=1, le=100), offset: int = 0) -> str:
    return repr((query, limit if isinstance(limit, int) else limit.default, offset))


@case("defaults", {"query": "tea", "limit": 0}, error="limit")
def default_by_field_out_of_bounds(query: str, limit: int = Field(10, ge=1, le=100)) -> str:
    return repr((query, limit))


@case("defaults", {})
def default_by_annotated(limit: Annotated[int, Field(ge=1, description="How many.")] = 5) -> int:
    return limit


@case("defaults", {}, {"tags": []})
def default_factory(tags: "list[str]" = Field(default_factory=list)) -> list:
    tags.append("new")
    return tags


@case("defaults", {"name": None})
def optional_without_saying_so(name: str = None) -> str:
    return repr(name)


@case("defaults", {})
def optional_left_out(name: Optional[str] = None, count: "int | None" = 3) -> str:
    return repr((name, count))


@case("defaults", {})
def default_of_other_types(when: dt.date = dt.date(2026, 1, 2), amount: Decimal = Decimal("1.50")) -> str:
    return repr((when, amount))


@case("defaults", {"code": "ab-12"}, error="code")
def pattern(code: Annotated[str, Field(pattern=r"^[A-Z]{2}-\d+$")]) -> str:
    return code


@case("defaults", {"n": 7}, error="n")
def multiple_of(n: Annotated[int, annotated_types.MultipleOf(5)]) -> int:
    return n


@case("defaults", {"items": [1, 2, 3]}, error="items")
def too_many_items(items: Annotated[typing.List[int], Field(max_length=2)]) -> int:
    return len(items)


# Validators


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


Even = Annotated[int, AfterValidator(_even)]
Trimmed = Annotated[str, BeforeValidator(lambda value: value.strip() if isinstance(value, str) else value)]


@case("validators", {"n": 4})
def after_validator(n: Even) -> int:
    return n


@case("validators", {"n": 5}, error="must be even")
def after_validator_refuses(n: Even) -> int:
    return n


@case("validators", {"items": [2, 3]}, error="must be even")
def validator_inside_a_list(items: typing.List[Even]) -> int:
    return sum(items)


@case("validators", {"name": "  Ann "}, {"name": "Ann"})
def before_validator(name: Trimmed) -> str:
    return name


# Decimal, fractions, dates, identifiers


@case("decimals", {"price": "19.99", "count": 3}, {"price": Decimal("19.99"), "count": 3})
def decimal_of_a_text(price: Decimal, count: int) -> Decimal:
    return price * count


@case("decimals", {"price": 0.1}, {"price": Decimal("0.1")})
def decimal_of_a_number(price: Decimal) -> str:
    return repr(price)


@case("decimals", {"price": "RAW:12345678901234567890.123456789"}, {"price": Decimal("12345678901234567890.123456789")})
def decimal_of_a_long_number(price: Decimal) -> str:
    return repr(price)


@case("decimals", {"prices": ["RAW:0.10", "RAW:1e-30"]}, {"prices": [Decimal("0.10"), Decimal("1e-30")]})
def decimals_in_a_list(prices: typing.List[Decimal]) -> str:
    return repr(prices)


class Price(BaseModel):
    amount: Decimal
    currency: str = "EUR"
    rate: float = 1.0


@case("decimals", {"price": {"amount": "RAW:1234567890123456.789012", "rate": 0.5}}, lambda: {"price": Price(amount=Decimal("1234567890123456.789012"), rate=0.5)})
def decimal_in_a_model(price: Price) -> str:
    return repr((price.amount, price.rate, type(price.rate).__name__))


@case("decimals", {"amount": 5, "note": {"x": 0.25}}, {"amount": Decimal(5), "note": {"x": 0.25}})
def decimal_beside_a_float(amount: Decimal, note: dict) -> str:
    return repr((amount, note, type(note["x"]).__name__))


@case("decimals", {"line": {"sku": "tea", "price": "RAW:0.30"}, "more": [0.5, None]}, lambda: {"line": Line("tea", 1, Decimal("0.30")), "more": [0.5, None]})
def decimal_in_a_dataclass(line: "Line", more: typing.List[Optional[float]]) -> str:
    return repr((line, more, type(more[0]).__name__))


@dataclasses.dataclass
class Reading:
    value: Decimal
    raw: Any
    scale: float
    extra: dict


@case(
    "decimals",
    {"reading": {"value": "RAW:1.10", "raw": [1.5], "scale": 2.5, "extra": {"a": 0.25}}},
    lambda: {"reading": Reading(Decimal("1.10"), [1.5], 2.5, {"a": 0.25})},
)
def floats_beside_a_decimal(reading: Reading) -> str:
    return repr((reading, type(reading.raw[0]).__name__, type(reading.scale).__name__, type(reading.extra["a"]).__name__))


@case("decimals", {"a": "RAW:0.10", "b": "RAW:7.0000000000000000001"}, {"a": Decimal("0.10"), "b": Decimal("7.0000000000000000001")})
@pydantic.validate_call
def decimals_validated_by_itself(a: Decimal, b: Optional[Decimal] = None) -> str:
    return repr((a, b))


@case("decimals", {"price": "RAW:2.50"}, {"price": Decimal("2.50")})
def decimal_with_bounds(price: Annotated[Decimal, Field(gt=0, decimal_places=2)]) -> str:
    return repr(price)


@case("decimals", {"price": "RAW:2.501"}, error="price")
def decimal_out_of_bounds(price: Annotated[Decimal, Field(gt=0, decimal_places=2)]) -> str:
    return repr(price)


@case("decimals", {"value": "RAW:1.10"}, {"value": Decimal("1.10")})
def union_of_decimal_and_text(value: Union[Decimal, str, None]) -> str:
    return repr(value)


@case("decimals", {"price": "NaN"}, error="price")
def decimal_that_is_no_number(price: Decimal) -> str:
    return repr(price)


@case("decimals")
def decimal_result() -> "dict[str, Decimal]":
    return {"net": Decimal("10.00"), "gross": Decimal("11.90")}


@case("dates", {"day": "2026-02-28"}, {"day": dt.date(2026, 2, 28)})
def next_day(day: dt.date) -> dt.date:
    return day + dt.timedelta(days=1)


@case("dates", {"day": "2026-02-30"}, error="day")
def a_day_that_does_not_exist(day: dt.date) -> dt.date:
    return day


@case("dates", {"at": "2026-03-29T00:30:00Z"}, {"at": dt.datetime(2026, 3, 29, 0, 30, tzinfo=dt.timezone.utc)})
def moment_with_a_zone(at: dt.datetime) -> str:
    return at.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")).isoformat()


@case("dates", {"at": "2026-03-29T00:30:00.123456"}, {"at": dt.datetime(2026, 3, 29, 0, 30, 0, 123456)})
def moment_without_a_zone(at: dt.datetime) -> dt.datetime:
    return at


@case("dates", {"start": "09:30:00", "length": "PT1H30M"}, {"start": dt.time(9, 30), "length": dt.timedelta(minutes=90)})
def time_and_duration(start: dt.time, length: dt.timedelta) -> str:
    return repr((start, length))


@case("dates")
def dates_in_a_result() -> dict:
    return {"day": dt.date(2026, 1, 2), "at": [dt.datetime(2026, 1, 2, 3, 4, 5)], "for": dt.timedelta(hours=26)}


@case("identifiers", {"id": "12345678-1234-5678-1234-567812345678"}, {"id": uuid.UUID("12345678-1234-5678-1234-567812345678")})
def uuid_argument(id: uuid.UUID) -> uuid.UUID:
    assert isinstance(id, uuid.UUID)
    return id


@case("identifiers", {"address": "10.0.0.1", "network": "10.0.0.0/8"}, {"address": ipaddress.ip_address("10.0.0.1"), "network": ipaddress.ip_network("10.0.0.0/8")})
def addresses(address: ipaddress.IPv4Address, network: ipaddress.IPv4Network) -> bool:
    return address in network


@case("identifiers", {"path": "/srv/data/a.csv"}, {"path": pathlib.Path("/srv/data/a.csv")})
def a_path(path: pathlib.Path) -> str:
    return path.suffix + repr(path.parent)


@case("identifiers", {"url": "https://example.com/a?b=1"}, lambda: {"url": HttpUrl("https://example.com/a?b=1")})
def a_url(url: HttpUrl) -> str:
    return "%s %s" % (url.host, url.path)


@case("identifiers", {"pattern": "a+"}, {"pattern": re.compile("a+")})
def a_regular_expression(pattern: re.Pattern) -> list:
    return pattern.findall("caaandaab")


# Enumerations, literals, unions


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@case("choices", {"color": "red"}, {"color": Color.RED})
def enum_by_value(color: Color) -> str:
    return repr(color)


@case("choices", {"color": "green"}, error="red")
def enum_unknown(color: Color) -> str:
    return repr(color)


@case("choices", {"level": 2}, {"level": Level.HIGH})
def int_enum(level: Level) -> str:
    return repr(level)


@case("choices", {"rights": 3}, {"rights": Right.READ | Right.WRITE})
def flags(rights: Right) -> bool:
    return Right.WRITE in rights


@case("choices")
def enums_in_a_result() -> dict:
    return {"color": Color.BLUE, "level": Level.HIGH, "by": {Color.RED: 1}}


@case("choices", {"mode": "fast", "size": 2})
def literals(mode: Literal["fast", "slow"], size: Literal[1, 2, 3]) -> str:
    return repr((mode, size))


@case("choices", {"value": "5"})
def union_of_text_and_number(value: Union[int, str]) -> str:
    return repr(value)


@case("choices", {"when": "2026-01-02"}, {"when": dt.date(2026, 1, 2)})
def union_of_date_and_integer(when: Union[int, dt.date]) -> str:
    return repr(when)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


@case("choices", {"pet": {"kind": "dog", "name": "Rex"}}, lambda: {"pet": Dog(kind="dog", name="Rex")})
def discriminated_union(pet: Annotated[Union[Cat, Dog], Field(discriminator="kind")]) -> str:
    return repr(pet)


@case("choices", {"pets": [{"kind": "cat"}, None]}, lambda: {"pets": [Cat(kind="cat"), None]})
def list_of_optional_unions(pets: typing.List[Optional[Union[Cat, Dog]]]) -> str:
    return repr(pets)


# Records


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1
    price: Decimal = Decimal("0")


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    lines: typing.List[Line]
    due: Optional[dt.date] = None
    tags: typing.Set[str] = dataclasses.field(default_factory=set)


ORDER = {"id": "12345678-1234-5678-1234-567812345678", "lines": [{"sku": "tea", "price": "2.50"}, {"sku": "pot", "count": 2}]}


@case("records", {"order": ORDER}, lambda: {"order": Order(uuid.UUID(ORDER["id"]), [Line("tea", 1, Decimal("2.50")), Line("pot", 2)])})
def nested_dataclasses(order: Order) -> str:
    return repr(order)


@case("records", {"sku": "tea"})
def dataclass_result(sku: str) -> Line:
    return Line(sku, 2, Decimal("2.50"))


@case("records", {"lines": [{"count": 1}]}, error="sku")
def dataclass_with_a_missing_member(lines: typing.List[Line]) -> int:
    return len(lines)


@attrs.define
class Point:
    x: float
    y: float = 0.0


@case("records", {"point": {"x": 1.5}}, lambda: {"point": Point(1.5)})
def attrs_class(point: Point) -> Point:
    return Point(point.x + 1, point.y)


class Movie(TypedDict, total=False):
    title: str
    year: int


@case("records", {"movie": {"title": "M", "year": 1931}})
def typed_dict(movie: Movie) -> Movie:
    return {**movie, "year": movie["year"] + 1}


class Span(NamedTuple):
    start: int
    end: int = 10


@case("records", {"span": [2, 8]}, {"span": Span(2, 8)})
def named_tuple(span: Span) -> str:
    return repr(span)


class Address(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    street: str = Field(alias="streetName")
    zip: Annotated[str, Field(pattern=r"^\d{5}$")]


class Customer(BaseModel):
    name: str
    email: Optional[str] = None
    address: Address
    since: dt.date = dt.date(2020, 1, 1)
    secret: Optional[SecretStr] = None

    @pydantic.field_validator("name")
    @classmethod
    def _strip(cls, value):
        if not value.strip():
            raise ValueError("a name has letters")
        return value.strip()

    @pydantic.model_validator(mode="after")
    def _check(self):
        if self.email and "@" not in self.email:
            raise ValueError("the email has no @")
        return self


CUSTOMER = {"name": " Ann ", "address": {"streetName": "Main 1", "zip": "12345"}}


@case("models", {"customer": CUSTOMER}, lambda: {"customer": Customer(**CUSTOMER)})
def pydantic_model(customer: Customer) -> str:
    return repr(customer)


@case("models", {"customer": {**CUSTOMER, "name": " "}}, error="a name has letters")
def field_validator_refuses(customer: Customer) -> str:
    return repr(customer)


@case("models", {"customer": {**CUSTOMER, "email": "nobody"}}, error="the email has no @")
def model_validator_refuses(customer: Customer) -> str:
    return repr(customer)


@case("models", {"customer": CUSTOMER}, lambda: {"customer": Customer(**CUSTOMER)})
def model_result(customer: Customer) -> Customer:
    return customer


class Measured(BaseModel):
    value: float

    @pydantic.computed_field
    @property
    def doubled(self) -> float:
        return self.value * 2

    @pydantic.field_serializer("value")
    def _rounded(self, value: float) -> float:
        return round(value, 1)


@case("models", {"value": 1.26})
def computed_field_and_serializer(value: float) -> Measured:
    return Measured(value=value)


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: typing.List[T]
    next: Optional[int] = None


@case("models", {"page": {"items": [{"kind": "cat"}], "next": 2}}, lambda: {"page": Page[Cat](items=[Cat(kind="cat")], next=2)})
def generic_model(page: Page[Cat]) -> str:
    return repr(page)


@case("models", {"page": {"items": [{"kind": "cow"}]}}, error="cat")
def generic_model_refuses(page: Page[Cat]) -> str:
    return repr(page)


class Node(BaseModel):
    value: int
    children: "typing.List[Node]" = []


@case("models", {"node": {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}}, lambda: {"node": Node(value=1, children=[Node(value=2, children=[Node(value=3)])])})
def recursive_model(node: Node) -> str:
    return repr(node)


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


@case("models", {"box": {"content": "2026-01-02"}}, {"box": Box(dt.date(2026, 1, 2))})
def generic_dataclass(box: Box[dt.date]) -> str:
    return repr(box)


@case("models", {"a": 3})
@pydantic.validate_call
def validated_by_itself(a: int, b: int = 2) -> int:
    return a + b


class RootOfList(pydantic.RootModel[typing.List[int]]):
    pass


@case("models", {"numbers": [1, 2]}, lambda: {"numbers": RootOfList([1, 2])})
def root_model(numbers: RootOfList) -> int:
    return sum(numbers.root)


# Collections


@case("collections", {"a": [1, 2], "b": [3]}, {"a": {1, 2}, "b": frozenset([3])})
def sets(a: typing.Set[int], b: typing.FrozenSet[int]) -> str:
    return repr((a, b))


@case("collections", {"a": [1, 1, 2]}, {"a": {1, 2}}, error=None if os.environ.get("CORPUS_FRAMEWORK") == "fastmcp" else "differ")
def a_set_of_equal_items(a: typing.Set[int]) -> int:
    return len(a)


@case("collections", {"a": {"b": 0.5}, "c": 1.5, "d": "x"})
def untyped_containers(a: dict, c: object, d: typing.Union[float, str]) -> str:
    return repr((a, c, d, type(c).__name__))


@case("collections", {"pair": [1, "a"], "many": [1, 2, 3]}, {"pair": (1, "a"), "many": (1, 2, 3)})
def tuples(pair: typing.Tuple[int, str], many: typing.Tuple[int, ...]) -> str:
    return repr((pair, many))


@case("collections", {"stock": {"1": 5, "2": 6}}, {"stock": {1: 5, 2: 6}})
def dict_with_integer_keys(stock: typing.Dict[int, int]) -> str:
    return repr(stock)


@case("collections", {"days": {"2026-01-02": [1]}}, {"days": {dt.date(2026, 1, 2): [1]}})
def dict_with_date_keys(days: typing.Dict[dt.date, typing.List[int]]) -> str:
    return repr(days)


@case("collections", {"values": [3, 1]}, {"values": collections.deque([3, 1])})
def a_deque(values: typing.Deque[int]) -> str:
    return repr(values)


@case("collections", {"words": ["a", "b", "a"]})
def counters_and_defaultdicts(words: typing.List[str]) -> dict:
    found = collections.defaultdict(list)
    for at, word in enumerate(words):
        found[word].append(at)
    return {"count": collections.Counter(words), "at": found, "order": collections.OrderedDict(b=1, a=2)}


@case("collections")
def views_and_ranges() -> dict:
    return {"range": list(range(3)), "keys": list({"a": 1}), "chain": tuple(collections.ChainMap({"a": 1}))}


UserId = NewType("UserId", int)


@case("collections", {"users": [7, 8]})
def new_types(users: typing.List[UserId]) -> UserId:
    return UserId(max(users))


@case("collections", {"rest": 1, "other": "x"})
def open_handler(**more) -> dict:
    return more


# Numbers that JSON does not have


@case("not numbers", value=[None, None, None, 1.5])
def not_a_number() -> list:
    return [math.nan, math.inf, -math.inf, 1.5]


@case("not numbers", value={"mean": None})
def not_a_number_in_an_object() -> "dict[str, float]":
    return {"mean": float("nan")}


# Bytes, pictures, files


@case("bytes", {"data": "héllo"}, {"data": "héllo".encode()})
def bytes_argument(data: bytes) -> int:
    return len(data)


@case("bytes", {"data": base64.b64encode(b"\x00\xff").decode()}, lambda: {"data": b"\x00\xff"})
def base64_argument(data: pydantic.Base64Bytes) -> str:
    return repr(data)


@case("bytes")
def bytes_that_are_text() -> bytes:
    return "straße".encode()


PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
PNG_TEXT = base64.b64encode(PNG).decode()
PICTURE = {"type": "image", "data": PNG_TEXT, "mimeType": "image/png"}


@case("bytes", blocks=[{"type": "resource", "blob": PNG_TEXT}])
def bytes_that_are_no_text() -> bytes:
    return PNG


@case("bytes", blocks=[PICTURE])
def a_picture():
    return Image(data=PNG, format="png")


@case("bytes", blocks=[{"type": "text", "text": "look"}, PICTURE, {"type": "text", "text": '{"a":1}'}])
def several_parts() -> list:
    return ["look", Image(data=PNG, format="png"), {"a": 1}]


@case("bytes", blocks=[{"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"}])
def a_sound():
    return Audio(data=b"RIFF", format="wav")


@case("bytes", blocks=[{"type": "resource", "text": "a,b\n"}])
def a_file():
    path = pathlib.Path(tempfile.gettempdir()) / "owlclaw-corpus.csv"
    path.write_text("a,b\n")
    return File(path=path)


# Streams


@case("streams", {"n": 3})
def a_generator(n: int):
    for at in range(n):
        yield {"at": at}


@case("streams", {"n": 3})
async def an_async_generator(n: int):
    for at in range(n):
        await asyncio.sleep(0)
        yield at * at


@case("streams", error="after two")
def a_generator_that_fails():
    yield 1
    yield 2
    raise RuntimeError("after two")


# Concurrency


@case("concurrency", {"n": 4})
async def gathered(n: int) -> list:
    async def one(at):
        await asyncio.sleep(0.001 * (n - at))
        return at

    return await asyncio.gather(*(one(at) for at in range(n)))


@case("concurrency", {"n": 3})
def asyncio_run_in_a_synchronous_handler(n: int) -> int:
    async def later():
        await asyncio.sleep(0.001)
        return n + 1

    return asyncio.run(later())


@case("concurrency", error="asyncio.run() cannot be called from a running event loop")
async def asyncio_run_in_an_asynchronous_handler() -> int:
    waiting = asyncio.sleep(0)
    try:
        asyncio.run(waiting)
    finally:
        waiting.close()


@case("concurrency", {"n": 8})
def thread_pool(n: int) -> list:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda at: at**2, range(n)))


@case("concurrency", {"n": 8})
def threads_and_a_lock(n: int) -> int:
    total, lock = [0], threading.Lock()

    def add():
        with lock:
            total[0] += 1

    started = [threading.Thread(target=add) for _ in range(n)]
    [one.start() for one in started]
    [one.join() for one in started]
    return total[0]


@case("concurrency", {"x": 3})
async def to_thread(x: int) -> int:
    return await asyncio.to_thread(lambda: x * 2)


VARIABLE = contextvars.ContextVar("variable", default="unset")


@case("concurrency")
async def context_variables() -> list:
    before = VARIABLE.get()
    VARIABLE.set("set")
    return [before, await asyncio.to_thread(VARIABLE.get)]


@case("concurrency", error="timed out")
async def a_timeout_of_its_own() -> str:
    try:
        await asyncio.wait_for(asyncio.sleep(5), 0.01)
    except asyncio.TimeoutError:
        raise RuntimeError("the supplier timed out") from None


@case("concurrency")
def a_child_process() -> str:
    done = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


# Databases, files, HTTP


@case("services", {"minimum": 5})
def sqlite_in_memory(minimum: int) -> list:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        database.execute("create table stock (sku text, count integer)")
        database.executemany("insert into stock values (?, ?)", [("tea", 4), ("pot", 6)])
        return [dict(row) for row in database.execute("select * from stock where count >= ?", (minimum,))]


@case("services", value=[[1]])
def sqlite_rows() -> Any:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        return database.execute("select 1 as one").fetchall()


@case("services")
def temporary_file() -> str:
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write("kept")
        file.seek(0)
        return file.read()


@case("services", {"text": "a,b\n1,2\n"})
def csv_rows(text: str) -> list:
    return list(csv.DictReader(io.StringIO(text)))


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def _served():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield "http://127.0.0.1:%d" % server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@case("services", {"path": "stock"})
def urllib_request(path: str) -> dict:
    with _served() as address, urllib.request.urlopen("%s/%s" % (address, path)) as answer:
        return json.load(answer)


@case("services", {"path": "stock"}, needs="requests")
def requests_get(path: str) -> dict:
    import requests

    with _served() as address:
        return requests.get("%s/%s" % (address, path), timeout=5).json()


@case("services", {"path": "stock"}, needs="httpx")
async def httpx_client(path: str) -> dict:
    import httpx

    with _served() as address:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get("%s/%s" % (address, path))).json()


@case("services", error="ConnectError", needs="httpx")
def httpx_refused() -> dict:
    import httpx

    try:
        return httpx.get("http://127.0.0.1:9", trust_env=False).json()
    except httpx.HTTPError as error:
        raise RuntimeError(type(error).__name__) from error


# Data frames


@case("frames", needs="pandas")
def data_frame() -> Any:
    import pandas

    frame = pandas.DataFrame({"sku": ["tea", "pot"], "count": [4, 6]})
    return frame[frame["count"] > 1].to_dict(orient="records")


@case("frames", value=[{"sku": "tea", "price": 1.5, "day": "2026-01-02T00:00:00"}, {"sku": "pot", "price": None, "day": None}], needs="pandas")
def data_frame_itself() -> Any:
    import pandas

    days = pandas.to_datetime(["2026-01-02", None])
    return pandas.DataFrame({"sku": ["tea", "pot"], "price": [1.5, math.nan], "day": days})


@case("frames", value=[1, 2, 3], needs="pandas")
def series() -> Any:
    import pandas

    return pandas.Series([1, 2, 3])


@case("frames", value={"mean": 2.0, "count": 3, "top": [3, 2]}, needs="numpy")
def numpy_numbers() -> dict:
    import numpy

    values = numpy.array([1, 2, 3])
    return {"mean": values.mean(), "count": values.dtype.type(3), "top": values[:0:-1]}


# Errors


@case("errors", error="no such order: 7")
def a_value_error() -> str:
    raise ValueError("no such order: 7")


@case("errors", error="missing")
def a_key_error() -> str:
    return {}["missing"]


@case("errors", error="division by zero")
def a_chained_error() -> str:
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise RuntimeError("cannot average: %s" % error) from error


class OutOfStock(Exception):
    def __init__(self, sku, left):
        super().__init__(sku, left)
        self.sku, self.left = sku, left

    def __str__(self):
        return "%s: only %d left" % (self.sku, self.left)


@case("errors", error="tea: only 2 left")
def an_error_of_its_own() -> str:
    raise OutOfStock("tea", 2)


@case("errors", error="late", needs=None if hasattr(asyncio, "TaskGroup") else "exception groups of Python 3.11")
async def an_exception_group() -> str:
    async def fails(text):
        raise ValueError(text)

    async with asyncio.TaskGroup() as group:
        group.create_task(fails("late"))
        group.create_task(fails("wrong"))


@case("errors", error="SystemExit")
def a_system_exit() -> str:
    sys.exit(3)


@case("errors", error="KeyboardInterrupt")
def a_keyboard_interrupt() -> str:
    raise KeyboardInterrupt


@case("errors", error="AssertionError")
def an_assertion_without_words() -> str:
    assert 1 == 2


@case("errors", error="recursion")
def endless_recursion() -> str:
    return endless_recursion()


@case("errors", error="object")
def a_result_without_a_json_form() -> Any:
    return object()


@case("errors", error="itself")
def a_result_that_contains_itself() -> Any:
    found = []
    found.append(found)
    return found


# What else functions are


class Multiplier:
    def __init__(self, by):
        self.by = by

    def multiply(self, x: int) -> int:
        """Multiplies."""
        return x * self.by


bound_method = Multiplier(3).multiply
case("functions", {"x": 5})(bound_method)


def logged(function):
    @functools.wraps(function)
    def wrapper(*arguments, **keywords):
        logging.getLogger("corpus").info("called")
        return function(*arguments, **keywords)

    return wrapper


@case("functions", {"a": 1, "b": "2026-01-02"}, {"a": 1, "b": dt.date(2026, 1, 2)})
@logged
def decorated(a: int, b: dt.date) -> str:
    return repr((a, b))


@case("functions", {"x": 4})
@functools.lru_cache
def cached(x: int) -> int:
    return x * x


@case("functions")
def printing() -> str:
    print('{"jsonrpc": "2.0", "id": 1, "result": {}}')
    sys.stdout.flush()
    os.write(1, b"to the descriptor\n") if os.environ.get("CORPUS_FRAMEWORK") != "fastmcp" else None
    return "printed"


@case("functions")
def warning() -> str:
    warnings.warn("a warning")
    return "warned"


@case("functions", {"n": 2})
def a_coroutine_from_a_plain_function(n: int) -> int:
    async def later():
        return n * 10

    return later()


@case("functions", {"steps": 2})
async def with_a_context(steps: int, ctx: Context = None) -> int:
    if ctx is not None:
        for at in range(steps):
            await ctx.report_progress(at + 1, steps)
        await ctx.info("done")
    return steps


# Calling them


def plainly(case):
    """What Python's own call gives, as JSON has it."""
    given = case.python() if callable(case.python) else case.python
    given = case.arguments if given is None else given
    positional = [
        one.name for one in inspect.signature(case.function).parameters.values() if one.kind is one.POSITIONAL_ONLY
    ]
    keywords = {name: value for name, value in given.items() if name not in positional}

    async def call():
        value = case.function(*[given[name] for name in positional], **keywords)
        if inspect.isasyncgen(value):
            return [one async for one in value]
        if inspect.isawaitable(value):
            value = await value
        return list(value) if inspect.isgenerator(value) else value

    if inspect.iscoroutinefunction(case.function) or inspect.isasyncgenfunction(case.function):
        value = asyncio.run(call())
    else:
        value = case.function(*[given[name] for name in positional], **keywords)
        value = asyncio.run(value) if inspect.isawaitable(value) else value
        value = list(value) if inspect.isgenerator(value) else value
    import pydantic_core

    return pydantic_core.to_jsonable_python(value, fallback=attrs.asdict)


def expected():
    """What a client must get of each."""
    found = {}
    for name, one in CASES.items():
        about = {"group": one.group, "arguments": one.arguments}
        if one.error is not None:
            found[name] = {**about, "error": one.error}
        elif one.blocks is not None:
            found[name] = {**about, "blocks": one.blocks}
        else:
            found[name] = {**about, "value": plainly(one) if one.value is NOTHING else one.value}
    return {"cases": found, "skipped": SKIPPED}


def serve_with_fastmcp():
    import fastmcp

    server = fastmcp.FastMCP("corpus")
    for name, one in CASES.items():
        try:
            server.tool(one.function, name=name)
        except Exception as error:
            print("%s is not registered: %s" % (name, str(error).splitlines()[0]), file=sys.stderr)
    server.run(show_banner=False)


if __name__ == "__main__":
    if sys.argv[1:] == ["fastmcp"]:
        serve_with_fastmcp()
    else:
        # Some of them print.
        with os.fdopen(os.dup(1), "w") as answer:
            os.dup2(2, 1)
            json.dump(expected(), answer)
