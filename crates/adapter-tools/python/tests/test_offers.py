"""Resources, prompts, completions, lifespan, and applications written for FastMCP."""

import sys
import unittest
from unittest import mock

from support import WorkerProcess

APP = """
import contextlib, dataclasses, datetime, enum, typing
from owlclaw_worker import Context, FastMCP, Image, Message, Tool, ToolResult

@contextlib.asynccontextmanager
async def lifespan(server):
    print("begins", server.name)
    yield {"db": [1, 2]}
    print("ends")

mcp = FastMCP("shop", lifespan=lifespan)

@mcp.tool
def add(a: int, b: int = 1) -> int:
    "Adds."
    return a + b

@mcp.tool("named", title="A title", tags={"b", "a"}, description="Other words.", meta={"k": 1},
          annotations={"readOnlyHint": True}, icons=[{"src": "https://x.example/i.png"}],
          output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
async def other(ctx: Context):
    return {"n": len(ctx.request_context.lifespan_context["db"])}

@mcp.tool(annotations={"title": "Everything", "readOnlyHint": True})
def whole() -> ToolResult:
    return ToolResult(content="said", structured_content={"a": 1})

@mcp.resource("data://config")
def config() -> dict:
    "The settings."
    return {"a": 1}

@mcp.resource("data://picture", mime_type="image/png")
def picture():
    return b"\\x89PNG"

@mcp.resource("users://{user}/orders{?limit}", title="Orders", tags={"x"})
async def orders(user: str, ctx: Context, limit: int = 10) -> typing.List[str]:
    return [user, limit + 1, ctx.client_id]

@mcp.prompt
def review(code: str, lines: int = 3, day: typing.Optional[datetime.date] = None):
    \"\"\"Reviews code.

    Args:
        code: What is reviewed.
    \"\"\"
    return "Review %s %d %s" % (code, lines, day)

@mcp.prompt("chat", title="A chat")
async def chat(topic: str):
    return [Message("about " + topic), {"role": "assistant", "content": "yes"}, Image(data=b"1", format="png")]

@mcp.completion("review", "code")
def codes(value):
    return [one for one in ("alpha", "beta") if one.startswith(value)]

@mcp.completion("review", "day")
def day(value: str) -> str:
    return "today"

def shared(n: int = 1) -> int:
    "Shared."
    return n

mcp.add_tool(Tool.from_function(shared, name="one", title="One", tags={"x"}))
mcp.add_tool(Tool.from_function(shared, name="two"))
mcp.add_tool(Tool.from_function(shared, description="Other words."), title="Three")

@mcp.completion("users://{user}/orders{?limit}", "user")
async def users(value, known):
    return ["%s%d" % (value, n) for n in range(150)]

class Tone(enum.Enum):
    FORMAL = "formal"

def typed(
    tone: typing.Literal["formal", "friendly"] = "formal", count: typing.Optional[int] = None, tags: typing.List[str] = (),
    level: typing.Literal[1, 2] = 1, kind: Tone = Tone.FORMAL, day: typing.Optional[datetime.date] = None,
    free: typing.Any = None, either: typing.Union[int, datetime.date] = 0, sizes: typing.Dict[str, int] = {},
):
    return repr([tone, count, tags, level, kind.name, day and day.isoformat(), free, str(either), sizes])

mcp.prompt("typed")(typed)
mcp.resource("typed://x{?tone,count,tags,level,kind,day,free,either,sizes}")(typed)

@mcp.prompt
def mail(to: typing.Optional[str]):
    return "to %s" % to

sub = FastMCP("sub")

@sub.tool
def ping(): return "pong"

@sub.resource("data://sub")
def subbed(): return "s"

@sub.prompt
def asked(): return "?"

mcp.mount(sub, prefix="in")

if __name__ == "__main__":
    mcp.run()
"""


def frame(kind, call_id, name, arguments):
    context = {"client_id": "anna", "request_id": "r", "deadline_ms": 5000, "traceparent": None}
    return {"type": kind, "id": call_id, "name": name, "arguments": arguments, "ctx": context}


class Offers(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.worker = WorkerProcess(APP)
        self.worker.__enter__()
        self.addCleanup(self.worker.__exit__, None, None, None)
        self.ready = self.worker.ready()

    def ask(self, kind, call_id, name, arguments):
        self.worker.send(frame(kind, call_id, name, arguments))
        return self.worker.answer(call_id)

    def test_what_decorators_say_is_described(self):
        tools = {one["name"]: one for one in self.ready["tools"]}
        self.assertEqual(sorted(tools), ["add", "in_ping", "named", "one", "shared", "two", "whole"])
        said = {name: [tools[name].get(key) for key in ("title", "tags", "description")] for name in ("one", "two", "shared")}
        expected = {"one": ["One", ["x"], "Shared."], "two": [None, None, "Shared."], "shared": ["Three", None, "Other words."]}
        self.assertEqual(said, expected)
        self.assertIsNone(tools["whole"]["output_schema"])
        self.assertEqual(tools["whole"]["title"], "Everything")
        named = tools["named"]
        self.assertEqual((named["title"], named["tags"], named["meta"]), ("A title", ["a", "b"], {"k": 1}))
        self.assertEqual((named["description"], named["context"]), ("Other words.", True))
        self.assertEqual(named["annotations"], {"readOnlyHint": True})
        self.assertEqual(named["icons"], [{"src": "https://x.example/i.png"}])
        self.assertEqual(named["output_schema"]["properties"], {"n": {"type": "integer"}})
        self.assertNotIn("title", tools["add"])
        resources = {one["uri"]: one for one in self.ready["resources"]}
        self.assertEqual(
            sorted(uri for uri in resources if not uri.startswith("typed:")),
            ["data://config", "data://in/sub", "data://picture", "users://{user}/orders{?limit}"],
        )
        self.assertEqual(resources["data://config"]["description"], "The settings.")
        self.assertEqual(
            [resources["users://{user}/orders{?limit}"][name] for name in ("template", "title", "tags", "async")],
            [True, "Orders", ["x"], True],
        )
        prompts = {one["name"]: one for one in self.ready["prompts"]}
        self.assertEqual(sorted(prompts), ["chat", "in_asked", "mail", "review", "typed"])
        self.assertEqual(prompts["review"]["description"], "Reviews code.")
        self.assertEqual(
            prompts["review"]["arguments"],
            [
                {"name": "code", "description": "What is reviewed.", "required": True},
                {"name": "lines", "description": None, "required": False},
                {"name": "day", "description": None, "required": False},
            ],
        )

    def test_tools_are_called_and_the_lifespan_is_theirs(self):
        self.assertEqual(self.worker.result(1, "add", {"a": 2}), 3)
        self.assertEqual(self.worker.result(2, "named"), {"n": 2})
        self.worker.send({"type": "shutdown"})
        self.assertEqual(self.worker.wait(), 0)
        self.assertEqual(self.worker.output("stdout").split("\n")[:2], ["begins shop", "ends"])

    def test_resources_are_read(self):
        value = self.ask("resource", 1, "data://config", {})["value"]
        self.assertEqual(value, {"contents": [{"text": '{"a":1}', "mime_type": "application/json"}]})
        value = self.ask("resource", 2, "data://picture", {})["value"]
        self.assertEqual(value, {"contents": [{"blob": "iVBORw==", "mime_type": "image/png"}]})
        uri = "users://{user}/orders{?limit}"
        value = self.ask("resource", 3, uri, {"user": "7", "limit": "4"})["value"]
        self.assertEqual(value["contents"][0]["text"], '["7",5,"anna"]')
        error = self.ask("resource", 4, uri, {"user": "7", "limit": "many"})
        self.assertEqual(error["kind"], "invalid_arguments")
        self.assertEqual(self.ask("resource", 5, "data://none", {})["kind"], "no_such_tool")

    def test_prompts_are_filled_in(self):
        value = self.ask("prompt", 1, "review", {"code": "1", "lines": "5", "day": "2026-01-02"})["value"]
        said = {"role": "user", "content": {"type": "text", "text": "Review 1 5 2026-01-02"}}
        self.assertEqual(value, {"description": None, "messages": [said]})
        value = self.ask("prompt", 2, "chat", {"topic": "x"})["value"]
        self.assertEqual([one["role"] for one in value["messages"]], ["user", "assistant", "user"])
        self.assertEqual(value["messages"][2]["content"], {"type": "image", "data": "MQ==", "mimeType": "image/png"})

    def test_arguments_that_come_as_texts_are_judged_as_those_of_tools(self):
        kinds = (("prompt", "typed"), ("resource", "typed://x{?tone,count,tags,level,kind,day,free,either,sizes}"))
        for kind, name in kinds:
            for argument, text in (
                ("tone", "rude"),
                ("count", "many"),
                ("count", "1.5"),
                ("count", "true"),
                ("tags", "a"),
                ("tags", "[1]"),
                ("tags", '{"a":1}'),
                ("level", "3"),
                ("kind", "rude"),
                ("day", "soon"),
                ("either", "x"),
                ("sizes", '{"a":"1"}'),
            ):
                error = self.ask(kind, 1, name, {argument: text})
                self.assertEqual(error.get("kind"), "invalid_arguments", (kind, argument, text, error))
                self.assertIn("/%s" % argument, error["message"])
            given = {
                "tone": "friendly", "count": "3", "tags": '["1","b"]', "level": "2", "kind": "formal", "day": "2026-01-02",
                "free": "5", "either": "5", "sizes": '{"a":1}',
            }
            value = self.ask(kind, 2, name, given)["value"]
            said = value["messages"][0]["content"]["text"] if kind == "prompt" else value["contents"][0]["text"]
            self.assertEqual(
                said, "['friendly', 3, ['1', 'b'], 2, 'FORMAL', '2026-01-02', '5', '5', {'a': 1}]"
            )
        self.assertIn("/to: is missing", self.ask("prompt", 3, "mail", {})["message"])

    def test_arguments_are_completed(self):
        def asked(name, value):
            return {"ref": {}, "argument": {"name": name, "value": value}, "context": {"arguments": {}}}

        value = self.ask("completion", 1, "review\ncode", asked("code", "al"))["value"]
        self.assertEqual(value, {"values": ["alpha"], "total": 1, "has_more": False})
        value = self.ask("completion", 3, "review\nday", asked("day", ""))["value"]
        self.assertEqual(value, {"values": ["today"], "total": 1, "has_more": False})
        name = "users://{user}/orders{?limit}\nuser"
        value = self.ask("completion", 2, name, asked("user", "u"))["value"]
        self.assertEqual((len(value["values"]), value["total"], value["has_more"]), (100, 150, True))

    def test_completions_tell_prompts_from_templates_without_the_sdk(self):
        from owlclaw_worker import CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference
        from owlclaw_worker.offers import CompletionHandler

        def complete(ref, argument, context):
            return ref, argument, context

        asked = {"argument": {"name": "lang", "value": "p"}, "context": {"arguments": {"a": "b"}}}
        handler = CompletionHandler("", complete)
        with mock.patch.dict(sys.modules):
            for name in ("mcp.types", "mcp_types"):
                sys.modules.pop(name, None)
            (ref, argument, context), _ = handler.bind({"ref": {"type": "ref/prompt", "name": "p"}, **asked}, {})
            other = handler.bind({"ref": {"type": "ref/resource", "uri": "x://{a}"}, **asked}, {})[0][0]
        self.assertEqual((type(ref), ref.name, ref.title), (PromptReference, "p", None))
        self.assertEqual((type(argument), argument.name, argument.value), (CompletionArgument, "lang", "p"))
        self.assertEqual((type(context), context.arguments), (CompletionContext, {"a": "b"}))
        self.assertEqual((type(other), other.uri), (ResourceTemplateReference, "x://{a}"))


class Failures(unittest.TestCase):
    def test_exceptions_with_words_for_the_caller_are_told_from_others(self):
        text = """
import owlclaw_worker
from owlclaw_worker import FastMCP, PromptError, ResourceError, ToolError
mcp = FastMCP("failing")
class Own(ResourceError): ...
class Others(Exception): ...
Others.__name__ = "ResourceError"
KINDS = dict(own=Own, other=Others, tool=ToolError, prompt=PromptError, value=ValueError)

@mcp.resource("data://{kind}")
def read(kind): raise KINDS[kind]("why")

@mcp.prompt
def asked(kind): raise KINDS[kind]("why")

@mcp.tool
def called(kind): raise KINDS[kind]("why")
"""
        told = {"own": "told", "tool": "told", "prompt": "told", "other": "raised", "value": "raised"}
        with WorkerProcess(text) as worker:
            worker.ready()
            for raised, kind in told.items():
                for what, name in (("resource", "data://{kind}"), ("prompt", "asked"), ("call", "called")):
                    worker.send(frame(what, 1, name, {"kind": raised}))
                    error = worker.answer(1)
                    wanted = "raised" if (what, raised) == ("call", "tool") else kind
                    self.assertEqual((error["kind"], error["message"]), (wanted, "why"), (what, raised))

    def test_handlers_that_take_a_context_are_told_from_others(self):
        text = """
from owlclaw_worker import Context, FastMCP
mcp = FastMCP("reading")
@mcp.resource("data://one")
def one(ctx: Context): ...
@mcp.prompt
def two(ctx: Context): ...
@mcp.prompt
def three(): ...
"""
        with WorkerProcess(text) as worker:
            ready = worker.ready()
            self.assertEqual([one["context"] for one in ready["resources"] + ready["prompts"]], [True, True, False])


class Parts(unittest.TestCase):
    def test_lists_with_parts_are_several_and_other_lists_are_data(self):
        text = """
from owlclaw_worker import Audio, File, FastMCP, Image, ResourceContent
mcp = FastMCP("parts")

def read(name, value, **about):
    mcp.resource("data://" + name, **{"name": name, **about})(lambda: value)

read("image", [Image(data=b"x", format="jpeg")])
read("mixed", (Image(data=b"x", format="png"), "text", {"a": 1}, b"\\xff"), mime_type="text/x-declared")
read("file", [File(data=b"said", format="text/plain"), Audio(data=b"x", format="wav")])
read("bytes", [b"\\xff", b"a"])
read("content", [ResourceContent("q", "text/markdown"), ResourceContent(b"x"), ResourceContent({"a": 1}, "application/x")])
read("single", Image(data=b"x", format="png"), mime_type="image/x-declared")
read("data", ["a", 1, {"text": "q", "mimeType": "text/plain"}])
"""
        declared = "text/x-declared"
        expected = {
            "image": [{"blob": "eA==", "mime_type": "image/jpeg"}],
            "mixed": [
                {"blob": "eA==", "mime_type": "image/png"},
                {"text": "text", "mime_type": declared},
                {"text": '{"a":1}', "mime_type": declared},
                {"blob": "/w==", "mime_type": declared},
            ],
            "file": [{"text": "said", "mime_type": "text/plain"}, {"blob": "eA==", "mime_type": "audio/wav"}],
            "bytes": [{"blob": one, "mime_type": "application/octet-stream"} for one in ("/w==", "YQ==")],
            "content": [
                {"text": "q", "mime_type": "text/markdown"},
                {"blob": "eA==", "mime_type": "application/octet-stream"},
                {"text": '{"a":1}', "mime_type": "application/x"},
            ],
            "single": [{"blob": "eA==", "mime_type": "image/x-declared"}],
            "data": [{"text": '["a",1,{"text":"q","mimeType":"text/plain"}]', "mime_type": "application/json"}],
        }
        with WorkerProcess(text) as worker:
            worker.ready()
            for call_id, (name, contents) in enumerate(expected.items()):
                worker.send(frame("resource", call_id, "data://" + name, {}))
                self.assertEqual(worker.answer(call_id).get("value"), {"contents": contents}, name)


class Mistakes(unittest.TestCase):
    def fatal(self, text):
        with WorkerProcess("from owlclaw_worker import FastMCP\nmcp = FastMCP('x')\n" + text) as worker:
            frame = worker.frame()
            self.assertEqual(frame["type"], "fatal", frame)
            return frame["message"]

    def test_variables_and_parameters_have_to_fit(self):
        message = self.fatal("@mcp.resource('a://{x}')\ndef f(y): ...\n")
        self.assertIn("do not fit: x, y", message)
        message = self.fatal("@mcp.resource('a://{x,y}')\ndef f(x, y): ...\n")
        self.assertIn("several variables in one {}", message)
        self.assertIn("comes last", self.fatal("@mcp.resource('a://{?x}/b')\ndef f(x=1): ...\n"))
        self.assertIn("no scheme", self.fatal("@mcp.resource('plain')\ndef f(): ...\n"))

    def test_what_is_no_middleware_is_refused_and_not_passed_over(self):
        self.assertIn("is not run here", self.fatal("mcp.add_middleware(object())\n"))

    def test_an_application_of_owlclaw_has_the_decorators(self):
        text = """
from owlclaw import OwlClaw
app = OwlClaw("x")
app.mount_skills("skills")

@app.tool(title="T")
def add(a: int): return a

@app.resource("data://a")
def a(): return "a"

@app.lifespan
async def living(app):
    yield 1
"""
        with WorkerProcess(text) as worker:
            ready = worker.ready()
            self.assertEqual(ready["tools"][0]["title"], "T")
            self.assertEqual(ready["resources"][0]["uri"], "data://a")
            self.assertEqual(worker.result(1, "add", {"a": 4}), 4)


if __name__ == "__main__":
    unittest.main()
