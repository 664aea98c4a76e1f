"""The package as others install it: built, typed, and harmless outside of a worker."""

import ast
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import PYTHON_DIRECTORY

import owlclaw_worker

HANDLER = """
import owlclaw_worker
owlclaw_worker.progress(1, total=2, message="half")
owlclaw_worker.cost("0.1", model="m", tokens_in=1, tokens_out=2)
owlclaw_worker.log("done", level="warning")
stopped: bool = owlclaw_worker.cancelled()
parent: str = owlclaw_worker.trace_context().get("traceparent", "")
"""

MISTAKES = HANDLER + """
owlclaw_worker.progress("much")
owlclaw_worker.cost([])
owlclaw_worker.log("done", level="loud")
text: str = owlclaw_worker.cancelled()
"""

APPLICATION = '''from dataclasses import dataclass
from typing import Any, AsyncIterator, Dict, List

from owlclaw_worker import CallNext, Context, Depends, FastMCP, Image, Message, Middleware, MiddlewareContext, Tool, ToolResult
from owlclaw_worker.testing import Client

mcp = FastMCP("shop")


@dataclass
class Address:
    street: str


def db() -> Dict[str, int]:
    return {}


@mcp.tool
async def ship(order: str, ctx: Context) -> str:
    await ctx.info("x", extra={"a": 1})
    ctx.report_progress(1, 2)
    answer = await ctx.elicit("Where?", Address)
    if answer.action != "accept":
        return "no"
    street: str = answer.data.street
    made = await ctx.sample("hi", max_tokens=5)
    roots = await ctx.list_roots()
    part = (await ctx.read_resource("data://a"))[0].content
    return f"{street} {made.text} {roots[0].uri} {part!r} {ctx.headers.get('a')}"


@mcp.tool("named", tags={"a"})
def named(a: int, it: Dict[str, int] = Depends(db)) -> ToolResult:
    return ToolResult(content=[Image(data=b"", format="png")])


@mcp.resource("data://a")
def a() -> str:
    return "a"


@mcp.prompt
def p(x: str) -> Message:
    return Message(x)


@mcp.completion("p", "x")
def c(value: str) -> List[str]:
    return [value]


@mcp.lifespan
async def life(app: Any) -> AsyncIterator[Dict[str, int]]:
    yield {}


class M(Middleware):
    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        return await call_next(context)


mcp.add_middleware(M())
mcp.add_tool(Tool.from_function(a, name="b", tags={"x"}))
total: int = len(Client(mcp).call("named", {"a": 1}).content)
text: str = a()
'''

APPLICATION_MISTAKES = (
    APPLICATION.replace("street: str =", "street: int =")
    .replace("report_progress(1, 2)", "report_progress('much')")
    .replace("text: str = a()", "text: int = a()")
)


def setuptools_version():
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return 0


class Package(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="owlclaw-package-"))
        self.addCleanup(shutil.rmtree, self.directory)

    def run_python(self, *arguments, **variables):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=self.directory,
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        return done.returncode, done.stdout

    @unittest.skipIf(setuptools_version() < 61, "no setuptools that reads pyproject.toml is installed")
    def test_what_is_installed_is_complete_and_works(self):
        source = self.directory / "source"
        shutil.copytree(PYTHON_DIRECTORY, source, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        # Not by pip, which wants a network or more packages than a virtual environment has.
        script = "import os, setuptools; os.chdir('source'); setuptools.setup()"
        status, output = self.run_python("-c", script, "build", "--build-lib", self.directory / "built", "egg_info")
        self.assertEqual(status, 0, output)
        names = {str(path.relative_to(self.directory / "built")) for path in self.directory.glob("built/**/*.*")}
        expected = {path.name for path in (PYTHON_DIRECTORY / "owlclaw_worker").iterdir() if path.is_file()}
        stand_in = {str(path.relative_to(PYTHON_DIRECTORY)) for path in PYTHON_DIRECTORY.glob("owlclaw_stand_in/**/*.py")}
        self.assertEqual(names, {os.path.join("owlclaw_worker", name) for name in expected} | stand_in)
        metadata = (source / "owlclaw_worker.egg-info" / "PKG-INFO").read_text(encoding="utf-8")
        self.assertIn("Name: owlclaw-worker\n", metadata)
        self.assertNotIn("Requires-Dist", metadata)
        (self.directory / "handler.py").write_text(HANDLER + "print(stopped, owlclaw_worker.__file__)")
        status, output = self.run_python("-B", "handler.py", PYTHONPATH=str(self.directory / "built"))
        self.assertEqual((status, output.split()[0]), (0, "False"), output)
        self.assertIn("built", output)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_type_checkers_know_the_functions(self):
        texts = {
            "handler": HANDLER,
            "mistakes": MISTAKES,
            "application": APPLICATION,
            "application_mistakes": APPLICATION_MISTAKES,
        }
        for name, text in texts.items():
            (self.directory / (name + ".py")).write_text(text)
        # As for what is installed: the package's own code is not looked at.
        (self.directory / "mypy.ini").write_text("[mypy]\n[mypy-owlclaw_worker.*]\nignore_errors = True\n")
        check = ["-m", "mypy", "--strict", "--cache-dir", self.directory]
        for good, bad, errors in (("handler", "mistakes", 4), ("application", "application_mistakes", 3)):
            status, output = self.run_python(*check, good + ".py", MYPYPATH=str(PYTHON_DIRECTORY))
            self.assertEqual(status, 0, output)
            status, output = self.run_python(*check, bad + ".py", MYPYPATH=str(PYTHON_DIRECTORY))
            self.assertIn("Found %d errors" % errors, output)

    def test_the_stubs_say_what_the_code_does(self):
        stubs = ast.parse((PYTHON_DIRECTORY / "owlclaw_worker" / "__init__.pyi").read_text(encoding="utf-8"))
        functions = {node.name: node.args for node in stubs.body if isinstance(node, ast.FunctionDef)}
        classes = {node.name: node.body for node in stubs.body if isinstance(node, ast.ClassDef)}
        errors = [name for name in classes if issubclass(getattr(owlclaw_worker, name), Exception)]
        imported = {
            one.asname
            for node in stubs.body
            if isinstance(node, ast.ImportFrom)
            for one in node.names
            if one.asname in owlclaw_worker.__all__
        }
        self.assertEqual(sorted([*functions, *classes, *imported]), sorted(owlclaw_worker.__all__))
        for name, members in ((name, body) for name, body in classes.items() if name not in errors):
            self.assertEqual([member.target.id for member in members], list(getattr(owlclaw_worker, name)._fields))
        for name, arguments in functions.items():
            parameters = inspect.signature(getattr(owlclaw_worker, name)).parameters.values()
            self.assertEqual([argument.arg for argument in arguments.args], [one.name for one in parameters])
            defaults = [one.default for one in parameters if one.default is not one.empty]
            self.assertEqual([ast.literal_eval(default) for default in arguments.defaults], defaults)


if __name__ == "__main__":
    unittest.main()
