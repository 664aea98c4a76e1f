"""Names of FastMCP, of its versions 2 to 4, in the process of the test."""

import asyncio
import os
import subprocess
import sys
import tempfile
import unittest

import support  # noqa: F401, which makes the package importable
import owlclaw_worker
from owlclaw_worker import Context, FastMCP, testing


def tools(mcp):
    return [one["name"] for one in testing.Client(mcp).tools()]


class Arguments(unittest.TestCase):
    def test_excluded_arguments_have_their_defaults(self):
        mcp = FastMCP("excluding")
        seen = []

        @mcp.tool(exclude_args=["user", "tags"])
        def order(item: str, user: str = "safe", tags: list = None):
            seen.append(tags)
            return [item, user]

        @mcp.tool(exclude_args=["user"])
        def open_order(user: str = "safe", **rest):
            return [user, rest]

        client = testing.Client(mcp)
        described = {one["name"]: one["input_schema"] for one in client.tools()}
        self.assertEqual(list(described["order"]["properties"]), ["item"])
        self.assertEqual(described["open_order"]["properties"], {})
        self.assertEqual(client.call("order", {"item": "tea"}).value, ["tea", "safe"])
        self.assertEqual(client.call("open_order", {"item": "tea"}).value, ["safe", {"item": "tea"}])
        for name, arguments in (("order", {"item": "tea", "user": "eve"}), ("open_order", {"user": "eve"})):
            with self.assertRaisesRegex(Exception, "user"):
                client.call(name, arguments)
        with self.assertRaisesRegex(ValueError, "exclude_args names 'item', which is no parameter of order with a default"):
            mcp.tool(name="other", exclude_args=["item"])(order)
        self.assertEqual(mcp._notes, [])

    def test_a_context_may_be_positional_only(self):
        mcp = FastMCP("positional")

        def who(ctx: Context, /):
            return ctx.client_id

        @mcp.tool
        def add(ctx: Context, /, x: int, y: int = 2, by: str = owlclaw_worker.Depends(who)):
            return [ctx.client_id, x + y, by]

        @mcp.tool
        def last(x: int, y: int = 2, ctx: Context = None, /):
            return [ctx.client_id, x + y]

        client = testing.Client(mcp)
        self.assertEqual(client.call("add", {"x": 1}, principal="anna").value, ["anna", 3, "anna"])
        self.assertEqual(client.call("last", {"x": 1}, principal="anna").value, ["anna", 3])

    def test_the_context_of_a_call_is_one_object(self):
        mcp = FastMCP("one")

        @mcp.tool
        async def same(ctx: Context):
            async def within():
                return owlclaw_worker.get_context() is ctx

            return [owlclaw_worker.get_context() is ctx, await asyncio.create_task(within()), await asyncio.to_thread(owlclaw_worker.get_context) is ctx]

        self.assertEqual(testing.Client(mcp).call("same").value, [True, True, True])

    def test_names_of_results_are_understood(self):
        mcp = FastMCP("names")

        @mcp.prompt
        def hello():
            return owlclaw_worker.PromptResult([owlclaw_worker.Message("hi", role="assistant")], description="d")

        @mcp.prompt
        def short():
            return owlclaw_worker.PromptResult("hi")

        @mcp.resource("data://one")
        def one():
            return owlclaw_worker.ResourceResult([owlclaw_worker.ResourceContent("a", "text/x"), b"b"])

        @mcp.resource("data://text")
        def text():
            return owlclaw_worker.ResourceResult("a")

        @mcp.completion()
        def complete(ref, argument, context):
            return owlclaw_worker.Completion(values=["a"], hasMore=True)

        client = testing.Client(mcp)
        hi = {"type": "text", "text": "hi"}
        self.assertEqual(client.prompt("hello"), [{"role": "assistant", "content": hi}])
        self.assertEqual(client.prompt("short"), [{"role": "user", "content": hi}])
        self.assertEqual([part["mime_type"] for part in client.read("data://one")], ["text/x", "application/octet-stream"])
        self.assertEqual(client.read("data://text"), [{"text": "a", "mime_type": "text/plain"}])
        self.assertEqual(client.complete("hello", "any", ""), ["a"])

    def test_what_run_passes_over_is_told(self):
        program = "import sys; from owlclaw_worker import FastMCP; FastMCP('x').run(**eval(sys.argv[1]))\n"
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "app.py")
            with open(path, "w") as file:
                file.write(program)
            for options, told in (
                ("dict(transport='http', path='/api/', port=1, log_level=None)", ["mcp.run(path='/api/') is passed over: it is the configuration's"]),
                ("dict(transport='sse')", ["mcp.run(transport='sse') serves Streamable HTTP at /mcp, and the older transport at /sse"]),
                ("dict(host='0.0.0.0', show_banner=False)", ["mcp.run(host='0.0.0.0') is passed over: it is the configuration's"]),
                ("dict(transport='http', host='localhost')", []),
            ):
                environment = {**os.environ, "PYTHONPATH": str(support.PYTHON_DIRECTORY), "OWLCLAW_MCP": "/bin/echo"}
                done = subprocess.run([sys.executable, "-B", path, options], env=environment, capture_output=True, text=True)
                self.assertEqual((done.stderr.splitlines(), done.stdout[:5]), (told, "start"), done)


class State(unittest.TestCase):
    def setUp(self):
        self.mcp = mcp = FastMCP("state")

        @mcp.tool
        async def awaited(ctx: Context, value: int = 0):
            before = await ctx.get_state("n")
            await ctx.set_state("n", value)
            await ctx.set_state("once", 1, serializable=False)
            return [before, await ctx.get_state(key="n"), (await ctx.get_state("once")), await ctx.get_state("else")]

        @mcp.tool
        async def plain(ctx: Context):
            return [ctx.get_state("n"), ctx.get_state("once"), ctx.get_state("else")]

        @mcp.tool
        def at_once(ctx: Context):
            ctx.set_state("n", 7)
            return ctx.get_state("n")

        @mcp.tool
        async def deleted(ctx: Context):
            await ctx.delete_state("n")
            ctx.delete_state("n")
            return await ctx.get_state("n")

        @mcp.tool
        def about(ctx: Context):
            return [ctx.transport, ctx.fastmcp.name]

    def test_awaiting_is_optional_and_the_state_lasts_for_the_session(self):
        client = testing.Client(self.mcp)
        self.assertEqual(client.call("awaited", {"value": 5}).value, [None, 5, 1, None])
        self.assertEqual(client.call("plain").value, [5, None, None])
        self.assertEqual(client.call("awaited", {"value": 6}).value, [5, 6, 1, None])
        self.assertEqual(client.call("at_once").value, 7)
        self.assertEqual(client.call("plain").value[0], 7)
        self.assertEqual(client.call("plain", principal="another").value[0], None)
        self.assertIsNone(client.call("deleted").value)
        self.assertIsNone(client.call("plain").value[0])
        self.assertIsNone(testing.Client(self.mcp).call("plain").value[0], "another client has another session")

    def test_without_a_session_it_lasts_for_the_call(self):
        from owlclaw_worker.context import Sessions

        class Call:
            kept = None
            sessions = Sessions()

            def __init__(self, **context):
                self.context = {"client_id": "anna", **context}

        def later(**context):
            ctx = Context(Call(**context))
            ctx.set_state("n", 1)
            return ctx.get_state("n"), Context(Call(**context)).get_state("n")

        self.assertEqual(later(transport="http"), (1, None))
        self.assertEqual(later(transport="http", session="s"), (1, 1))
        self.assertEqual(later(transport="stdio"), (1, 1))
        self.assertIsNone(Context(Call(transport="http", session="other")).get_state("n"))

    def test_the_sessions_used_last_are_kept(self):
        from owlclaw_worker import context

        sessions = context.Sessions()
        for number in range(context._MAX_SESSIONS + 1):
            sessions.of(("anna", str(number)))["n"] = number
            sessions.of(("anna", "used"))["n"] = number
        self.assertEqual(sessions.of(("anna", "used"))["n"], context._MAX_SESSIONS)
        self.assertEqual(sessions.of(("anna", "0")), {})

    def test_what_is_known_of_a_call(self):
        self.assertEqual(testing.Client(self.mcp).call("about").value, ["stdio", "state"])


class Registration(unittest.TestCase):
    def shop(self, **settings):
        mcp = FastMCP("shop", **settings)

        @mcp.tool(tags={"staff"})
        def refund():
            return 1

        @mcp.tool(version="1.2")
        def add():
            return 2

        @mcp.resource("data://a", tags={"staff"})
        def a():
            return "a"

        @mcp.prompt(tags={"staff"})
        def p():
            return "p"

        return mcp

    def test_what_is_disabled_is_not_offered_until_it_is_enabled(self):
        mcp = self.shop()
        mcp.disable(tags={"staff"})
        self.assertEqual(tools(mcp), ["add"])
        client = testing.Client(mcp)
        self.assertRaises(LookupError, client.read, "data://a")
        self.assertRaises(LookupError, client.prompt, "p")

        @mcp.tool(tags={"staff"})
        def later():
            return 3

        self.assertEqual(tools(mcp), ["add"])
        self.assertRaises(ValueError, mcp.add_tool, later)
        mcp.enable(names={"later"})
        self.assertEqual(sorted(tools(mcp)), ["add", "later"])
        mcp.enable(tags={"staff"}, components={"tool"}, only=True)
        self.assertEqual(sorted(tools(mcp)), ["later", "refund"])
        mcp.disable(keys={"tool:later"})
        self.assertEqual(tools(mcp), ["refund"])
        self.assertRaises(ValueError, mcp.disable, components={"tols"})

    def test_a_server_is_mounted_under_a_namespace_with_names_of_its_own(self):
        main = FastMCP("main")
        main.mount(self.shop(), namespace="shop", tool_names={"add": "plus"})
        self.assertEqual(sorted(tools(main)), ["plus", "shop_refund"])

    def test_versions_are_told_and_what_is_passed_over_is_noted(self):
        mcp = self.shop(version="3")
        self.assertEqual(mcp.version, "3")
        said = {one["name"]: one for one in testing.Client(mcp).tools()}
        self.assertEqual(said["add"]["meta"], {"io.owlclaw/version": "1.2"})

        @mcp.tool(timeout=3, run_in_thread=False, task=True)
        def slow():
            pass

        @mcp.tool(run_in_thread=True)
        def fast():
            pass

        self.assertIn("passed over: run_in_thread, task, timeout", mcp._notes[-1])
        with self.assertRaisesRegex(NotImplementedError, "auth= is not in force"):
            mcp.tool(auth=object())
        with self.assertRaisesRegex(NotImplementedError, "auth= is not in force"):
            mcp.resource("data://b", auth=object())


if __name__ == "__main__":
    unittest.main()
