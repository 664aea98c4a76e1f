"""What runs around handlers: dependencies and middleware, and settings that protect something."""

import unittest

from support import WorkerProcess

APP = """
import asyncio, contextlib, decimal, typing
from owlclaw_worker import CallNext, Context, Depends, FastMCP, Middleware, MiddlewareContext, ToolError

said = []

class Loud(Middleware):
    async def on_call_tool(self, context: MiddlewareContext, call_next):
        await asyncio.sleep(0)
        said.append("before %s for %s" % (context.message.name, context.fastmcp_context.client_id))
        if context.message.name == "led":
            context.message.name = "add"
        if context.message.name == "refused":
            raise ToolError("not today")
        context.message.arguments.setdefault("b", 10)
        try:
            value = await call_next(context)
        finally:
            said.append("after %s" % context.message.name)
        return value + 1 if isinstance(value, int) else value

class Every(Middleware):
    async def on_message(self, context, call_next):
        said.append(context.method)
        return await call_next(context)

mcp = FastMCP("shop", middleware=[Every()])
mcp.add_middleware(Loud())

@contextlib.contextmanager
def connection():
    said.append("opened")
    yield {"rows": [1, 2]}
    said.append("closed")

async def user(ctx: Context):
    return ctx.client_id

@contextlib.asynccontextmanager
async def session(db=Depends(connection), name=Depends(user)):
    said.append("session of %s" % name)
    yield (name, db)
    said.append("session ends")

def count(db: dict = Depends(connection)) -> int:
    return len(db["rows"])

@mcp.tool
def add(a: int, b: int = 1) -> int:
    return a + b

class Meddling(Middleware):
    async def on_call_tool(self, context: MiddlewareContext[typing.Any], call_next: CallNext[typing.Any, int]):
        given = context.message.arguments
        if context.message.name == "meddled":
            change = given.pop("b")
            if change:
                exec(change, {"given": given})
        return await call_next(context)

mcp.add_middleware(Meddling())

@mcp.tool
def meddled(n: int, lines: typing.List[typing.Dict[str, int]] = [], exact: typing.Optional[decimal.Decimal] = None, b: str = "") -> str:
    return repr((n, lines, exact))

@mcp.tool
async def later(a: int, b: int = 1) -> int:
    return a + b

@mcp.tool
def led(b: int = 1): return "never"

@mcp.tool
def refused(b: int = 1): return "never"

@mcp.tool
def rows(b: int = 1, n: int = Depends(count), db: typing.Any = Depends(connection)):
    said.append("runs")
    for row in db["rows"]:
        yield row * n

@mcp.tool
async def who(b: int = 1, it=Depends(session)) -> str:
    said.append("runs")
    return it[0]

@mcp.tool
def late(it=Depends(session)): return "never"

@mcp.tool
def lost(it=Depends(lambda what: what)): return "never"

@mcp.resource("data://said")
def told() -> list:
    return said

@mcp.prompt
def asks(topic: str) -> str:
    return topic
"""


class Around(unittest.TestCase):
    def setUp(self):
        self.worker = WorkerProcess(APP, threads=8)
        self.worker.__enter__()
        self.addCleanup(self.worker.__exit__, None, None, None)
        self.ready = self.worker.ready()

    def said(self):
        context = {"client_id": "anna", "request_id": "r", "deadline_ms": 5000, "traceparent": None}
        self.worker.send({"type": "resource", "id": 99, "name": "data://said", "arguments": {}, "ctx": context})
        return self.worker.answer(99)["value"]["contents"][0]["text"]

    def test_what_middleware_makes_of_arguments_is_judged_as_they_are(self):
        sent = {"n": 1, "lines": [{"a": 1}]}
        for number, (change, why) in enumerate(
            (
                ("given['n'] = 'abc'", "/n: expected integer"),
                ("given['n'] = True", "/n: expected integer"),
                ("given['lines'][0]['a'] = 'x'", "/lines/0/a: expected integer"),
                ("del given['n']", "/n: is missing"),
            ),
            20,
        ):
            error = self.worker.error(number, "meddled", {**sent, "b": change})
            self.assertEqual((error["kind"], error["message"]), ("invalid_arguments", why))
        self.assertEqual(self.worker.result(30, "meddled", {**sent, "b": "given['n'] = 2"}), "(2, [{'a': 1}], None)")
        self.assertEqual(self.worker.result(31, "meddled", {**sent, "b": "given['exact'] = '1.10'"}), "(1, [{'a': 1}], Decimal('1.10'))")

    def test_middleware_runs_around_handlers_of_both_kinds(self):
        self.assertEqual(self.worker.result(1, "add", {"a": 2}), 13)
        self.assertEqual(self.worker.result(2, "later", {"a": 2, "b": 3}), 6)
        error = self.worker.error(3, "refused")
        self.assertEqual((error["exception"], error["message"]), ("ToolError", "not today"))
        said = self.said()
        self.assertEqual(said.count('"tools/call"'), 3, said)
        self.assertIn('"tools/call","before add for ', said)
        self.assertIn('"after add"', said)
        self.assertIn('"resources/read"', said)
        self.assertIn("sees calls, reads and prompts", str(self.ready["warnings"]))

    def test_middleware_leads_no_call_to_another_handler(self):
        error = self.worker.error(1, "led")
        self.assertIn("cannot lead a call to another handler", error["message"])

    def test_dependencies_are_filled_in_once_and_end_with_the_call(self):
        tools = {one["name"]: one for one in self.ready["tools"]}
        self.assertEqual(list(tools["rows"]["input_schema"]["properties"]), ["b"])
        self.assertEqual(self.worker.result(1, "rows"), [2, 4])
        self.assertIn('"opened","runs","closed","after rows"', self.said())
        self.assertEqual(self.worker.result(2, "who"), self.worker.result(3, "who"))
        self.assertRegex(self.said(), '"opened","session of \\w+","runs","session ends","closed","after who"')

    def test_what_cannot_be_filled_in_is_not_offered(self):
        tools = {one["name"]: one for one in self.ready["tools"]}
        self.assertIn("is asynchronous, and the handler is not", tools["late"]["refused"])
        self.assertIn("nothing fills in its parameter 'what'", tools["lost"]["refused"])


class Refused(unittest.TestCase):
    def start(self, text):
        worker = WorkerProcess("from owlclaw_worker import FastMCP, Middleware\n" + text)
        worker.__enter__()
        self.addCleanup(worker.__exit__, None, None, None)
        return worker

    def fatal(self, text):
        frame = self.start(text).frame()
        self.assertEqual(frame["type"], "fatal", frame)
        return frame["message"]

    def test_what_would_protect_and_cannot_is_an_error(self):
        lists = "class M(Middleware):\n    async def on_list_tools(self, context, call_next): return []\n"
        message = self.fatal(lists + "mcp = FastMCP('x', middleware=[M()])\n")
        self.assertIn("on_list_tools of the middleware M is not run here", message)
        own = "class M(Middleware):\n    async def __call__(self, context, call_next): return []\n"
        self.assertIn("__call__", self.fatal(own + "mcp = FastMCP('x')\nmcp.add_middleware(M())\n"))
        self.assertIn("auth", self.fatal("mcp = FastMCP('x', auth=object())\n"))
        self.assertIn("mask_error_details", self.fatal("mcp = FastMCP('x', mask_error_details=True)\n"))

    def test_tags_decide_what_is_registered(self):
        ready = self.start(
            "mcp = FastMCP('x', include_tags={'a'}, exclude_tags={'b'})\n"
            "@mcp.tool(tags={'a'})\ndef one(): ...\n"
            "@mcp.tool(tags={'a', 'b'})\ndef two(): ...\n"
            "@mcp.tool\ndef three(): ...\n"
        ).ready()
        self.assertEqual([tool["name"] for tool in ready["tools"]], ["one"])

    def test_a_lifespan_that_is_none_says_so(self):
        for body in ("    return\n    yield\n", "    print('begun')\n"):
            worker = self.start("mcp = FastMCP('x')\n@mcp.lifespan\nasync def living(app):\n" + body)
            self.assertEqual(worker.launcher.frame()["type"], "ready")
            self.assertIn("the lifespan 'living' has to yield once", worker.launcher.fork().frame()["message"])

    def test_an_import_of_another_framework_is_told_the_cure(self):
        worker = WorkerProcess("from fastmcp_of_nobody import FastMCP\n")
        with worker:
            self.assertNotIn("owlclaw_worker", worker.frame()["message"])
        message = self.fatal("try:\n    import fastmcp\nexcept ImportError: pass\nraise ModuleNotFoundError('No module', name='fastmcp.server')\n")
        self.assertIn("from owlclaw_worker import FastMCP", message)


if __name__ == "__main__":
    unittest.main()
