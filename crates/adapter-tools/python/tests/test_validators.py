"""Validators that hints name are run, or the handler is not offered."""

import dataclasses
import datetime
import decimal
import functools
import pathlib
import sys
import typing
import unittest
import warnings
from typing import Annotated, Any, Dict, List, NamedTuple, NewType, Optional, Tuple, TypedDict, Union
from unittest import mock

import support  # noqa: F401  (puts the package on the path)
from owlclaw_worker import Context, describe
from owlclaw_worker.call import Handler
from owlclaw_worker.constraints import InvalidArgument
from owlclaw_worker.offers import CompletionHandler

try:
    import annotated_types
except ImportError:
    annotated_types = None
try:
    import attr
except ImportError:
    attr = None
try:
    import pydantic
except ImportError:
    pydantic = None

CONTEXT = {"client_id": "me", "request_id": "r1"}

needs_pydantic = unittest.skipIf(pydantic is None, "pydantic is not installed")


class Predicate:
    """As annotated-types has it."""

    def __init__(self, func):
        self.func = func


class Bound:
    """A bound as several libraries have it."""

    def __init__(self, **bounds):
        vars(self).update(bounds)


def inside(path):
    """What a handler relies on: a path that stays where it is."""
    if ".." in path:
        raise ValueError("leads out")
    return path


def is_inside(path):
    return ".." not in path


class Depends:
    def __init__(self, dependency=None):
        self.dependency = dependency


def called(function, arguments):
    handler = Handler("h", function)
    if handler.signature.refusals:
        raise AssertionError(handler.signature.refusals)
    positional, keywords = handler.bind(arguments, CONTEXT)
    value = function(*positional, **keywords)
    return value if handler.check_result is None else handler.check_result(value)


def refusals(function):
    return "; ".join(Handler("h", function).signature.refusals)


def taking(hint):
    def handler(x):
        return x

    handler.__annotations__ = {"x": hint}
    return handler


def schema_of(function):
    return describe.describe(Handler("h", function), "/", [])["input_schema"]


def rows_of(Path):
    """Hints with a path somewhere in them, and how one that leads out gets there."""

    @dataclasses.dataclass
    class File:
        path: Path
        size: int = 0

    @dataclasses.dataclass
    class Folder:
        files: List[File]

    class Entry(TypedDict):
        path: Path

    class Pair(NamedTuple):
        left: Path
        right: Path = ""

    Named = NewType("Named", Path)
    return [
        (Path, lambda path: path),
        (Optional[Path], lambda path: path),
        (Union[int, Path], lambda path: path),
        (Annotated[Path, "where"], lambda path: path),
        (List[Path], lambda path: [path]),
        (typing.Sequence[Path], lambda path: [path]),
        (typing.Set[Path], lambda path: [path]),
        (Tuple[int, Path], lambda path: [1, path]),
        (Tuple[Path, ...], lambda path: [path]),
        (Dict[str, Path], lambda path: {"a": path}),
        (Dict[str, List[Optional[Path]]], lambda path: {"a": [path]}),
        (Dict[Path, int], lambda path: {path: 1}),
        (File, lambda path: {"path": path}),
        (Optional[Folder], lambda path: {"files": [{"path": path}]}),
        (Entry, lambda path: {"path": path}),
        (Pair, lambda path: ["a", path]),
        (Named, lambda path: path),
        (List[Named], lambda path: [path]),
    ]


class Validators(unittest.TestCase):
    def check_everywhere(self, Path):
        for hint, place in rows_of(Path):
            with self.subTest(hint=hint):
                called(taking(hint), {"x": place("a")})
                with self.assertRaises(InvalidArgument):
                    called(taking(hint), {"x": place("../a")})

    def test_predicates_run_wherever_they_are(self):
        self.check_everywhere(Annotated[str, Predicate(is_inside)])

    @needs_pydantic
    def test_after_validators_run_wherever_they_are(self):
        self.check_everywhere(Annotated[str, pydantic.AfterValidator(inside)])

    @needs_pydantic
    def test_before_validators_run_wherever_they_are(self):
        self.check_everywhere(Annotated[str, pydantic.BeforeValidator(inside)])

    @needs_pydantic
    def test_custom_types_run_wherever_they_are(self):
        class Old(str):
            @classmethod
            def __get_validators__(cls):
                yield cls.validate

            @classmethod
            def validate(cls, value, info=None):
                return cls(inside(value))

        class New(str):
            @classmethod
            def __get_pydantic_core_schema__(cls, *_):
                from pydantic_core import core_schema

                return core_schema.no_info_after_validator_function(lambda path: cls(inside(path)), core_schema.str_schema())

        for Path in (Old, New):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of the old kind, by pydantic
                self.check_everywhere(Path)
            self.assertIs(type(called(taking(List[Path]), {"x": ["a"]})[0]), Path)
            self.assertIn("{'type': 'string'}", repr(schema_of(taking(Path))))

            def rest(**paths: Path):
                return paths

            with self.assertRaises(InvalidArgument):
                called(rest, {"a": "../a"})

    @needs_pydantic
    def test_custom_types_run_whatever_they_are_made_of(self):
        def guarded(_cls, source, handler):
            from pydantic_core import core_schema

            return core_schema.no_info_before_validator_function(inside, core_schema.any_schema())

        members = {"__get_pydantic_core_schema__": classmethod(guarded)}
        record = dataclasses.dataclass(type("Record", (), {"__annotations__": {"x": int}, **members}))
        kinds = [type("Own", (base,), members) for base in (bytes, int, decimal.Decimal, datetime.date, pathlib.PurePosixPath)]
        for kind in (*kinds, record):
            with self.subTest(kind=kind.__mro__[1]), self.assertRaises(InvalidArgument):
                called(taking(kind), {"x": ".."})

    @needs_pydantic
    def test_what_pydantic_reads_in_a_class_of_others_runs(self):
        import typing_extensions  # which pydantic brings, and asks for before Python 3.12

        @dataclasses.dataclass
        class File:
            path: str

            @pydantic.field_validator("path")
            @classmethod
            def check(cls, path):
                return inside(path)

        @pydantic.with_config(pydantic.ConfigDict(str_max_length=3))
        class Entry(typing_extensions.TypedDict):
            path: str

        for kind in (File, Entry):
            called(taking(kind), {"x": {"path": "a"}})
            with self.assertRaises(InvalidArgument):
                called(taking(kind), {"x": {"path": "../a"}})

    @needs_pydantic
    def test_a_custom_type_that_cannot_be_run_is_refused(self):
        class Lone(str):
            @classmethod
            def __get_validators__(cls):
                yield inside

        self.assertRegex(refusals(taking(Lone)), "'x': Lone: pydantic 2 calls its validator with a value and information")
        self.assertRegex(refusals(taking(List[Lone])), "Lone: pydantic 2")
        known = pydantic.HttpUrl
        with mock.patch.dict(sys.modules, {"pydantic": None}):
            self.assertRegex(refusals(taking(known)), "HttpUrl can be run by pydantic 2 only, which is not installed")

    @unittest.skipIf(support.OLD_PYDANTIC is None, "pydantic 1 is not installed")
    def test_types_of_pydantic_1_run_wherever_they_are(self):
        old = support.OLD_PYDANTIC

        class Url(old.AnyUrl):
            allowed_schemes = {"https"}

        rows = [
            (old.PositiveInt, 1, 1, -1),
            (old.conint(gt=1, le=3), 2, 2, 4),
            (old.constr(regex="^[a-z]+$"), "a", "a", "1"),
            (old.SecretStr, "a", old.SecretStr("a"), [1]),
            (old.StrictInt, 1, 1, "1"),
            (old.StrictBool, True, True, 1),
            (old.conlist(int, max_items=1), [1], [1], [1, 2]),
            (old.condecimal(gt=1), "1.50", decimal.Decimal("1.50"), "1"),
            (Url, "https://a.com", "https://a.com", "ftp://a.com"),
        ]
        for kind, sent, made, bad in rows:
            with self.subTest(kind=kind.__name__):
                self.assertEqual(called(taking(kind), {"x": sent}), made)
                self.assertEqual(called(taking(List[kind]), {"x": [sent]}), [made])
                self.assertEqual(called(taking(Optional[kind]), {"x": sent}), made)
                with self.assertRaises(InvalidArgument):
                    called(taking(kind), {"x": bad})
                with self.assertRaisesRegex(InvalidArgument, "^/x/0"):
                    called(taking(List[kind]), {"x": [bad]})
        self.assertEqual(called(taking(Union[old.PositiveInt, old.SecretStr]), {"x": "a"}), old.SecretStr("a"))
        with self.assertRaisesRegex(InvalidArgument, "^/x: ensure this value is greater than 0$"):
            called(taking(old.PositiveInt), {"x": -1})

        @old.dataclasses.dataclass
        class Line:
            count: old.PositiveInt

        self.assertEqual(called(taking(Line), {"x": {"count": 3}}).count, 3)
        with self.assertRaises(InvalidArgument):
            called(taking(Line), {"x": {"count": 0}})

    @unittest.skipIf(pydantic is None or pydantic.VERSION >= "2", "pydantic 1 is not installed")
    def test_custom_types_of_pydantic_1_run(self):
        class Lone(str):
            @classmethod
            def __get_validators__(cls):
                yield inside
                yield cls.made

            @classmethod
            def made(cls, value, field):
                return cls(value)

            # As a library has it that supports both versions.
            @classmethod
            def __get_pydantic_core_schema__(cls, *_): ...

        class New(str):
            @classmethod
            def __get_pydantic_core_schema__(cls, *_): ...

        self.assertIs(type(called(taking(List[Lone]), {"x": ["a"]})[0]), Lone)
        with self.assertRaisesRegex(InvalidArgument, "leads out"):
            called(taking(Lone), {"x": ".."})
        self.assertRegex(refusals(taking(New)), "New can be run by pydantic 2 only, which is not installed")

    @needs_pydantic
    def test_strictness_leaves_other_validators_in_force(self):
        for strict in (pydantic.Strict(), pydantic.Field(strict=True)):
            self.check_everywhere(Annotated[str, strict, pydantic.AfterValidator(inside)])

    @needs_pydantic
    def test_a_hint_is_asked_where_its_schema_is_another(self):
        rows = [pydantic.WithJsonSchema({}), pydantic.Field(json_schema_extra={"type": "integer"})]
        for note in rows:
            called(taking(Annotated[str, note]), {"x": "a"})
            with self.assertRaisesRegex(InvalidArgument, "^/x: expected string"):
                called(taking(Annotated[str, note]), {"x": 1})

    @needs_pydantic
    def test_completions_run_validators(self):
        path = Annotated[str, pydantic.AfterValidator(inside)]

        def files(value: path, others: Dict[str, path] = {}):
            return [value]

        asked = lambda value, others: {"argument": {"value": value}, "context": {"arguments": others}}
        handler = CompletionHandler("read\npath", files)
        self.assertEqual(handler.bind(asked("a", {"b": "c"}), {}), (["a", {"b": "c"}], {}))
        for bad in (asked("..", {}), asked("a", {"b": ".."})):
            with self.assertRaisesRegex(InvalidArgument, "leads out"):
                handler.bind(bad, {})

        def days(value: datetime.date):
            return [value]

        self.assertEqual(CompletionHandler("read\nday", days).bind(asked("2026-", {}), {}), (["2026-"], {}))

    @needs_pydantic
    def test_constraints_that_change_a_text_run_wherever_they_are(self):
        self.check_everywhere(Annotated[str, pydantic.StringConstraints(strip_whitespace=True, pattern=r"^[a-z]+$")])
        kind = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, to_upper=True, max_length=3)]
        self.assertEqual(called(taking(kind), {"x": " ab "}), "AB")

    def test_bounds_that_the_schema_cannot_express_are_checked(self):
        rows = [
            (Annotated[decimal.Decimal, Bound(gt=0)], "1", "-5"),
            (Annotated[datetime.date, Bound(ge=datetime.date(2020, 1, 1))], "2026-01-01", "1999-01-01"),
            (Annotated[str, Bound(pattern=r"(?i)^[a-z]+\Z")], "aB", "a.."),
            (Annotated[bytes, Bound(max_length=2)], "ä", "äa"),
            (Annotated[Union[str, List[int]], Bound(min_length=2)], "ab", "a"),
            (Optional[Annotated[decimal.Decimal, Bound(gt=0)]], None, -1),
            (Annotated[Optional[decimal.Decimal], Bound(gt=0)], None, -1),
        ]
        for hint, good, bad in rows:
            with self.subTest(hint=hint):
                called(taking(hint), {"x": good})
                with self.assertRaisesRegex(InvalidArgument, "^/x: expected"):
                    called(taking(hint), {"x": bad})

    @needs_pydantic
    def test_the_schema_is_what_a_validator_takes(self):
        split = pydantic.BeforeValidator(lambda text: text.split(","), json_schema_input_type=str)
        handler = taking(Annotated[List[int], split])
        self.assertEqual(schema_of(handler)["properties"]["x"], {"type": "string"})
        self.assertEqual(called(handler, {"x": "1,2"}), [1, 2])
        plain = taking(Annotated[int, pydantic.PlainValidator(lambda text: int(text, 16))])
        self.assertEqual(called(plain, {"x": "ff"}), 255)

    @needs_pydantic
    def test_bounds_behind_a_before_validator_are_not_asked_of_what_is_sent(self):
        for before in (pydantic.BeforeValidator(abs), pydantic.WrapValidator(lambda value, then: then(abs(value)))):
            hint = Annotated[int, pydantic.Field(gt=0), before]
            self.assertEqual(schema_of(taking(hint))["properties"]["x"], {"type": "integer"})
            self.assertEqual(called(taking(hint), {"x": -3}), 3)
            with self.assertRaises(InvalidArgument):
                called(taking(hint), {"x": 0})

    @needs_pydantic
    def test_members_that_a_function_tells_apart_need_not_exclude_each_other(self):
        class One(pydantic.BaseModel):
            kind: str = "one"

        class Other(pydantic.BaseModel):
            kind: str = "other"
            text: str = ""

        tagged = Union[Annotated[One, pydantic.Tag("one")], Annotated[Other, pydantic.Tag("other")]]
        hint = Annotated[tagged, pydantic.Discriminator(lambda value: value.get("kind"))]

        class Holder(pydantic.BaseModel):
            of: hint

        for one, value in ((hint, lambda it: it), (Holder, lambda it: {"of": it})):
            self.assertNotIn("oneOf", repr(schema_of(taking(one))))
            made = called(taking(one), {"x": value({"kind": "other", "text": "a"})})
            self.assertEqual(getattr(made, "of", made), Other(text="a"))

    @needs_pydantic
    def test_a_discriminator_decides_alone(self):
        class Cat(pydantic.BaseModel):
            kind: typing.Literal["cat"] = "cat"

        class Dog(pydantic.BaseModel):
            kind: typing.Literal["dog"] = "dog"

        hint = Annotated[Union[Cat, Dog], pydantic.Field(discriminator="kind")]
        self.assertEqual(called(taking(List[hint]), {"x": [{"kind": "dog"}]}), [Dog()])
        with self.assertRaisesRegex(InvalidArgument, "^/x: Unable to extract tag"):
            called(taking(hint), {"x": {}})

    @needs_pydantic
    def test_serializers_of_results_are_applied(self):
        def price() -> Annotated[int, pydantic.PlainSerializer(lambda cents: "%.2f" % (cents / 100))]:
            return 150

        def bill() -> Dict[str, List[Annotated[int, pydantic.WrapSerializer(lambda value, then: [then(value)])]]]:
            return {"a": [1]}

        self.assertEqual(called(price, {}), "1.50")
        self.assertEqual(called(bill, {}), {"a": [[1]]})

        def described() -> Dict[str, Annotated[int, pydantic.PlainSerializer(str, return_type=str)]]:
            return {"a": 1}

        output = describe.describe(Handler("h", described), "/", [])["output_schema"]
        self.assertEqual(output["additionalProperties"], {"type": "string"})
        self.assertEqual(called(described, {}), {"a": "1"})

    @needs_pydantic
    def test_pydantic_types_and_dataclasses_validate(self):
        @pydantic.dataclasses.dataclass
        class File:
            path: Annotated[str, pydantic.AfterValidator(inside)]
            size: int = pydantic.Field(1, ge=1)

        self.assertEqual(called(taking(File), {"x": {"path": "a"}}), File("a", 1))
        for bad in ({"path": "../a"}, {"path": "a", "size": 0}):
            with self.assertRaises(InvalidArgument):
                called(taking(File), {"x": bad})
        with self.assertRaises(InvalidArgument):
            called(taking(pydantic.PositiveInt and Annotated[decimal.Decimal, pydantic.Field(max_digits=2)]), {"x": "1.23"})

    @unittest.skipIf(attr is None, "attrs is not installed")
    def test_attrs_fields_validate(self):
        @attr.s(auto_attribs=True)
        class File:
            path: Annotated[str, Predicate(is_inside)]
            size: int = attr.ib(default=1, validator=attr.validators.instance_of(int))
            name: Annotated[str, Predicate(is_inside)] = attr.ib(default="a", converter=str)

        called(taking(File), {"x": {"path": "a"}})
        for bad in ({"path": "../a"}, {"path": "a", "size": "x"}, {"path": "a", "name": ".."}):
            with self.assertRaises(InvalidArgument):
                called(taking(File), {"x": bad})

    @unittest.skipIf(annotated_types is None, "annotated-types is not installed")
    def test_annotated_types_are_run(self):
        rows = [
            (Annotated[str, annotated_types.Predicate(str.islower)], "a", "A"),
            (Annotated[str, annotated_types.Predicate(annotated_types.Not(str.islower))], "A", "a"),
            (Annotated[decimal.Decimal, annotated_types.Interval(ge=1, le=2)], "1", "3"),
            (Annotated[bytes, annotated_types.Len(0, 2)], "a", "abc"),
            (Annotated[datetime.datetime, annotated_types.Timezone(...)], "2026-01-01T00:00:00Z", "2026-01-01T00:00:00"),
        ]
        for hint, good, bad in rows:
            with self.subTest(hint=hint):
                called(taking(hint), {"x": good})
                with self.assertRaises(InvalidArgument):
                    called(taking(hint), {"x": bad})

    def test_decorated_handlers_keep_their_validators(self):
        def handler(x: Annotated[str, Predicate(is_inside)]):
            return x

        @functools.wraps(handler)
        def wrapper(*args, **kwargs):
            return handler(*args, **kwargs)

        with self.assertRaises(InvalidArgument):
            called(wrapper, {"x": ".."})
        with self.assertRaises(InvalidArgument):
            called(functools.partial(handler), {"x": ".."})

    @needs_pydantic
    def test_validate_call_is_left_to_itself(self):
        runs = []

        @pydantic.validate_call
        def handler(x: Annotated[List[str], pydantic.BeforeValidator(lambda text: runs.append(1) or text.split(","))], n: int = pydantic.Field(3)):
            return x, n

        @functools.wraps(handler)
        def wrapper(*args, **kwargs):
            return handler(*args, **kwargs)

        for one in (handler, wrapper):
            runs.clear()
            self.assertEqual(called(one, {"x": "a,b"}), (["a", "b"], 3))
            self.assertEqual(runs, [1])

    @needs_pydantic
    def test_results_are_validated(self):
        def upper(path) -> Annotated[str, pydantic.AfterValidator(inside)]:
            return path

        self.assertEqual(called(upper, {"path": "a"}), "a")
        with self.assertRaisesRegex(ValueError, "leads out"):
            called(upper, {"path": ".."})

    @needs_pydantic
    def test_a_field_as_default_is_a_default(self):
        field = pydantic.Field

        def handler(a: int = field(10, ge=1, title="A", examples=[1]), b=field("x"), c: list = field(default_factory=list), d: str = field(...)):
            return a, b, c, d

        self.assertEqual(called(handler, {"d": "d"}), (10, "x", [], "d"))
        first, second = called(handler, {"d": "d"})[2], called(handler, {"d": "d"})[2]
        self.assertIsNot(first, second)
        schema = schema_of(handler)
        self.assertEqual(
            schema["properties"]["a"], {"type": "integer", "minimum": 1, "title": "A", "examples": [1], "default": 10}
        )
        self.assertEqual(schema["properties"]["b"], {"default": "x"})
        self.assertEqual(schema["required"], ["d"])

        @dataclasses.dataclass
        class Item:
            count: int = field(2, ge=1)

        class Pair(NamedTuple):
            a: int
            b: int = field(3)

        self.assertEqual(called(taking(Item), {"x": {}}), Item(2))
        self.assertEqual(called(taking(Pair), {"x": [1]}), Pair(1, 3))

    @needs_pydantic
    def test_fields_of_pydantic_1_bound_what_they_describe(self):
        try:
            from pydantic.v1 import Field
        except ImportError:
            self.skipTest("there is no pydantic 1")

        def handler(a: decimal.Decimal = Field("1", gt=0)):
            return a

        self.assertEqual(called(handler, {"a": "2"}), 2)
        with self.assertRaises(InvalidArgument):
            called(handler, {"a": "-2"})

    def test_a_dataclass_field_as_default_is_a_default(self):
        def handler(a: int = dataclasses.field(default=3), b: list = dataclasses.field(default_factory=list)):
            return a, b

        self.assertEqual(called(handler, {}), (3, []))


class Refusals(unittest.TestCase):
    """What cannot be run is told, and the handler is not called without it."""

    @needs_pydantic
    def test_without_pydantic_its_validators_cannot_be_run(self):
        hint = Annotated[str, pydantic.AfterValidator(inside)]
        with mock.patch.dict(sys.modules, {"pydantic": None}):
            for one, _ in rows_of(hint):
                with self.subTest(hint=one):
                    self.assertIn("pydantic 2 only, which is not installed", refusals(taking(one)))

            def handler() -> hint:
                return ".."

            self.assertIn("its result", refusals(handler))

    @needs_pydantic
    def test_validators_that_pydantic_cannot_run_are_refused(self):
        class Odd:
            pass

        hint = Annotated[Odd, pydantic.BeforeValidator(inside)]
        self.assertIn("pydantic cannot run it", refusals(taking(hint)))
        handler = describe.describe(Handler("h", taking(hint)), "/", [])
        self.assertIn("pydantic cannot run it", handler["refused"])

    def test_validators_of_values_that_are_not_checked_are_refused(self):
        class Box(typing.Generic[typing.TypeVar("T")]):
            pass

        self.assertIn("not looked at", refusals(taking(Box[Annotated[str, Predicate(is_inside)]])))

    @unittest.skipIf(sys.version_info < (3, 14), "annotations are evaluated when the function is made")
    def test_annotations_are_read_though_one_names_what_is_not_defined(self):
        def around():
            class Near:
                pass

            @dataclasses.dataclass
            class File:
                path: Annotated[str, Missing(is_inside)]  # noqa: F821
                near: Near

            def validated(x: Annotated[str, Missing(is_inside)]):  # noqa: F821
                return x

            def plain(x: Missing, y: int, z: Near, *, cx: Context):  # noqa: F821
                return x

            return File, validated, plain

        file, validated, plain = around()
        self.assertIn("parameter 'x'", refusals(validated))
        self.assertIn("File.path cannot be resolved: Missing", refusals(taking(file)))
        handler = describe.describe(Handler("h", plain), "/", [])
        self.assertIsNone(handler["refused"])
        self.assertEqual(handler["input_schema"]["properties"]["y"], {"type": "integer"})
        self.assertEqual(list(handler["input_schema"]["properties"]), ["x", "y", "z"])

    def test_a_validator_that_cannot_be_resolved_cannot_be_run(self):
        def handler(x: "Annotated[str, Missing(is_inside)]"):
            return x

        @dataclasses.dataclass
        class File:
            path: "Annotated[str, Missing]"

        self.assertIn("parameter 'x'", refusals(handler))
        self.assertIn("File.path cannot be resolved: Missing", refusals(taking(File)))
        self.assertIn("File.path cannot be resolved: Missing", refusals(taking(List[Optional[File]])))
        plain = Handler("h", taking("Missing"))
        self.assertEqual((plain.signature.refusals, len(plain.signature.problems)), ([], 1))

    def test_parameters_that_a_framework_fills_in_are_refused(self):
        def by_default(user=Depends(inside)):
            return user

        self.assertIn("filled in by Depends()", refusals(by_default))
        self.assertIn("filled in by Depends()", refusals(taking(Annotated[Any, Depends(inside)])))

    def test_other_metadata_is_not_run(self):
        def reducer(left, right):
            return left

        class Check:
            def __call__(self, value):
                return value

        for note in (reducer, Check(), functools.partial(reducer, 1)):
            handler = Handler("h", taking(Annotated[list, note]))
            self.assertEqual(handler.signature.refusals, [])
            self.assertIn("not known and not run", handler.signature.problems[0])
        for note in ("text", object(), 3, str, Bound()):
            handler = Handler("h", taking(Annotated[str, note]))
            self.assertEqual((handler.signature.refusals, handler.signature.problems), ([], []))

    def test_bounds_hold_whatever_schema_is_published(self):
        rows = [
            (Annotated[int, Bound(ge=1)], 1, 0),
            (Annotated[str, Bound(pattern="^a")], "a", "b"),
            (Annotated[List[str], Bound(min_length=1)], ["a"], []),
            (Dict[str, Annotated[int, Bound(ge=1)]], {"a": 1}, {"a": 0}),
        ]
        for hint, good, bad in rows:
            with self.subTest(hint=hint):
                self.assertEqual(called(taking(hint), {"x": good}), good)
                with self.assertRaises(InvalidArgument):
                    called(taking(hint), {"x": bad})

    def test_other_arguments_are_validated(self):
        def handler(a: int, **rest: Annotated[str, Predicate(is_inside)]):
            return rest

        self.assertEqual(called(handler, {"a": 1, "b": "c"}), {"b": "c"})
        with self.assertRaisesRegex(InvalidArgument, "^/b: "):
            called(handler, {"a": 1, "b": ".."})


class Workers(unittest.TestCase):
    def test_a_refused_handler_is_not_callable(self):
        files = '''
            from owlclaw import OwlClaw
            app = OwlClaw("a")
            app.mount_skills("skills")
            class Depends:
                pass
            @app.handler("good")
            def good(x: int): return x
            @app.handler("bad")
            def bad(user=Depends()): return "reached"
        '''
        with support.WorkerProcess(files) as worker:
            tools = {tool["name"]: tool for tool in worker.ready()["tools"]}
            self.assertIsNone(tools["good"]["refused"])
            self.assertIn("Depends", tools["bad"]["refused"])
            self.assertEqual(worker.error(1, "bad", {})["kind"], "no_such_tool")
            self.assertEqual(worker.result(2, "good", {"x": 1}), 1)

    def test_a_handler_learns_who_calls(self):
        files = '''
            import asyncio
            import owlclaw_worker
            from owlclaw import OwlClaw
            app = OwlClaw("a")
            app.mount_skills("skills")
            assert owlclaw_worker.caller() is None
            def who():
                caller = owlclaw_worker.caller()
                return [caller.principal, caller.roles, caller.request_id, caller.trace]
            @app.handler("sync")
            def sync(session): return who()
            @app.handler("async")
            async def asynchronous(**rest):
                await asyncio.sleep(0.01)
                return who()
            @app.handler("thread")
            async def thread(session): return await asyncio.to_thread(who)
            @app.handler("forged")
            def forged(session): return session["agent_id"]
        '''
        with support.WorkerProcess(files) as worker:
            worker.ready()
            forged = {"client_id": "x", "principal": "x", "roles": ["x"], "agent_id": "x"}
            for number, name in enumerate(("sync", "async", "thread")):
                value = worker.result(number, name, forged, client_id="anna", roles=["clerk"], traceparent="00-1")
                self.assertEqual(value, ["anna", ["clerk"], "request-%d" % number, {"traceparent": "00-1"}])
            self.assertEqual(worker.result(9, "sync", {}, client_id="bob")[:2], ["bob", []])
            self.assertEqual(worker.result(10, "forged", {"agent_id": "root", "session": {"agent_id": "root"}}), "client")


def is_outside(path):
    return ".." in path


def typed(hint):
    def function(a): ...

    function.__annotations__ = {"a": hint}
    return function


class Words(unittest.TestCase):
    def test_functions_are_named_without_their_place_in_memory(self):
        @dataclasses.dataclass
        class Not:
            func: typing.Callable[[Any], bool]

        for note, name in (
            (Not(lambda value: True), "Words.test_functions_are_named_without_their_place_in_memory.<locals>.Not(func=<lambda>)"),
            (Not(is_outside), "Words.test_functions_are_named_without_their_place_in_memory.<locals>.Not(func=is_outside)"),
            (Predicate(lambda value: False), "Predicate"),
        ):
            with self.assertRaises(InvalidArgument) as raised:
                Handler("t", typed(Annotated[str, note])).invoke({"a": "../x"}, CONTEXT)
            self.assertEqual(str(raised.exception), "/a: is refused by %s" % name)


if __name__ == "__main__":
    unittest.main()
