"""Questions of handlers, over the worker's own protocol and in tests of an application."""

import unittest

from support import WorkerProcess, call_frame

APP = """
import asyncio, dataclasses, enum, typing
from owlclaw import OwlClaw
from owlclaw_worker import CannotAsk, Context
app = OwlClaw("test")
app.mount_skills("skills")
RUNS = []

class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"

@dataclasses.dataclass
class Person:
    name: str
    age: int = 3
    color: Color = Color.RED
    nick: typing.Optional[str] = None

@app.handler("greet")
async def greet(ctx: Context):
    RUNS.append(1)
    said = await ctx.elicit("Who?", Person)
    return [said.action, repr(getattr(said, "data", None)), len(RUNS), ctx.request_id]

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2

@dataclasses.dataclass
class Order:
    n: int
    ok: bool
    size: typing.Literal["s", "l"] = "s"
    note: typing.Optional[str] = None

@app.handler("typed")
async def typed(ctx: Context, kind: str):
    wanted = {
        "bool": bool, "int": int, "float": float, "str": str, "literal": typing.Literal["a", "b"], "number": typing.Literal[1, 2], "level": Level, "none": [], "nothing": {}, "neither": [[]],
        "optional": typing.Optional[int], "order": Order, "one": ["a", "b"], "several": [["a", "b"]], "color": Color,
        "titled": [{"a": {"title": "A"}}],
    }[kind]
    said = await ctx.elicit("a?", wanted)
    return repr(said.data)

@app.handler("together")
async def together(ctx: Context):
    one, two = await asyncio.gather(ctx.elicit("a?", int), ctx.list_roots())
    return [one.data, two[0].uri]

@app.handler("blocking")
def blocking(ctx: Context):
    return asyncio.run(ctx.elicit("a?", ["x", "y"])).data

@app.handler("careful")
async def careful(ctx: Context):
    try:
        await ctx.sample("hi")
    except CannotAsk as error:
        return "without: %s" % error

@app.handler("careless")
async def careless(ctx: Context):
    await ctx.sample("hi")

@app.handler("unsayable")
async def unsayable(ctx: Context):
    return await asyncio.gather(ctx.sample("hi", include_context=object()), ctx.elicit("a?", int), return_exceptions=True)

@app.handler("waits")
async def waits(ctx: Context):
    try:
        await ctx.elicit("a?", int)
    finally:
        print("given up")

@app.handler("nested")
async def nested(ctx: Context):
    await ctx.elicit("a?", typing.List[Person])

@app.handler("reads")
async def reads(ctx: Context):
    parts = await ctx.read_resource("data://x")
    return [parts[0].content, parts[0].mime_type]
"""


def answers(call_id, responses, errors=None, **context):
    return {"type": "answers", "id": call_id, "responses": responses, "errors": errors or {}, **context}


class Asking(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.worker = WorkerProcess(APP, threads=4)
        self.worker.__enter__()
        self.addCleanup(self.worker.__exit__, None, None, None)
        self.worker.ready()

    def asked(self, call_id, name):
        self.worker.send(call_frame(call_id, name))
        frame = self.worker.frame()
        self.assertEqual((frame["type"], frame["id"]), ("ask", call_id))
        return frame["questions"]

    def test_a_handler_goes_on_where_it_has_asked(self):
        ((key, question),) = self.asked(1, "greet").items()
        self.assertEqual(question["message"], "Who?")
        self.assertEqual(
            question["schema"],
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "age": {"type": "integer", "default": 3},
                    "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                    "nick": {"type": "string"},
                },
                "required": ["name"],
            },
        )
        content = {"name": "Ann", "color": "blue"}
        context = {"client_id": "anna", "request_id": "second", "deadline_ms": 1000, "traceparent": None}
        self.worker.send(answers(1, {key: {"action": "accept", "content": content}}, ctx=context))
        value = self.worker.answer(1)["value"]
        self.assertIn("name='Ann', age=3, color=<Color.BLUE", value[1])
        # It was run once, and is now on behalf of the request that brought the answer.
        self.assertEqual([value[0], value[2], value[3]], ["accept", 1, "second"])

    def test_a_user_may_decline_and_answer_what_was_not_asked(self):
        for action, expected in (("decline", "decline"), ("cancel", "cancel")):
            (key,) = self.asked(2, "greet")
            self.worker.send(answers(2, {key: {"action": action}}))
            self.assertEqual(self.worker.answer(2)["value"][0], expected)
        (key,) = self.asked(3, "greet")
        self.worker.send(answers(3, {key: {"action": "accept", "content": {"age": "old"}}}))
        error = self.worker.answer(3)
        self.assertEqual((error["kind"], error["exception"]), ("raised", "ValueError"))

    def test_answers_are_of_the_type_that_was_asked_for(self):
        wrong = {
            "bool": ["no", "false", 1, 0, None, [True]],
            "int": ["3", 3.5, None, [1], True],
            "float": ["1.5", None, False],
            "str": [1, None, ["a"]],
            "literal": ["zzz", None, ["a"]],
            "number": [3, "3", True],
            "level": [3, "3", "low"],
            "optional": ["3", 3.5],
            "one": ["zzz", ["a"], None],
            "several": ["a", ["zzz"], [["a"]], None],
            "titled": ["a", ["zzz"]],
            "color": ["green", 1],
        }
        for kind, values in wrong.items():
            for value in values:
                self.refused(kind, {"value": value}, "for: /value")
            if kind != "optional":
                self.refused(kind, {}, "/value")
        for content, place in (
            ({"n": "1", "ok": True}, "/n: expected integer"),
            ({"n": 1, "ok": "no"}, "/ok: expected boolean"),
            ({"n": 1, "ok": True, "size": "xl"}, "/size: expected one of"),
            ({"n": 1, "ok": True, "note": 5}, "/note: expected string"),
            ({"n": 1}, "/ok: is missing"),
        ):
            self.refused("order", content, place)
        for kind, value, data in (
            ("bool", False, "False"),
            ("int", 3.0, "3"),
            ("literal", "b", "'b'"),
            ("optional", None, "None"),
            ("several", ["a", "b"], "['a', 'b']"),
            ("titled", ["a"], "['a']"),
            ("color", "blue", "<Color.BLUE: 'blue'>"),
            ("number", "2", "2"),
            ("number", 2, "2"),
            ("level", "2", "<Level.HIGH: 2>"),
        ):
            self.assertEqual(self.said(kind, {"value": value})["value"], data)
        content = {"n": 1, "ok": False, "size": None, "note": None}
        self.assertEqual(self.said("order", content)["value"], "Order(n=1, ok=False, size='s', note=None)")

    def test_choices_are_texts_and_there_is_at_least_one(self):
        self.worker.send(call_frame(20, "typed", {"kind": "level"}))
        ((key, question),) = self.worker.frame()["questions"].items()
        self.assertEqual(question["schema"]["properties"]["value"], {"type": "string", "enum": ["1", "2"], "title": "Value"})
        self.worker.send(answers(20, {key: {"action": "cancel"}}))
        self.worker.answer(20)
        for kind in ("none", "nothing", "neither"):
            error = self.worker.error(21, "typed", {"kind": kind})
            self.assertEqual((error["exception"], error["message"][:22]), ("ValueError", "a form of no choices: "))

    def said(self, kind, content):
        self.worker.send(call_frame(20, "typed", {"kind": kind}))
        (key,) = self.worker.frame()["questions"]
        self.worker.send(answers(20, {key: {"action": "accept", "content": content}}))
        return self.worker.answer(20)

    def refused(self, kind, content, place):
        with self.subTest(kind=kind, content=content):
            error = self.said(kind, content)
            self.assertEqual((error["type"], error.get("exception")), ("error", "ValueError"), error)
            self.assertIn(place, error["message"])

    def test_questions_of_tasks_are_asked_together(self):
        questions = self.asked(4, "together")
        self.assertEqual(sorted(one["kind"] for one in questions.values()), ["form", "roots"])
        responses = {
            key: {"roots": [{"uri": "file:///a"}]} if one["kind"] == "roots" else {"action": "accept", "content": {"value": 7}}
            for key, one in questions.items()
        }
        self.worker.send(answers(4, responses))
        self.assertEqual(self.worker.answer(4)["value"], [7, "file:///a"])

    def test_a_synchronous_handler_asks_from_its_thread(self):
        (key,) = self.asked(5, "blocking")
        self.worker.send(answers(5, {key: {"action": "accept", "content": {"value": "y"}}}))
        self.assertEqual(self.worker.answer(5)["value"], "y")

    def test_a_client_that_cannot_be_asked_is_told_to_the_handler(self):
        (key,) = self.asked(6, "careful")
        self.worker.send(answers(6, {}, {key: "it has not declared `sampling`"}))
        self.assertEqual(self.worker.answer(6)["value"], "without: it has not declared `sampling`")
        (key,) = self.asked(7, "careless")
        self.worker.send(answers(7, {}, {key: "it has not declared `sampling`"}))
        self.assertEqual(self.worker.answer(7)["kind"], "not_askable")

    def test_what_cannot_be_written_fails_where_it_is_asked(self):
        self.worker.send(call_frame(13, "unsayable"))
        frame = self.worker.answer(13)
        self.assertEqual((frame["type"], frame["kind"]), ("error", "unserializable"))

    def test_a_cancelled_handler_waits_no_longer(self):
        for call_id, name in ((8, "waits"), (9, "blocking")):
            self.asked(call_id, name)
            self.worker.cancel(call_id)
            self.assertEqual(self.worker.answer(call_id)["kind"], "cancelled")
        self.assertIn("given up", self.worker.output("stdout"))

    def test_forms_have_plain_fields(self):
        error = self.worker.error(10, "nested")
        self.assertIn("cannot be asked for in a form", error["message"])

    def test_resources_of_the_server_are_read(self):
        self.worker.send(call_frame(11, "reads"))
        frame = self.worker.frame()
        self.assertEqual((frame["type"], frame["uri"]), ("read", "data://x"))
        part = {"uri": "data://x", "mimeType": "text/plain", "text": "hello"}
        self.worker.send(answers(11, {frame["key"]: {"contents": [part]}}))
        self.assertEqual(self.worker.answer(11)["value"], ["hello", "text/plain"])
        self.worker.send(call_frame(12, "reads"))
        self.worker.send(answers(12, {}, {self.worker.frame()["key"]: "there is none"}))
        self.assertEqual(self.worker.answer(12)["exception"], "LookupError")


if __name__ == "__main__":
    unittest.main()
