"""Schemas made of type hints."""

import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import pathlib
import random
import sys
import typing
import unittest
import uuid
import zoneinfo
from collections import deque, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Dict, FrozenSet, List, Literal, NamedTuple, NewType, Optional, Set, Tuple, TypedDict, Union

import support  # noqa: F401  (puts the package on the path)
import postponed
from owlclaw_worker import hints, schema
from owlclaw_worker.docstring import parse

try:
    from typing import Annotated
except ImportError:  # pragma: no cover
    from typing_extensions import Annotated

try:
    from jsonschema import Draft202012Validator
except ImportError:
    Draft202012Validator = None
    print("jsonschema is not installed: schemas are NOT checked against the meta-schema", file=sys.stderr)

try:
    import pydantic
except ImportError:
    pydantic = None
    print("pydantic is not installed: its models are NOT tested", file=sys.stderr)

try:
    import annotated_types
except ImportError:
    annotated_types = None

try:
    import attr
except ImportError:
    attr = None
    print("attrs is not installed: its classes are NOT tested", file=sys.stderr)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    SQUARE = (1, 1)
    LINE = (1, 0)


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Address:
    """Where somebody lives.

    Args:
        street: Street and number.
    """

    street: str
    city: str = "Oslo"
    tags: List[str] = field(default_factory=list)


@dataclass
class Person:
    name: str
    home: Address
    work: Optional[Address] = None


@dataclass
class Node:
    value: int
    children: List["Node"] = field(default_factory=list)
    parent: Optional["Node"] = None


@dataclass
class Computed:
    given: int
    seed: InitVar[int]
    made: int = field(init=False, default=0)


class Movie(TypedDict):
    title: str
    year: int


class Rated(Movie, total=False):
    rating: float


class Point(NamedTuple):
    x: int
    y: int = 0


UserId = NewType("UserId", int)

T = typing.TypeVar("T")


@dataclass
class Page(typing.Generic[T]):
    items: List[T]
    next: Optional["Page[T]"] = None


class Currency(enum.Enum):
    EUR = 1.5
    USD = True


class Bound:
    """What `annotated_types` would provide."""

    def __init__(self, **bounds):
        self.__dict__.update(bounds)


def described(function):
    """What is known of a function, and the schema of its arguments."""
    signature = hints.Signature(function)
    return signature, schema.input_schema(signature, {})


def input_of(function):
    signature = hints.Signature(function)
    documented = parse(inspect.getdoc(function), [parameter.name for parameter in signature.parameters])
    return schema.input_schema(signature, documented.parameters)


class Checked(unittest.TestCase):
    maxDiff = None

    def check(self, candidate):
        json.dumps(candidate, allow_nan=False)
        if Draft202012Validator is not None:
            Draft202012Validator.check_schema(candidate)

    def admit(self, candidate, value):
        if Draft202012Validator is not None:
            Draft202012Validator(candidate).validate(value)

    def refuse(self, candidate, value):
        if Draft202012Validator is not None:
            self.assertFalse(Draft202012Validator(candidate).is_valid(value), value)

    def check_type(self, hint, expected, definitions=None):
        generator = schema.Generator()
        made = generator.schema(hint)
        self.check({**made, "$defs": generator.definitions})
        self.assertEqual(made, expected)
        if definitions is not None:
            self.assertEqual(generator.definitions, definitions)


INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
MAP = {"type": "object", "additionalProperties": {"type": "string"}}
DECIMAL = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class Types(Checked):
    def test_hints_become_the_schemas_of_their_json(self):
        rows = [
            (str, {"type": "string"}),
            (int, {"type": "integer"}),
            (float, {"type": "number"}),
            (bool, {"type": "boolean"}),
            (None, {"type": "null"}),
            (Any, {}),
            (object, {}),
            (hints.MISSING, {}),
            (complex, {}),
            (Checked, {}),
            (list, {"type": "array"}),
            (List[int], {"type": "array", "items": {"type": "integer"}}),
            (List[Any], {"type": "array"}),
            (Sequence[str], {"type": "array", "items": {"type": "string"}}),
            (deque, {"type": "array"}),
            (Set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
            (FrozenSet[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
            (tuple, {"type": "array"}),
            (Tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
            (
                Tuple[int, str],
                {
                    "type": "array",
                    "prefixItems": [{"type": "integer"}, {"type": "string"}],
                    "minItems": 2,
                    "maxItems": 2,
                },
            ),
            (Tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
            (
                Point,
                {
                    "type": "array",
                    "prefixItems": [{"type": "integer"}, {"type": "integer", "default": 0}],
                    "minItems": 1,
                    "maxItems": 2,
                },
            ),
            (dict, {"type": "object"}),
            (Dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
            (Dict[str, Any], {"type": "object"}),
            (Mapping[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
            (
                Dict[int, str],
                {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "propertyNames": {"pattern": "^-?[0-9]+$"},
                },
            ),
            (Dict[float, str], {**MAP, "propertyNames": {"pattern": DECIMAL}}),
            (Dict[bool, str], {**MAP, "propertyNames": {"enum": ["true", "false"]}}),
            (Dict[Level, str], {**MAP, "propertyNames": {"enum": ["1", "2"]}}),
            (Dict[Color, str], {**MAP, "propertyNames": {"enum": ["red", "blue"]}}),
            (Dict[Literal["a", 2], str], {**MAP, "propertyNames": {"enum": ["a", "2"]}}),
            (Dict[datetime.date, str], {**MAP, "propertyNames": {"format": "date"}}),
            (Dict[uuid.UUID, str], {**MAP, "propertyNames": {"format": "uuid"}}),
            (Dict[UserId, str], {**MAP, "propertyNames": {"pattern": "^-?[0-9]+$"}}),
            (Dict[Tuple[int, int], str], MAP),
            (typing.Counter[str], {"type": "object", "additionalProperties": {"type": "integer"}}),
            (typing.DefaultDict[str, str], MAP),
            (datetime.datetime, {"type": "string", "format": "date-time"}),
            (datetime.date, {"type": "string", "format": "date"}),
            (datetime.time, {"type": "string", "format": "time"}),
            (datetime.timedelta, {"type": "string", "format": "duration"}),
            (uuid.UUID, {"type": "string", "format": "uuid"}),
            (zoneinfo.ZoneInfo, {"type": "string"}),
            (bytes, {"type": "string"}),
            (UserId, {"type": "integer"}),
            (typing.TypeVar("B", bound=int), {"type": "integer"}),
            (T, {}),
            (typing.AnyStr, {"type": "string"}),
            (List[T], {"type": "array"}),
            (pathlib.Path, {"type": "string"}),
            (typing.Iterable[int], {"type": "array", "items": {"type": "integer"}}),
            (typing.ClassVar[int], {"type": "integer"}),
            (hints.Unknown, {}),
            (Optional[hints.Unknown], {}),
            (typing.Callable[[int], int], {}),
            (typing.Type[int], {}),
        ]
        for hint, expected in rows:
            with self.subTest(hint=hint):
                self.check_type(hint, expected)

    def test_a_decimal_is_a_number_or_its_text(self):
        made = schema.Generator().schema(decimal.Decimal)
        self.check(made)
        for value, fits in [(1.5, True), (3, True), ("10.25", True), ("-.5e3", True), ("ten", False), (True, False)]:
            with self.subTest(value=value):
                (self.admit if fits else self.refuse)(made, value)

    def test_optional_is_a_choice_with_null(self):
        rows = [
            (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            (Union[None, str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),
            (Optional[Any], {}),
            (Optional[List[int]], {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}),
            (Optional[Address], {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}]}),
            (Optional[Literal["a"]], {"anyOf": [{"enum": ["a"], "type": "string"}, {"type": "null"}]}),
            (
                Optional[Union[int, str]],
                {"oneOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
            ),
            (type(None), {"type": "null"}),
        ]
        if sys.version_info >= (3, 10):
            rows.append((int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}))
        for hint, expected in rows:
            with self.subTest(hint=hint):
                self.check_type(hint, expected)
                made = {**schema.Generator().schema(hint), "$defs": {"Address": {"type": "object"}}}
                self.admit(made, None)

    def test_unions_are_one_of_only_where_the_branches_cannot_overlap(self):
        rows = [
            (Union[int, str], "oneOf"),
            (Union[str, List[int]], "oneOf"),
            (Union[str, Dict[str, int], List[int], bool], "oneOf"),
            (Union[Address, str], "oneOf"),
            (Union[Color, Level], "oneOf"),
            (Union[int, float], "anyOf"),
            (Union[Address, Movie], "anyOf"),
            (Union[Color, str], "anyOf"),
            (Union[List[int], List[str]], "anyOf"),
            (Union[int, decimal.Decimal], "anyOf"),
        ]
        for hint, keyword in rows:
            with self.subTest(hint=hint):
                generator = schema.Generator()
                made = generator.schema(hint)
                self.check({**made, "$defs": generator.definitions})
                self.assertEqual(list(made), [keyword])

    def test_a_union_of_numbers_admits_an_integer(self):
        # As oneOf it would not: 3 is an integer and a number.
        self.admit(schema.Generator().schema(Union[int, float]), 3)

    def test_a_union_with_an_unknown_member_admits_everything(self):
        self.check_type(Union[int, Checked], {})

    def test_members_of_a_union_that_look_the_same_are_one(self):
        self.check_type(Union[List[int], Sequence[int]], {"type": "array", "items": {"type": "integer"}})

    def test_literals_and_enums_list_their_values(self):
        rows = [
            (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}, {}),
            (Literal[1, True, "x"], {"enum": [1, True, "x"]}, {}),
            (Literal["a", None], {"anyOf": [{"enum": ["a"], "type": "string"}, {"type": "null"}]}, {}),
            (Literal[Color.RED], {"enum": ["red"], "type": "string"}, {}),
            (Color, {"$ref": "#/$defs/Color"}, {"Color": {"enum": ["red", "blue"], "type": "string"}}),
            (Level, {"$ref": "#/$defs/Level"}, {"Level": {"enum": [1, 2], "type": "integer"}}),
            (Shape, {"$ref": "#/$defs/Shape"}, {"Shape": {"enum": ["SQUARE", "LINE"], "type": "string"}}),
            (Rights, {"$ref": "#/$defs/Rights"}, {"Rights": {"type": "integer"}}),
        ]
        for hint, expected, definitions in rows:
            with self.subTest(hint=hint):
                self.check_type(hint, expected, definitions)

    def test_annotations_add_descriptions_and_bounds(self):
        rows = [
            (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
            (Annotated[int, Bound(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
            (Annotated[float, Bound(gt=0, lt=1.5)], {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.5}),
            (Annotated[int, Bound(multiple_of=5)], {"type": "integer", "multipleOf": 5}),
            (Annotated[int, Bound(multiple_of=0)], {"type": "integer"}),
            (Annotated[str, Bound(min_length=1, max_length=5)], {"type": "string", "minLength": 1, "maxLength": 5}),
            (Annotated[str, Bound(pattern="^a+$")], {"type": "string", "pattern": "^a+$"}),
            (Annotated[str, Bound(pattern="(?P<x>a)")], {"type": "string"}),
            (Annotated[List[str], Bound(max_length=2)], {"type": "array", "items": {"type": "string"}, "maxItems": 2}),
            (Annotated[int, Bound(documentation="a doc")], {"type": "integer", "description": "a doc"}),
            (Annotated[int, Bound(metadata=[Bound(ge=3)])], {"type": "integer", "minimum": 3}),
            (
                Annotated[Optional[int], "maybe"],
                {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "maybe"},
            ),
            (Annotated[Address, "home"], {"$ref": "#/$defs/Address", "description": "home"}),
        ]
        for hint, expected in rows:
            with self.subTest(hint=hint):
                self.check_type(hint, expected)

    def test_bounds_apply_to_what_they_can_be_about(self):
        rows = [
            (Annotated[Optional[int], Bound(ge=3)], {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}),
            (Optional[Annotated[int, Bound(ge=3)]], {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}),
            (
                Annotated[Union[int, float], Bound(gt=0)],
                {"anyOf": [{**INTEGER, "exclusiveMinimum": 0}, {**NUMBER, "exclusiveMinimum": 0}]},
            ),
            (
                Annotated[Union[str, List[int]], Bound(min_length=2)],
                {"oneOf": [{"type": "string", "minLength": 2}, {"type": "array", "items": INTEGER, "minItems": 2}]},
            ),
            (Annotated[int, Bound(ge=decimal.Decimal("1.5"))], {"type": "integer", "minimum": 1.5}),
            (Annotated[int, Bound(min_length=2, pattern="a")], INTEGER),
            (Annotated[str, Bound(ge=2)], {"type": "string"}),
            (Annotated[Any, Bound(ge=2)], {}),
            (Annotated[int, Bound(ge=float("inf"), le=True)], INTEGER),
            (Annotated[str, Bound, object()], {"type": "string"}),
        ]
        for hint, expected in rows:
            with self.subTest(hint=hint):
                self.check_type(hint, expected)

    @unittest.skipIf(annotated_types is None, "annotated-types is not installed")
    def test_annotated_types_are_understood(self):
        rows = [
            (Annotated[int, annotated_types.Interval(ge=1, lt=5)], {**INTEGER, "minimum": 1, "exclusiveMaximum": 5}),
            (Annotated[float, annotated_types.Gt(0), annotated_types.MultipleOf(0.5)],
             {**NUMBER, "exclusiveMinimum": 0, "multipleOf": 0.5}),
            (Annotated[List[int], annotated_types.Len(1, 3)],
             {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 3}),
            (Annotated[str, annotated_types.MinLen(2), "a name"],
             {"type": "string", "minLength": 2, "description": "a name"}),
            (Annotated[Dict[str, int], annotated_types.MaxLen(2)],
             {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2}),
        ]
        for hint, expected in rows:
            with self.subTest(hint=hint):
                self.check_type(hint, expected)

    def test_generic_classes_are_described_with_what_they_are_given(self):
        generator = schema.Generator()
        self.assertEqual(generator.schema(Page[Movie]), {"$ref": "#/$defs/Page_Movie"})
        self.assertEqual(generator.schema(Page[int]), {"$ref": "#/$defs/Page_int"})
        self.check({"$defs": generator.definitions})
        defined = generator.definitions["Page_Movie"]["properties"]
        self.assertEqual(defined["items"], {"type": "array", "items": {"$ref": "#/$defs/Movie"}})
        self.assertEqual(defined["next"]["anyOf"][0], {"$ref": "#/$defs/Page_Movie"})
        self.assertEqual(generator.definitions["Page_int"]["properties"]["items"], {"type": "array", "items": INTEGER})

    @unittest.skipIf(not hasattr(typing, "Self"), "Self needs Python 3.11")
    def test_self_is_the_class_it_is_written_in(self):
        @dataclass
        class Chain:
            value: int
            next: Optional[typing.Self] = None

        generator = schema.Generator()
        made = {**generator.schema(Chain), "$defs": generator.definitions}
        self.check(made)
        self.admit(made, {"value": 1, "next": {"value": 2, "next": None}})
        self.refuse(made, {"value": 1, "next": {"value": "2"}})
        self.check_type(typing.Self, {})

    def test_definitions_have_names_that_a_reference_can_have(self):
        for name in ("订单", "Größe", "a b/c~d%20"):
            with self.subTest(name=name):
                cls = dataclass(type(name, (), {"__annotations__": {"x": int}}))
                generator = schema.Generator()
                reference = generator.schema(cls)["$ref"]
                self.assertRegex(reference, r"^#/\$defs/[A-Za-z0-9_]+$")
                self.admit({"$ref": reference, "$defs": generator.definitions}, {"x": 1})

    @unittest.skipIf(not hasattr(typing, "Unpack"), "the notation needs Python 3.11")
    def test_tuples_of_known_ends_and_unknown_middle(self):
        rows = [
            ("tuple[int, *tuple[str, ...]]", {"prefixItems": [INTEGER], "items": {"type": "string"}, "minItems": 1}),
            ("tuple[int, *tuple[str, ...], bool]", {"prefixItems": [INTEGER], "minItems": 2}),
            ("tuple[*tuple[int, str]]", schema._fixed([INTEGER, {"type": "string"}], 2)),
            ("Tuple[int, typing.Unpack[typing.TypeVarTuple('Ts')]]", {"prefixItems": [INTEGER], "minItems": 1}),
        ]
        for text, expected in rows:
            with self.subTest(hint=text):
                self.check_type(eval(text), {"type": "array", **expected})

    @unittest.skipIf(attr is None, "attrs is not installed")
    def test_classes_of_attrs_are_definitions(self):
        @attr.s(auto_attribs=True)
        class Part:
            """A part."""

            sku: str
            _secret: int = 0
            tags: List[str] = attr.Factory(list)
            size: int = attr.ib(converter=int, default="3", metadata={"description": "In mm."})
            made: str = attr.ib(init=False, default="here")

        self.check_type(
            Part,
            {"$ref": "#/$defs/Part"},
            {
                "Part": {
                    "type": "object",
                    "description": "A part.",
                    "properties": {
                        "sku": {"type": "string"},
                        "secret": {"type": "integer", "default": 0},
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "size": {"description": "In mm.", "default": "3"},
                    },
                    "required": ["sku"],
                    "additionalProperties": False,
                }
            },
        )
        from owlclaw_worker.protocol import to_plain

        made = schema.output_schema(Part)
        self.check(made)
        self.assertEqual(made["required"], ["sku", "_secret", "tags", "size", "made"])
        self.admit(made, to_plain(Part("a")))

    def test_titles_and_examples_of_fields_are_kept(self):
        @dataclasses.dataclass
        class Noted:
            sku: str = dataclasses.field(metadata={"title": "SKU", "examples": ["TEA-1"], "description": "Which.", "more": 1})

        generator = schema.Generator()
        generator.schema(Noted)
        self.assertEqual(
            generator.definitions["Noted"]["properties"]["sku"],
            {"type": "string", "description": "Which.", "title": "SKU", "examples": ["TEA-1"]},
        )

    def test_dataclasses_are_definitions(self):
        self.check_type(
            Person,
            {"$ref": "#/$defs/Person"},
            {
                "Person": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "home": {"$ref": "#/$defs/Address"},
                        "work": {
                            "anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}],
                            "default": None,
                        },
                    },
                    "required": ["name", "home"],
                    "additionalProperties": False,
                },
                "Address": {
                    "type": "object",
                    "description": "Where somebody lives.",
                    "properties": {
                        "street": {"type": "string", "description": "Street and number."},
                        "city": {"type": "string", "default": "Oslo"},
                        "tags": {"type": "array", "items": {"type": "string"}},
                    },
                    "required": ["street"],
                    "additionalProperties": False,
                },
            },
        )

    def test_recursive_dataclasses_refer_to_themselves(self):
        generator = schema.Generator()
        made = {**generator.schema(Node), "$defs": generator.definitions}
        self.check(made)
        self.assertEqual(
            generator.definitions["Node"]["properties"]["children"],
            {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        )
        self.admit(made, {"value": 1, "children": [{"value": 2, "parent": None}]})
        self.refuse(made, {"value": 1, "children": [{"value": "2"}]})

    def test_a_dataclass_asks_for_what_its_constructor_takes(self):
        generator = schema.Generator()
        generator.schema(Computed)
        self.assertEqual(generator.definitions["Computed"]["required"], ["given", "seed"])
        self.assertEqual(list(generator.definitions["Computed"]["properties"]), ["given", "seed"])

    def test_typed_dicts_know_their_optional_keys(self):
        for cls, required in [(Movie, ["title", "year"]), (Rated, ["title", "year"]), (postponed.Booking, ["room"])]:
            with self.subTest(cls=cls):
                generator = schema.Generator()
                self.assertEqual(generator.schema(cls), {"$ref": "#/$defs/" + cls.__name__})
                self.check({"$defs": generator.definitions})
                self.assertEqual(generator.definitions[cls.__name__]["required"], required)

    def test_classes_of_one_name_get_names_of_their_own(self):
        other = dataclass(type("Address", (), {"__annotations__": {"planet": str}}))
        generator = schema.Generator()
        self.assertEqual(generator.schema(Address), {"$ref": "#/$defs/Address"})
        self.assertEqual(generator.schema(other), {"$ref": "#/$defs/Address_2"})
        self.assertEqual(generator.schema(Address), {"$ref": "#/$defs/Address"})

    @unittest.skipIf(pydantic is None, "pydantic is not installed")
    def test_pydantic_models_describe_themselves(self):
        class Line(pydantic.BaseModel):
            sku: str = pydantic.Field(description="Stock keeping unit")
            count: int = pydantic.Field(1, ge=1)

        class Order(pydantic.BaseModel):
            lines: List[Line]
            parts: List["Order"] = []

        def place(order: Order, note: Annotated[int, pydantic.Field(ge=2, description="how")] = 3): ...

        made = input_of(place)
        self.check(made)
        self.admit(made, {"order": {"lines": [{"sku": "a"}], "parts": [{"lines": []}]}})
        self.refuse(made, {"order": {"lines": [{"sku": "a", "count": 0}]}})
        self.refuse(made, {"order": {"lines": [], "parts": [{"lines": [{}]}]}})
        self.assertEqual(
            made["properties"]["note"], {"type": "integer", "minimum": 2, "description": "how", "default": 3}
        )

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic.v1 is not installed")
    @unittest.skipIf(sys.version_info >= (3, 14), "pydantic.v1 knows no Python 3.14")
    def test_pydantic_models_of_version_1_are_described(self):
        from pydantic import v1

        class Line(v1.BaseModel):
            """A line."""

            sku: str = v1.Field(..., description="Stock keeping unit", min_length=2)
            count: int = v1.Field(1, ge=1, alias="howMany")
            note: Optional[str]
            pair: Tuple[int, str] = (1, "a")

            class Config:
                extra = "forbid"

        class Order(v1.BaseModel):
            lines: List[Line]

        generator = schema.Generator()
        made = {**generator.schema(Order), "$defs": generator.definitions}
        self.check(made)
        self.assertEqual(
            generator.definitions["Line"]["properties"]["sku"],
            {"type": "string", "description": "Stock keeping unit", "minLength": 2},
        )
        self.assertEqual(generator.definitions["Line"]["required"], ["sku"])
        self.admit(made, {"lines": [{"sku": "ab", "howMany": 2, "note": None}]})
        for wrong in ({"sku": "a"}, {"sku": "ab", "howMany": 0}, {"sku": "ab", "more": 1}, {"sku": "ab", "pair": [1]}):
            self.refuse(made, {"lines": [wrong]})
        result = schema.output_schema(Order)
        self.check(result)
        from owlclaw_worker.protocol import to_plain

        self.admit(result, to_plain(Order(lines=[{"sku": "ab"}])))

    @unittest.skipIf(pydantic is None, "pydantic is not installed")
    def test_numbers_that_json_lacks_cost_no_more_than_themselves(self):
        infinity = float("inf")

        class Range(pydantic.BaseModel):
            low: float = pydantic.Field(0, description="lowest", examples=[1.5, infinity])
            high: float = infinity
            default: float = pydantic.Field(float("nan"), ge=-infinity)

        class Query(pydantic.BaseModel):
            sku: str = pydantic.Field(min_length=3)
            price: Range = Range()

        def find(q: Query, most: float = infinity, least: Annotated[float, pydantic.Field(examples=[infinity, 2])] = 0): ...

        signature, made = described(find)
        self.assertEqual(signature.problems, [])
        self.assertEqual(made["properties"]["most"], {"type": "number"})
        self.assertEqual(made["properties"]["least"], {"type": "number", "examples": [2], "default": 0})
        self.assertEqual(made["$defs"]["Query"]["properties"]["sku"]["minLength"], 3)
        self.assertNotIn("default", made["$defs"]["Query"]["properties"]["price"])
        members = made["$defs"]["Query.Range"]["properties"]
        self.assertEqual((members["low"]["default"], members["low"]["examples"]), (0, [1.5]))
        self.assertEqual(members["high"], {"title": "High", "type": "number"})
        self.assertEqual(members["default"], {"title": "Default", "type": "number"})

    def test_examples_of_members_that_json_lacks_are_left_out(self):
        @dataclass
        class Range:
            low: float = field(default=0, metadata={"description": "lowest", "examples": [float("inf"), 2]})

        def find(q: Range): ...

        signature, made = described(find)
        self.assertEqual(signature.problems, [])
        self.assertEqual(made["$defs"]["Range"]["properties"]["low"]["examples"], [2])

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic 2 is not installed")
    def test_a_model_that_pydantic_cannot_describe_is_warned_of(self):
        class Odd(pydantic.BaseModel):
            call: typing.Callable[[int], int]

        def find(q: Odd): ...

        signature, made = described(find)
        self.assertEqual(made["$defs"]["Odd"], {"type": "object"})
        self.assertRegex(signature.problems[0], "no schema could be made of Odd: .*Callable")

    @unittest.skipIf(pydantic is None, "pydantic is not installed")
    def test_types_of_pydantic_describe_themselves(self):
        def fetch(url: pydantic.HttpUrl, secret: pydantic.SecretStr, count: pydantic.PositiveInt): ...

        made = input_of(fetch)
        self.check(made)
        self.assertEqual(made["$defs"]["HttpUrl"]["format"], "uri")
        self.assertEqual(made["$defs"]["SecretStr"]["type"], "string")
        self.assertEqual(made["properties"]["count"], {"type": "integer", "exclusiveMinimum": 0})

    @unittest.skipIf(pydantic is None, "pydantic is not installed")
    def test_marks_of_secrets_are_kept(self):
        def mark(made):
            made["writeOnly"] = True

        field = pydantic.Field
        other = pydantic.WithJsonSchema({"anyOf": [{"$ref": "#/$defs/Key"}], "writeOnly": True, "$defs": {"Key": {"type": "string"}}})

        def handler(
            a: Annotated[str, field(json_schema_extra={"writeOnly": True, "x-odd": {1, 2}})],
            b: List[Annotated[str, field(json_schema_extra={"format": "password"}, max_length=9)]],
            c: Annotated[str, other],
            d: Annotated[str, field(json_schema_extra=mark)] = None,
            e: str = field("", json_schema_extra=mark),
            f: Annotated[str, pydantic.BeforeValidator(str), field(json_schema_extra=mark)] = "",
            g: Annotated[str, pydantic.WithJsonSchema({"type": "integer"}, mode="serialization")] = "",
        ): ...

        made = input_of(handler)
        self.check(made)
        properties = made["properties"]
        secret = {"type": "string", "writeOnly": True}
        self.assertEqual({**properties["a"], "x-odd": None}, {**secret, "x-odd": None})
        self.assertEqual(properties["b"]["items"], {"type": "string", "maxLength": 9, "format": "password"})
        self.assertEqual(properties["c"], {"anyOf": [{"$ref": "#/$defs/Key"}], "writeOnly": True})
        self.assertEqual(made["$defs"], {"Key": {"type": "string"}})
        self.assertEqual(properties["d"]["anyOf"][0], secret)
        self.assertEqual((properties["e"], properties["f"]), ({**secret, "default": ""}, {**secret, "default": ""}))
        self.assertEqual(properties["g"], {"type": "string", "default": ""})

    @unittest.skipIf(pydantic is None or pydantic.VERSION < "2", "pydantic.v1 is not installed")
    @unittest.skipIf(sys.version_info >= (3, 14), "pydantic.v1 knows no Python 3.14")
    def test_marks_of_secrets_of_pydantic_1_are_kept(self):
        from pydantic import v1

        class Login(v1.BaseModel):
            user: str
            key: str = v1.Field("", writeOnly=True)
            password: v1.SecretStr

        def handler(login: Login): ...

        properties = input_of(handler)["$defs"]["Login"]["properties"]
        self.assertEqual(properties["user"], {"type": "string"})
        self.assertTrue(properties["key"]["writeOnly"] and properties["password"]["writeOnly"])

    @unittest.skipIf(support.OLD_PYDANTIC is None, "pydantic 1 is not installed")
    def test_types_of_pydantic_1_keep_the_type_of_their_base(self):
        old = support.OLD_PYDANTIC

        def handler(
            a: old.PositiveInt,
            b: old.confloat(ge=1),
            c: old.constr(max_length=3),
            d: old.SecretStr,
            e: old.conlist(int, min_items=1),
            f: old.StrictBool,
            g: old.StrictInt,
            h: old.AnyUrl,
            i: old.FilePath,
            j: old.condecimal(gt=1),
        ): ...

        made = input_of(handler)
        self.check(made)
        decimals = schema.Generator().schema(decimal.Decimal)
        wanted = {
            "a": {"type": "integer", "exclusiveMinimum": 0},
            "b": {"type": "number", "minimum": 1},
            "c": {"type": "string", "maxLength": 3},
            "d": {"type": "string", "writeOnly": True, "format": "password"},
            "e": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "f": {"type": "boolean"},
            "g": {"type": "integer"},
            "h": {"type": "string", "minLength": 1, "maxLength": 65536, "format": "uri"},
            "i": {"type": "string", "format": "file-path"},
            "j": {**decimals, "exclusiveMinimum": 1},
        }
        self.assertEqual(made["properties"], wanted)

    def test_a_hint_that_breaks_costs_only_itself(self):
        class Trap:
            @classmethod
            def __get_pydantic_core_schema__(cls, *_):
                raise RuntimeError("not today")

            @property
            def __name__(self):
                raise RuntimeError("not today")

        class Broken(type):
            def __subclasscheck__(cls, _):
                raise RuntimeError("not today")

            def __getattr__(cls, name):
                raise RuntimeError("not today")

        def handler(good: int, bad: Broken("Bad", (), {}), trap: Trap): ...

        signature = hints.Signature(handler)
        made = schema.input_schema(signature, {})
        self.check(made)
        self.assertEqual(made["properties"]["good"], INTEGER)
        self.assertEqual(made["properties"]["bad"], {})
        self.assertIn("'bad'", " ".join(signature.problems))

    @unittest.skipIf(sys.version_info < (3, 12), "the syntax needs Python 3.12")
    def test_aliases_that_contain_themselves_are_definitions(self):
        names = {}
        exec(
            "type Json = dict[str, Json] | list[Json] | str | int | None\n"
            "type Pair[T] = tuple[T, T]\n"
            "type Ever[T] = list[Ever[list[T]]]",
            names,
        )
        generator = schema.Generator()
        made = {**generator.schema(names["Json"]), "$defs": generator.definitions}
        self.check(made)
        self.admit(made, {"a": [1, {"b": None}]})
        self.refuse(made, {"a": [1, {"b": 1.5}]})
        self.check_type(names["Pair"][int], schema._fixed([INTEGER, INTEGER], 2))
        self.check({"type": "object", "properties": {"x": schema.Generator().schema(names["Ever"][int])}})

    def test_an_alias_of_forward_references_comes_to_an_end(self):
        global Json
        Json = Union[Dict[str, "Json"], List["Json"], str, int, None]

        def handler(value: Json, other: "Json"): ...

        made = input_of(handler)
        self.check(made)
        self.admit(made, {"value": {"a": [1]}, "other": [{"b": None}]})
        self.refuse(made, {"value": 1.5, "other": 1})

    @unittest.skipIf(sys.version_info < (3, 12), "the syntax needs Python 3.12")
    def test_type_aliases_are_what_they_stand_for(self):
        names = {}
        exec("type Ids = list[int]\ntype Tree = dict[str, Tree]", names)
        self.check_type(names["Ids"], {"type": "array", "items": {"type": "integer"}})
        # An alias that contains itself ends somewhere.
        self.check({"type": "object", "properties": {"x": schema.Generator().schema(names["Tree"])}})


class Inputs(Checked):
    def test_parameters_become_properties(self):
        def place(self, session, sku: str, count: int = 1, *rest, note=None, **_): ...

        def plain(session, sku: str, count: int = 1, note=None): ...

        made = input_of(plain)
        self.check(made)
        self.assertEqual(
            made,
            {
                "type": "object",
                "properties": {
                    "sku": {"type": "string"},
                    "count": {"type": "integer", "default": 1},
                    "note": {"default": None},
                },
                "required": ["sku"],
                "additionalProperties": False,
            },
        )
        self.assertEqual({**made, "additionalProperties": True}, input_of(place))

    def test_who_is_open_and_who_is_not(self):
        rows = [
            (lambda: None, False),
            (lambda session: None, True),
            (lambda **arguments: None, True),
            (lambda a, **arguments: None, True),
            (lambda session, a: None, False),
            (lambda a: None, False),
            (lambda *a: None, False),
        ]
        for function, is_open in rows:
            with self.subTest(parameters=str(inspect.signature(function))):
                made = input_of(function)
                self.check(made)
                self.assertIs(made["additionalProperties"], is_open)

    def test_the_hint_of_the_rest_applies_to_it(self):
        def count(**amounts: int): ...

        self.assertEqual(input_of(count)["additionalProperties"], {"type": "integer"})

    def test_none_as_default_admits_null(self):
        def find(limit: int = None, color: Color = None, tags: List[str] = None): ...

        made = input_of(find)
        self.check(made)
        self.assertEqual(
            made["properties"]["limit"], {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
        )
        self.admit(made, {"limit": None, "color": None, "tags": None})
        self.refuse(made, {"limit": "1"})

    def test_defaults_are_shown_where_json_can(self):
        not_a_number = float("nan")

        def find(
            color: Color = Color.BLUE,
            shape: Shape = Shape.LINE,
            since: datetime.date = datetime.date(2026, 1, 2),
            home: Address = Address("x"),
            number: float = not_a_number,
            thing: Any = object(),
            pair: Tuple[int, int] = (1, 2),
            long: str = "x" * 100_000,
        ): ...

        made = input_of(find)
        self.check(made)
        self.assertNotIn("required", made)
        defaults = {name: entry["default"] for name, entry in made["properties"].items() if "default" in entry}
        self.assertEqual(
            defaults,
            {
                "color": "blue",
                "shape": "LINE",
                "since": "2026-01-02",
                "home": {"street": "x", "city": "Oslo", "tags": []},
                "pair": [1, 2],
            },
        )

    def test_docstrings_describe_parameters(self):
        def place(sku: str, count: Annotated[int, "from the hint"]):
            """Place an order.

            Args:
                sku: Stock keeping unit.
                count: From the docstring.
            """

        made = input_of(place)["properties"]
        self.assertEqual(made["sku"]["description"], "Stock keeping unit.")
        self.assertEqual(made["count"]["description"], "from the hint")

    def test_postponed_annotations_are_resolved(self):
        made = input_of(postponed.book)
        self.check(made)
        self.assertEqual(made["properties"]["rooms"], {"type": "array", "items": {"$ref": "#/$defs/Room"}})
        self.assertEqual(made["properties"]["guests"], {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None})
        self.assertEqual(made["$defs"]["Room"]["properties"]["beds"], {"type": "integer"})

    def test_postponed_annotations_of_local_classes_are_resolved(self):
        made = input_of(postponed.local_handler())
        self.assertEqual(made["properties"]["local"], {"$ref": "#/$defs/Local"})

    def test_a_hint_that_cannot_be_resolved_costs_only_itself(self):
        signature = hints.Signature(postponed.lost)
        made = schema.input_schema(signature, {})
        self.check(made)
        self.assertEqual(made["properties"], {"known": {"type": "integer"}, "unknown": {}})
        self.assertEqual(
            signature.problems, ["the type of parameter 'unknown' names what is not defined: NoSuchType"]
        )

    def test_a_name_that_is_not_defined_costs_only_itself(self):
        signature = hints.Signature(postponed.for_checkers_only)
        made = schema.input_schema(signature, {})
        self.check(made)
        self.assertEqual(
            made["properties"],
            {
                "frames": {"type": "object"},
                "named": {"type": "array"},
                "maybe": {"default": None},
                "room": {"anyOf": [{"$ref": "#/$defs/Room"}, {"type": "null"}]},
            },
        )
        self.assertEqual(len(signature.problems), 4)  # Its result cannot be known either.
        self.assertIsNone(schema.output_schema(signature.returns))

    def test_partials_methods_and_callable_objects_have_schemas(self):
        import functools

        class Shop:
            def sell(self, sku: str): ...

            async def __call__(self, count: int): ...

        def price(sku: str, count: int): ...

        @functools.wraps(price)
        def wrapped(*args, **kwargs): ...

        rows = [
            (Shop().sell, {"sku": {"type": "string"}}),
            (Shop(), {"count": {"type": "integer"}}),
            (
                functools.partial(price, count=2),
                {"sku": {"type": "string"}, "count": {"type": "integer", "default": 2}},
            ),
            (wrapped, {"sku": {"type": "string"}, "count": {"type": "integer"}}),
        ]
        for function, properties in rows:
            with self.subTest(function=function):
                self.assertEqual(input_of(function)["properties"], properties)

    @unittest.skipIf(not hasattr(typing, "Unpack"), "Unpack needs Python 3.11")
    def test_unpacked_keywords_are_named(self):
        def watch(**movie: typing.Unpack[Rated]): ...

        made = input_of(watch)
        self.check(made)
        self.assertEqual(made["required"], ["title", "year"])
        self.assertEqual(set(made["properties"]), {"title", "year", "rating"})
        self.assertIs(made["additionalProperties"], False)


class Outputs(Checked):
    def test_only_results_of_known_shape_have_a_schema(self):
        Plain = namedtuple("Plain", "x")
        rows = [
            (dict, None),
            (Dict[str, Any], None),
            (Dict, None),
            (hints.MISSING, None),
            (None, None),
            (str, None),
            (List[Address], None),
            (Optional[Address], None),
            (Plain, None),
            (Dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
            (
                Movie,
                {
                    "type": "object",
                    "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
                    "required": ["title", "year"],
                },
            ),
        ]
        for hint, expected in rows:
            with self.subTest(hint=hint):
                made = schema.output_schema(hint)
                self.assertEqual(made, expected)
                if made is not None:
                    self.check(made)

    def test_results_promise_no_format_that_they_may_miss(self):
        @dataclass
        class Times:
            at: datetime.datetime
            clock: datetime.time
            took: datetime.timedelta
            day: datetime.date

        made = schema.output_schema(Times)["properties"]
        self.assertEqual([made[name] for name in ("at", "clock", "took")], [{"type": "string"}] * 3)
        self.assertEqual(made["day"], {"type": "string", "format": "date"})
        if pydantic is not None:

            class Model(pydantic.BaseModel):
                at: datetime.datetime

            self.assertNotIn("format", schema.output_schema(Model)["properties"]["at"])

    def test_results_satisfy_their_schema(self):
        from owlclaw_worker.protocol import to_plain

        @dataclass
        class Report:
            made: datetime.datetime
            total: decimal.Decimal
            colors: Set[Color]
            shape: Shape
            person: Person
            root: Node

        value = Report(
            datetime.datetime(2026, 1, 1),
            decimal.Decimal("1.50"),
            {Color.RED},
            Shape.LINE,
            Person("a", Address("b")),
            Node(1, [Node(2)]),
        )
        made = schema.output_schema(Report)
        self.check(made)
        self.assertEqual(made["type"], "object")
        self.admit(made, to_plain(value))
        self.refuse(made, {**to_plain(value), "total": 1.5})

    def test_results_may_have_numbers_that_json_has_not(self):
        from owlclaw_worker.protocol import to_plain

        @dataclass
        class Statistics:
            mean: float
            total: decimal.Decimal
            spread: Annotated[float, "In percent."]
            by_day: Dict[str, List[float]]
            count: int = 0

        made = schema.output_schema(Statistics)
        self.check(made)
        value = Statistics(float("nan"), decimal.Decimal("NaN"), float("inf"), {"a": [float("nan"), 1.5]})
        self.admit(made, to_plain(value, infinite_is_null=True))
        self.refuse(made, {**to_plain(value, infinite_is_null=True), "count": None})
        self.refuse(made, {**to_plain(value, infinite_is_null=True), "mean": "high"})
        if pydantic is not None:

            class Model(pydantic.BaseModel):
                mean: float
                share: float = pydantic.Field(ge=0)

            made = schema.output_schema(Model)
            self.admit(made, Model(mean=float("nan"), share=1).model_dump(mode="json"))
            self.refuse(made, {"mean": 1, "share": None})

    def test_a_recursive_result_has_an_object_at_its_root(self):
        made = schema.output_schema(Node)
        self.check(made)
        self.assertEqual(made["type"], "object")
        self.assertIn("Node", made["$defs"])

    @unittest.skipIf(pydantic is None, "pydantic is not installed")
    def test_pydantic_results_have_an_object_at_their_root(self):
        class Leaf(pydantic.BaseModel):
            when: datetime.date

        class Tree(pydantic.BaseModel):
            leaf: Leaf
            trees: List["Tree"] = []

        for cls in (Leaf, Tree):
            made = schema.output_schema(cls)
            self.check(made)
            self.assertEqual(made["type"], "object")
        tree = Tree(leaf=Leaf(when=datetime.date(2026, 1, 1)))
        self.admit(schema.output_schema(Tree), tree.model_dump(mode="json"))


class AnySignature(Checked):
    """Property 2: the schema has all parameters but `self` and `session`, each as its hint says."""

    HINTS = {
        "": ({}, 1),
        "str": ({"type": "string"}, "a"),
        "int": ({"type": "integer"}, 7),
        "float": ({"type": "number"}, 0.5),
        "bool": ({"type": "boolean"}, True),
        "List[int]": ({"type": "array", "items": {"type": "integer"}}, [1]),
        "Dict[str, float]": ({"type": "object", "additionalProperties": {"type": "number"}}, {"a": 1.5}),
        "Literal['a', 'b']": ({"enum": ["a", "b"], "type": "string"}, "b"),
    }
    CASES = 200

    def parameters(self, chance):
        """Some parameters as (kind, name, hint, has a default), in an order that Python allows."""
        names = chance.sample(["sku", "count", "self_", "sessions", "ürün", "a", "b", "_c", "type_"], chance.randrange(7))
        order = ["only", "either", "keyword"]
        kinds = sorted((chance.choice(order) for _ in names), key=order.index)
        made, defaults_began = [], False
        for kind, name in zip(kinds, names):
            has_default = chance.random() < 0.4
            if kind != "keyword":
                # After one with a default, all positional ones have one.
                has_default = defaults_began = has_default or defaults_began
            made.append((kind, name, chance.choice(sorted(self.HINTS)), has_default))
        return made

    def source(self, chance, parameters, is_method, takes_session):
        words = ["self"] if is_method else []
        kind_before = None
        if takes_session:
            words.append("session")
        has_only = any(kind == "only" for kind, *_ in parameters)
        for kind, name, hint, has_default in parameters:
            if kind != "only" and kind_before in (None, "only") and has_only:
                words.append("/")
            if kind == "keyword" and kind_before != "keyword":
                words.append("*")
            kind_before = kind
            word = name + (": " + hint if hint else "")
            words.append(word + (" = " + repr(self.HINTS[hint][1]) if has_default else ""))
        if kind_before == "only":
            words.append("/")
        return "%sdef handler(%s): ..." % (chance.choice(["", "async "]), ", ".join(words))

    def test_its_schema_has_all_parameters_but_self_and_session(self):
        chance = random.Random(2)
        for case in range(self.CASES):
            parameters = self.parameters(chance)
            is_method = chance.random() < 0.3
            # A handler of nothing but `session` gets all arguments in it, whatever they are.
            takes_session = bool(parameters) and chance.random() < 0.5
            source = self.source(chance, parameters, is_method, takes_session)
            with self.subTest(case=case, source=source):
                names = dict(globals())
                exec(source, names)
                made = input_of(names["handler"])
                self.check(made)
                self.assertEqual(list(made["properties"]), [name for _, name, *_ in parameters])
                self.assertEqual(made.get("required", []), [name for _, name, _, has in parameters if not has])
                self.assertIs(made["additionalProperties"], False)
                for _, name, hint, has_default in parameters:
                    expected, value = self.HINTS[hint]
                    expected = {**expected, "default": value} if has_default else expected
                    self.assertEqual(made["properties"][name], expected)
                self.admit(made, {name: self.HINTS[hint][1] for _, name, hint, _ in parameters})
                self.refuse(made, {"session": {}})


if __name__ == "__main__":
    unittest.main()
