"""An application with all forms of types, as arguments and in answers."""

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import typing
import uuid
from typing import Annotated, Any, Dict, FrozenSet, List, Literal, NamedTuple, NewType, Optional, Set, Tuple, TypedDict, Union

import attr
import pydantic
from owlclaw import OwlClaw

app = OwlClaw("types")
app.mount_skills("skills")


class Color(enum.Enum):
    """A color."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    ONE = (1,)


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1
    color: Optional[Color] = None
    price: Optional[decimal.Decimal] = None
    tags: Set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Node:
    value: Optional[int] = None
    parent: Optional["Node"] = None
    children: List["Node"] = dataclasses.field(default_factory=list)


class Entry(TypedDict, total=False):
    line: Optional[Line]
    kind: Literal["a", 1, None]
    either: Union[Line, Color]


class Point(NamedTuple):
    x: int
    y: Optional[int] = None


@attr.s(auto_attribs=True)
class Box:
    inside: Optional[Union[Line, Entry]] = None
    point: Optional[Point] = None


class Model(pydantic.BaseModel):
    name: Optional[str] = pydantic.Field(None, title="A name", examples=["x"], max_length=9)
    line: Optional[Line] = None
    either: Union[int, str, None] = None
    model: Optional["Model"] = None
    url: Optional[pydantic.HttpUrl] = None


Sku = NewType("Sku", Annotated[str, pydantic.Field(pattern="^[A-Z]+$")])

FORMS = {
    "plain": int,
    "text": str,
    "number": float,
    "truth": bool,
    "nothing": None,
    "anything": Any,
    "color": Color,
    "level": Level,
    "odd": Odd,
    "line": Line,
    "node": Node,
    "entry": Entry,
    "point": Point,
    "box": Box,
    "model": Model,
    "sku": Sku,
    "literal": Literal["a", 1, None, True],
    "list": List[Line],
    "set": Set[int],
    "frozen": FrozenSet[str],
    "pair": Tuple[int, str],
    "many": Tuple[int, ...],
    "dict": Dict[str, Line],
    "by_color": Dict[Color, int],
    "by_number": Dict[int, List[Optional[str]]],
    "counter": typing.Counter[str],
    "moment": datetime.datetime,
    "day": datetime.date,
    "time": datetime.time,
    "length": datetime.timedelta,
    "money": decimal.Decimal,
    "uuid": uuid.UUID,
    "path": pathlib.Path,
    "address": ipaddress.IPv4Address,
    "bytes": bytes,
    "either": Union[int, str],
    "overlap": Union[int, float],
    "records": Union[Line, Model, Entry],
    "deque": typing.Deque[int],
    "bounded": Annotated[int, pydantic.Field(ge=1, le=9, title="T", examples=[3])],
    "validated": Annotated[str, pydantic.AfterValidator(str.strip)],
    "before": Annotated[List[int], pydantic.BeforeValidator(lambda it: it, json_schema_input_type=Union[str, List[int], None])],
    "stripped": Annotated[str, pydantic.StringConstraints(strip_whitespace=True, max_length=9)],
}


def offer(name, hint):
    """Three tools: the form as an argument, where it may be null, and in an answer."""

    def takes(value, many=None, maybe=None):
        return "taken"

    takes.__annotations__ = {"value": hint, "many": List[Optional[hint]], "maybe": Optional[hint]}
    app.handler("takes-" + name)(takes)

    fields = [("value", Optional[hint], None), ("many", List[Optional[hint]], dataclasses.field(default_factory=list))]
    answer = dataclasses.make_dataclass("Answer", fields)

    def gives():
        return answer()

    gives.__annotations__ = {"return": answer}
    app.handler("gives-" + name)(gives)


for name, hint in FORMS.items():
    offer(name, hint)


@app.handler("returns-nested")
def returns_nested() -> Entry:
    return {"line": Line("a", color=Color.RED), "kind": None, "either": Color.BLUE}


@app.handler("returns-point")
def returns_point() -> Dict[str, Point]:
    return {"a": Point(1), "b": Point(1, 2)}


@app.handler("returns-model")
def returns_model() -> Model:
    return Model(name="x", line=Line("a"), model=Model())


@app.handler("typed")
def typed(session):
    return "taken"
