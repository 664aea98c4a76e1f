"""The test client, which runs handlers in the process of a test."""

import asyncio
import dataclasses
import datetime
import math
import pathlib
import unittest

import support  # noqa: F401  (puts the package on the path)

import owlclaw_worker
from owlclaw_worker import Context, Image, ToolError, ToolResult
from owlclaw_worker.constraints import InvalidArgument
from owlclaw_worker.testing import Client

from owlclaw import OwlClaw  # isort: skip  (there once the test client is)

app = OwlClaw("tested")
app.mount_skills("skills")


async def later(value):
    await asyncio.sleep(0)
    return value


@app.handler("due")
def due(day: datetime.date, ctx: Context, days: int = 1) -> dict:
    ctx.info("adding")
    return {"due": day + datetime.timedelta(days=days), "for": ctx.client_id, "nan": math.nan}


@app.handler("whole")
def whole(session: dict):
    return {name: session[name] for name in session if name != "trigger"}


@app.handler("runs")
def runs():
    return asyncio.run(later("run"))


@app.handler("hidden")
def hidden():
    return later(owlclaw_worker.caller().principal)


@app.handler("streams")
async def streamed(to: int):
    owlclaw_worker.cost("0.5", model="m")
    for number in range(to):
        yield number


@app.handler("draws")
async def draws():
    return ["a picture", Image(data=b"1", format="png")]


@app.handler("sent along")
def sent_along(ctx: Context):
    meta = ctx.request_context.meta
    return None if meta is None else [meta.progress_token, meta.model_extra, hasattr(meta, "other"), meta["user"]]


@app.handler("asks")
async def asks(ctx: Context, what: str = "form"):
    if what == "form":
        return (await ctx.elicit("Who?", int)).data
    if what == "url":
        return (await ctx.elicit_url("Visit", "https://example.org")).action
    if what == "roots":
        return [one.uri for one in await ctx.list_roots()]
    try:
        return (await ctx.sample("hi")).text
    except Exception as error:
        return "swallowed %r" % error


@app.handler("asks in a thread")
def asks_in_a_thread(ctx: Context):
    return asyncio.run(ctx.elicit("Who?", int)).data


@app.handler("fails")
def fails():
    raise LookupError("no such thing")


@app.resource("data://{name}/all{?limit}", mime_type="application/json")
def data(name: str, limit: int = 2, ctx: Context = None) -> list:
    return [name, limit, ctx.client_id]


@app.resource("read://{user}/{path*}{?below}")
def lies(user: str, path: str, below: str = "") -> list:
    return [user, path, below]


@app.completion("read://{user}/{path*}{?below}", "path")
def paths(value: str, known: dict) -> list:
    return [value + "x"]


@app.resource("twice://{name}")
async def twice(name: str, ctx: Context) -> str:
    return 2 * (await ctx.read_resource("data://%s/all" % name))[0].content


@app.resource("bytes://of")
def of_bytes():
    return b"\xff"


@app.prompt
async def telling(uri: str, ctx: Context) -> str:
    return (await ctx.read_resource(uri))[0].content


@app.handler("reads")
def reads(uri: str, ctx: Context) -> str:
    part = asyncio.run(later(0)) or asyncio.run(read_later(ctx, uri))[0]
    return "%r %s %s" % (part.content, part.mime_type, part.uri)


async def read_later(ctx, uri):
    return await ctx.read_resource(uri)


@dataclasses.dataclass
class Total:
    total: int


@app.handler("promises")
def promises(kind: str) -> Total:
    said = {"fits": Total(1), "text": "no", "other": {"total": "1"}}
    return said.get(kind) or ToolResult(content="sorry", is_error=True)


@app.prompt
def ask(topic: str, times: int = 1) -> list:
    return [topic] * times


@app.completion("ask", "topic")
def topics(value: str) -> list:
    return [one for one in ("tea", "coffee") if one.startswith(value)]


class Greeting(owlclaw_worker.Middleware):
    async def on_call_tool(self, context, call_next):
        value = await call_next(context)
        return {"said": value} if context.message.name == "state" else value


app.add_middleware(Greeting())


@app.lifespan
async def living(_app):
    yield {"db": 1}


@app.handler("state")
async def state(ctx: Context):
    return ctx.lifespan_context


class Testing(unittest.TestCase):
    def test_metadata_of_a_request_are_members_and_attributes(self):
        self.assertIsNone(Client(app).call("sent along").value)
        said = Client(app).call("sent along", meta={"progressToken": 7, "user": "ana"}).value
        self.assertEqual(said, [7, {"user": "ana"}, False, "ana"])

    def test_resources_prompts_and_completions_are_as_in_a_worker(self):
        client = Client(app)
        part = {"text": '["a b",5,"anna"]', "mime_type": "application/json"}
        self.assertEqual(client.read("data://a%20b/all?limit=5", principal="anna"), [part])
        with self.assertRaisesRegex(LookupError, "no resource at 'data://a'"):
            client.read("data://a")
        said = client.prompt("ask", {"topic": "tea", "times": "2"})
        self.assertEqual([one["content"]["text"] for one in said], ["tea", "tea"])
        with self.assertRaisesRegex(Exception, "/times: expected integer"):
            client.prompt("ask", {"topic": "tea", "times": "x"})
        self.assertEqual(client.complete("ask", "topic", "c"), ["coffee"])
        self.assertEqual(client.complete("ask", "times", "c"), [])

    def test_values_that_lead_elsewhere_are_none_of_a_template(self):
        client = Client(app)
        text = '["anna","a/b%","https://a.example/x+y/"]'
        self.assertEqual(client.read("read://anna/a/b%25?below=https://a.example/x%2By/")[0]["text"], text)
        led = ["..", "../b", "a/../b", "a/..", "./b", "a/.", "..\\b", "/b", "//b", "a//b", "a\n"]
        for value in led:
            once = "".join("%%%02x" % one for one in value.encode())
            half = value.replace("..", ".%2E").replace("/", "%2f")
            for written in (value, once, once.replace("%", "%25"), half):
                for uri in ("read://%s/a", "read://anna/%s", "read://anna/a?below=%s"):
                    with self.assertRaises(LookupError, msg=uri % written):
                        client.read(uri % written)
            template = "read://{user}/{path*}{?below}"
            self.assertEqual(client.complete(template, "path", value), [])
            for name in ("user", "below"):
                self.assertEqual(client.complete(template, "path", "a/", {name: value}), [])
        for uri in ("read://a%2fb/c", "read://a/b?below", "read://a/b?other=1", "read://a/b?below=1&below=2", "read://a/%ff"):
            with self.assertRaises(LookupError, msg=uri):
                client.read(uri)
        self.assertEqual(client.complete(template, "path", "a/", {"user": "anna"}), ["a/x"])

    def test_handlers_of_all_kinds_read_resources(self):
        client = Client(app)
        self.assertEqual(client.read("twice://a", principal="anna")[0]["text"], '["a",2,"anna"]' * 2)
        self.assertEqual(client.prompt("telling", {"uri": "data://a/all"})[0]["content"]["text"], '["a",2,"tester"]')
        said = client.call("reads", {"uri": "bytes://of"}).value
        self.assertEqual(said, "b'\\xff' application/octet-stream bytes://of")
        with self.assertRaisesRegex(LookupError, "data://none was not read: there is no resource"):
            client.prompt("telling", {"uri": "data://none"})

    def test_answers_keep_the_promises_of_their_schemas(self):
        client = Client(app)
        self.assertEqual(client.call("promises", {"kind": "fits"}).structured, {"total": 1})
        for kind, why in (("text", "promises an object, and its answer is none"), ("other", "does not fit its own schema: /total")):
            with self.assertRaisesRegex(ToolError, why):
                client.call("promises", {"kind": kind})
        result = client.call("promises", {"kind": "failure"})
        self.assertEqual((result.is_error, result.content[0]["text"]), (True, "sorry"))

    def test_the_lifespan_goes_on_while_the_client_is_running(self):
        async def within():
            async with Client(app).running() as client:
                return (await client.acall("state")).value

        self.assertEqual(asyncio.run(within()), {"said": {"db": 1}})
        self.assertEqual(Client(app).call("state").value, {"said": {}})

    def test_calls_are_as_in_a_worker(self):
        client = Client(app)
        result = client.call("due", {"day": "2026-02-28"}, principal="anna")
        self.assertEqual(result.value, {"due": "2026-03-01", "for": "anna", "nan": None})
        self.assertEqual([one["message"] for one in result.messages], ["adding"])
        self.assertEqual(client.call("runs").value, "run")
        self.assertEqual(client.call("hidden", principal="ben").value, "ben")
        result = client.call("streams", {"to": 2.0})
        self.assertEqual((result.value, len(result.progress), result.costs[0]["usd"]), ([0, 1], 2, "0.5"))
        self.assertEqual(client.call("draws").content[1]["mimeType"], "image/png")

    def test_arguments_that_do_not_fit_never_run(self):
        client = Client(app)
        for arguments, why in (({}, "/day: is missing"), ({"day": "2026-02-28", "when": 1}, "/when: is no argument")):
            with self.assertRaisesRegex(Exception, why):
                client.call("due", arguments)
        self.assertEqual(client.call("due", {"day": "2026-02-28", "days": None}).value["due"], "2026-03-01")
        try:
            import jsonschema  # noqa: F401
        except ImportError:
            return
        with self.assertRaisesRegex(Exception, "/days"):
            client.call("due", {"day": "2026-02-28", "days": "many"})

    def test_what_fails_raises(self):
        client = Client(app)
        with self.assertRaisesRegex(LookupError, "no such thing"):
            client.call("fails")
        with self.assertRaisesRegex(LookupError, "there is no tool named 'lost'; there are .*draws"):
            client.call("lost")
        with self.assertRaisesRegex(Exception, "day"):
            client.call("due", {"day": "2026-02-30"})

    def test_questions_are_answered_by_functions(self):
        client = Client(app, elicit=lambda message, schema: {"value": 7}, sample=lambda params: "hello", roots=("file:///a",))
        self.assertEqual(client.call("asks").value, 7)
        self.assertEqual(client.call("asks in a thread").value, 7)
        self.assertEqual(client.call("asks", {"what": "sample"}).value, "hello")
        self.assertEqual(client.call("asks", {"what": "roots"}).value, ["file:///a"])
        self.assertEqual(Client(app, elicit=lambda message, url: True).call("asks", {"what": "url"}).value, "accept")

    def test_what_an_answering_function_raises_the_call_raises(self):
        class Failed(BaseException):
            """As those of pytest are."""

        def fails(*_):
            raise Failed("not what was expected")

        async def later_on(*_):
            return "hello"

        client = Client(app, elicit=fails, sample=fails)
        for name, arguments in (("asks", {}), ("asks in a thread", {}), ("asks", {"what": "sample"})):
            with self.assertRaisesRegex(Failed, "not what was expected"):
                client.call(name, arguments)
        for client, what, why in (
            (Client(app, elicit=lambda *_: "x"), "form", r"elicit\(message, schema_or_url\) returns a dictionary, True or None: not a str"),
            (Client(app, elicit=lambda *_: {}), "url", "returns True or None: not a dict"),
            (Client(app, sample=lambda _: {}), "sample", r"sample\(params\) returns a text: not a dict"),
            (Client(app, sample=later_on), "sample", "not a coroutine; write it with `def`"),
        ):
            with self.assertRaisesRegex(TypeError, why):
                client.call("asks", {"what": what})

    def test_a_wrapped_session_is_read_as_the_server_reads_it(self):
        client = Client(app)
        for sent in ({"amount": 11}, {"session": {"amount": 11}}):
            self.assertEqual(client.call("whole", sent).value, {"amount": 11})
        for sent in ({"session": 11}, {"session": {"amount": 11}, "amount": 1}, {"session": {"session": {}}}):
            with self.assertRaisesRegex(InvalidArgument, "^/session: is no argument$"):
                client.call("whole", sent)

    def test_what_cannot_answer_is_refused_at_once(self):
        for wrong in ({"elicit": {"value": 7}}, {"sample": "hello"}, {"roots": 5}, {"roots": "file:///a"}):
            with self.assertRaisesRegex(TypeError, "%s is a " % list(wrong)[0]):
                Client(app, **wrong)

    def test_the_example_of_the_documentation_passes(self):
        page = pathlib.Path(__file__).resolve().parents[4] / "docs" / "handlers.md"
        blocks = [block.partition("```")[0] for block in page.read_text(encoding="utf-8").split("```python\n")[1:]]
        (tests,) = [block for block in blocks if "def test_prompts" in block]
        (offered,) = [block for block in blocks if "def tones(" in block]
        (tools,) = [block for block in blocks if '"reindex-all"' in block and "def test_" not in block]
        documented = OwlClaw("documented")
        documented.mount_skills("skills")
        names = {"app": documented, "pages": lambda site: ["a", "b", "c"], "index": str}
        for block in (tools, offered, tests.replace("from app import app\n", "")):
            # Hints are of a later Python than the oldest.
            exec("from __future__ import annotations\n" + block, names)
        ran = [name for name in names if name.startswith("test_")]
        self.assertEqual(ran, ["test_reindexing", "test_prompts"])
        for name in ran:
            names[name]()

    def test_tools_are_described(self):
        tools = {tool["name"]: tool for tool in Client(app).tools()}
        self.assertEqual(list(tools["due"]["input_schema"]["properties"]), ["day", "days"])


if __name__ == "__main__":
    unittest.main()
