"""Finding applications, in real workers: one process has one sys.path and one set of modules."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import PYTHON_DIRECTORY, Ended, WorkerProcess

HANDLER = """
@app.handler("hello")
async def hello(session: dict) -> dict:
    return {"hello": session.get("who")}
"""

GLOBAL = """
from owlclaw import OwlClaw
app = OwlClaw.lite("global", skills_path="skills")
""" + HANDLER

FACTORY = """
from owlclaw import OwlClaw
def %s():
    app = OwlClaw("factory")
    app.mount_skills("skills")
    @app.handler("hello")
    async def hello(session: dict) -> dict:
        return {"hello": session.get("who")}
    return app
"""

LOCAL = """
import sys
from owlclaw import OwlClaw
def main():
    assert len(sys.argv) == 1, sys.argv
    app = OwlClaw("local")
    app.mount_skills("skills")
    @app.handler("hello")
    async def hello(session: dict) -> dict:
        return {"hello": session.get("who")}
    %s
if __name__ == "__main__":
    main()
"""

PACKAGE = {
    "shop/__init__.py": "",
    "shop/base.py": "WHO = 'package'\n",
    "shop/sales/__init__.py": "",
    "shop/sales/app.py": """
        from owlclaw import OwlClaw
        from ..base import WHO
        from . import more
        app = OwlClaw(WHO)
        app.mount_skills("skills")
        more.register(app)
        """,
    "shop/sales/more.py": """
        def register(app):
            from shop.sales import app as module
            assert module.WHO == "package"
            @app.handler("hello")
            async def hello(session):
                return {"hello": session.get("who")}
        """,
}


class Loading(unittest.TestCase):
    maxDiff = None

    def check(self, files, app, name, warnings=()):
        with WorkerProcess(files, app) as worker:
            ready = worker.ready()
            self.assertEqual(ready["app"], name)
            self.assertEqual([tool["name"] for tool in ready["tools"]], ["hello"])
            self.assertEqual(ready["warnings"], list(warnings))
            self.assertEqual(worker.result(1, "hello", {"who": "you"}), {"hello": "you"})

    def refusal(self, files, app):
        with WorkerProcess(files, app) as worker:
            frame = worker.frame()
            self.assertEqual(frame["type"], "fatal", frame)
            with self.assertRaises(Ended):
                worker.frame()
            self.assertEqual(worker.wait(10), 1)
            return frame

    def test_applications_are_found_wherever_they_are_made(self):
        stop = "Not an exception that an application's own handler may catch"
        rows = [
            ({"app.py": GLOBAL}, "app.py", "global"),
            ({"app.py": GLOBAL}, "app", "global"),
            ({"app.py": GLOBAL}, "app.py:app", "global"),
            ({"app.py": GLOBAL}, "app:app", "global"),
            ({"deep/down/my-app.py": GLOBAL}, "deep/down/my-app.py", "global"),
            ({"app.py": FACTORY % "create_app"}, "app.py", "factory"),
            ({"app.py": FACTORY % "_create_app"}, "app.py", "factory"),
            ({"app.py": FACTORY % "build_app"}, "app", "factory"),
            ({"app.py": FACTORY % "make_app"}, "app.py", "factory"),
            ({"app.py": FACTORY % "mine"}, "app.py:mine()", "factory"),
            ({"app.py": FACTORY % "mine"}, "app:mine", "factory"),
            ({"app.py": (FACTORY % "create_app").replace("def create", "async def create")}, "app.py", "factory"),
            ({"app.py": LOCAL % "pass"}, "app.py", "local"),
            ({"app.py": LOCAL % "app.run()"}, "app.py", "local"),
            ({"app.py": LOCAL % "sys.exit(app.run_once())"}, "app.py", "local"),
            ({"app.py": LOCAL % ("try:\n        app.run()\n    except Exception:\n        print(%r)" % stop)}, "app.py", "local"),
            (
                {"app.py": (LOCAL % "await app.start()").replace("def main", "async def main")},
                "app.py",
                "local",
            ),
            ({"app.py": GLOBAL + "\napp.run()\nraise Exception('not reached')\n"}, "app.py", "global"),
            ({"app.py": "from owlclaw import OwlClaw\nclass Shop:\n    app = OwlClaw('dotted')\napp = Shop.app\napp.mount_skills('s')\n" + HANDLER + "\ndel app"}, "app:Shop.app", "dotted"),
            ({"app.py": "from owlclaw import OwlClaw\nkept = [OwlClaw('kept')]\napp = kept[0]\napp.mount_skills('s')\n" + HANDLER + "\ndel app"}, "app.py", "kept"),
            (PACKAGE, "shop/sales/app.py", "package"),
            (PACKAGE, "shop.sales.app", "package"),
            (PACKAGE, "shop.sales.app:app", "package"),
        ]
        for number, (files, app, name) in enumerate(rows):
            with self.subTest(row=number, app=app):
                self.check(files, app, name)

    def test_another_application_of_the_module_is_told_unless_it_is_mounted(self):
        text = """
            from owlclaw_worker import FastMCP
            mcp, other, part = FastMCP("one"), FastMCP("two"), FastMCP("three")
            @mcp.tool
            def hello(who: str = "") -> dict:
                return {"hello": who}
            @other.tool
            def lost(): pass
            part.tool(hello, name="again")
        """
        told = "mcp is served, and what is registered with other alone is not; mount it, or name it as app.py:other"
        self.check({"app.py": text}, "app.py", "one", [told])

    def test_handlers_registered_by_main_are_found_on_a_global(self):
        text = """
            from owlclaw import OwlClaw
            app = OwlClaw("late")
            def main():
                app.mount_skills("skills")
                @app.handler("hello")
                def hello(session): return {"hello": session["who"]}
                app.run()
            """
        self.check({"app.py": text}, "app.py", "late")

    def test_a_module_beside_the_application_may_import_it(self):
        head = "print('imported')\nfrom owlclaw import OwlClaw\napp = OwlClaw('circle')\napp.mount_skills('s')\n"
        files = {"src/app.py": head + "import handlers\n", "src/handlers.py": "from app import app\n" + HANDLER}
        with WorkerProcess(files, "src/app.py") as worker:
            self.assertEqual([tool["name"] for tool in worker.ready()["tools"]], ["hello"])
            self.assertEqual(worker.output("stdout"), "imported\n")

    def test_the_real_package_wins_over_the_stand_in(self):
        real = """
            class OwlClaw:
                def __init__(self, name):
                    self.name = name
                    self.registry = None
                def mount_skills(self, path):
                    self.registry = type("Registry", (), {"handlers": {}, "states": {}})()
                def handler(self, name):
                    def decorate(function):
                        self.registry.handlers[name] = function
                        return function
                    return decorate
                def run(self): raise Exception("started")
            """
        files = {"owlclaw/__init__.py": real, "app.py": LOCAL % "app.run()"}
        with WorkerProcess(files) as worker:
            self.assertEqual(worker.ready()["owlclaw"], "real")

    def test_binding_tools_of_the_real_package_are_never_run(self):
        files = {
            "owlclaw/__init__.py": """
                from owlclaw.app import OwlClaw
                """,
            "owlclaw/capabilities/__init__.py": "",
            "owlclaw/capabilities/bindings/__init__.py": "from owlclaw.capabilities.bindings.tool import BindingTool",
            "owlclaw/capabilities/bindings/tool.py": """
                class BindingTool:
                    def __init__(self, name, parameters_schema):
                        self.name = name
                        self.description = "Asks a service."
                        self.parameters_schema = parameters_schema
                        self.risk_level = "low"
                    async def __call__(self, **kwargs):
                        return {"reached": self.name}
                """,
            "owlclaw/capabilities/registry.py": """
                class CapabilityRegistry:
                    def __init__(self):
                        self.handlers = {}
                        self.states = {}
                    def register_handler(self, name, handler):
                        if name in self.handlers:
                            raise ValueError(name)
                        self.handlers[name] = handler
                """,
            "owlclaw/app.py": """
                from owlclaw.capabilities.bindings import BindingTool
                from owlclaw.capabilities.registry import CapabilityRegistry
                class OwlClaw:
                    def __init__(self, name):
                        self.name = name
                        self.registry = None
                    def mount_skills(self, path):
                        self.registry = CapabilityRegistry()
                        for name in ("fetch-order", "replaced"):
                            self.registry.register_handler(name, BindingTool(name, {"type": "object"}))
                    def handler(self, name):
                        def decorator(function):
                            if isinstance(self.registry.handlers.get(name), BindingTool):
                                self.registry.handlers.pop(name)
                            self.registry.register_handler(name, function)
                            return function
                        return decorator
                """,
            "app.py": """
                import functools
                from owlclaw import OwlClaw
                from owlclaw.capabilities.bindings import BindingTool
                app = OwlClaw("shop")
                app.mount_skills("skills")
                @app.handler("replaced")
                def replaced(session):
                    return "ours"
                class Own(BindingTool):
                    pass
                own = Own("own", {})
                app.registry.register_handler("own", own)
                app.registry.register_handler("method", own.__call__)
                app.registry.register_handler("partial", functools.partial(own, a=1))
                """,
        }
        with WorkerProcess(files) as worker:
            ready = worker.ready()
            self.assertEqual(ready["owlclaw"], "real")
            self.assertEqual([tool["name"] for tool in ready["tools"]], ["replaced"])
            (warning,) = ready["warnings"]
            self.assertIn("are not run (fetch-order, own, method, partial)", warning)
            for number, name in enumerate(("fetch-order", "own", "method", "partial")):
                self.assertEqual(worker.error(number, name, {"id": 1})["kind"], "no_such_tool")
            self.assertEqual(worker.result(9, "replaced", {}), "ours")

    def test_functions_of_scripts_without_an_application_are_not_called(self):
        for name in ("main", "create_app"):
            script = """
                import pathlib
                def %s():
                    pathlib.Path("was-here").write_text("x")
                """ % name
            with WorkerProcess(script) as worker:
                fatal = worker.frame()
                self.assertEqual(fatal["type"], "fatal")
                self.assertIn("nothing in it refers to the package owlclaw", fatal["message"])
                self.assertFalse((worker.application.root / "was-here").exists())
        elsewhere = {
            "app.py": "import making\ndef main():\n    making.make().run()\n",
            "making.py": "import owlclaw\ndef make():\n    app = owlclaw.OwlClaw('x')\n    app.mount_skills('s')\n"
            "    app.handler('a')(lambda session: 1)\n    return app\n",
        }
        with WorkerProcess(elsewhere) as worker:
            self.assertEqual([tool["name"] for tool in worker.ready()["tools"]], ["a"])
        within = "def main():\n    from owlclaw import OwlClaw\n    app = OwlClaw('x')\n    app.mount_skills('s')\n    app.run()\n"
        with WorkerProcess(within) as worker:
            self.assertEqual(worker.ready()["app"], "x")

    def test_the_files_own_directory_comes_first_on_the_path(self):
        files = {
            "app.py": "raise SystemExit('the wrong one')",
            "common.py": "WHERE = 'root'",
            "sales/common.py": "WHERE = 'sales'",
            "sales/app.py": "import common, os\n" + GLOBAL + "\napp.name = common.WHERE + ' ' + os.path.basename(os.getcwd())",
        }
        with WorkerProcess(files, app="sales/app.py") as worker:
            self.assertEqual(worker.ready()["app"], "sales " + worker.application.root.name)

    def test_no_directory_but_the_files_own_takes_the_place_of_pythons_modules(self):
        wrong = {name + ".py": "raise SystemExit('%s of the directory above')" % name for name in ("re", "runpy", "calendar", "fractions")}
        files = {
            **wrong,
            "common.py": "WHERE = 'above'",
            "sales/csv.py": "WHERE = 'own'",
            "sales/app.py": "import calendar, common, csv\n" + GLOBAL + "\napp.name = common.WHERE + ' ' + csv.WHERE",
        }
        for start in ("fork", "spawn"):
            with WorkerProcess(files, app="sales/app.py", start=start) as worker:
                self.assertEqual(worker.ready()["app"], "above own")
        # A package is found above its files, also one that has the name of a module of Python's.
        files = {
            **wrong,
            "csv/__init__.py": "",
            "csv/more.py": "WHERE = 'package'",
            "csv/app.py": "from . import more\n" + GLOBAL + "\napp.name = more.WHERE",
        }
        with WorkerProcess(files, app="csv/app.py") as worker:
            self.assertEqual(worker.ready()["app"], "package")

    def test_further_directories_come_behind_pythons_modules_and_before_installed_ones(self):
        files = {
            "shop/app.py": "import attr_like, calendar\n" + GLOBAL + "\napp.name = attr_like.WHERE",
            "more/calendar.py": "raise SystemExit('calendar of a further directory')",
            "more/attr_like.py": "WHERE = 'further'",
        }
        with tempfile.TemporaryDirectory() as directory:
            for name, text in files.items():
                path = pathlib.Path(directory, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            search = os.pathsep.join([os.path.join(directory, "more"), os.path.join(directory, "none")])
            application = os.path.join(directory, "shop", "app.py")
            with WorkerProcess("", app=application, variables={"OWLCLAW_WORKER_SEARCH": search}) as worker:
                self.assertEqual(worker.ready()["app"], "further")

    def test_rules_of_handlers_are_told(self):
        text = GLOBAL + """
import functools
from decimal import Decimal
def risky(session): return 1
risky.risk_level = "critical"
risky.constraints = {"max_daily_calls": 3, "estimated_cost": Decimal("0.05")}
app.handler("risky")(risky)
@functools.wraps(risky)
def around(session): return risky(session)
around.requires_confirmation = True
app.handler("around")(around)
def unclear(session): return 1
unclear.requires_confirmation = lambda arguments: True
app.handler("unclear")(unclear)
app.configure(governance={"visibility": {"budget": {"budget_limits": {"me": "10"}}}, "use_inmemory_ledger": True})
"""
        with WorkerProcess(text) as worker:
            ready = worker.ready()
            tools = {tool["name"]: tool for tool in ready["tools"]}
            risky = {"risk_level": "critical", "constraints": {"max_daily_calls": 3, "estimated_cost": "0.05"}}
            self.assertEqual(tools["risky"]["rules"], [risky])
            # A decorator that tells copies the attributes too.
            self.assertEqual(tools["around"]["rules"], [{**risky, "requires_confirmation": True}, risky])
            self.assertEqual(tools["hello"]["rules"], [])
            self.assertIn("`requires_confirmation` cannot be read", tools["unclear"]["refused"])
            self.assertEqual(ready["governance"], ["visibility.budget.budget_limits.me"])

    def test_words_of_rules_that_nothing_reads_refuse_the_tool(self):
        attributes = {
            "require_confirmation": "True",
            "requires_confirmaton": "True",
            "requiresConfirmation": "True",
            "needs_approval": "True",
            "max_daily_calls": "1",
            "cooldown_seconds": "60",
            "migration_weight": "0",
            "risklevel": "'high'",
            "constraint": "{'max_daily_calls': 1}",
            "trading_hours_only": "True",
            "estimated_cost": "5",
            "needsApproval": "True",
            "mustConfirm": "True",
            "needs_confirming": "1",
            "must_approve": "'yes'",
        }
        text = GLOBAL
        for name, value in attributes.items():
            text += "def f(session): return 1\nf.%s = %s\napp.handler('of-%s')(f)\n" % (name, value, name)
        text += """
class Desk:
    requires_confirmation = True
    constraints = ["of a solver"]
    def run(self, session): return 1
    def confirm(self): return 1
class Classy:
    risk_level = "high"
    constraints = {"max_daily_calls": 1}
    @classmethod
    def run(cls, session): return 1
class Plain:
    name, description, risk, timeout, confirmed_at, constraint = "a", "b", 1, 5, None, "c"
    def run(self, session): return 1
app.handler("method")(Desk().run)
app.handler("classy")(Classy.run)
app.handler("plain")(Plain().run)
def off(session): return 1
off.confirmed = off.needsApproval = off.require_confirmation = False
off.approved_by = "Ann"
app.handler("off")(off)
"""
        with WorkerProcess(text) as worker:
            tools = {tool["name"]: tool for tool in worker.ready()["tools"]}
            for name in attributes:
                self.assertIn("`%s` is a rule that would not hold" % name, tools["of-" + name]["refused"])
            self.assertEqual(tools["method"]["rules"], [{"requires_confirmation": True}])
            self.assertEqual(tools["classy"]["rules"], [{"risk_level": "high", "constraints": {"max_daily_calls": 1}}])
            for name in ("method", "classy", "plain", "off"):
                self.assertIsNone(tools[name]["refused"])
            self.assertEqual(tools["plain"]["rules"], [])

    def test_what_an_object_keeps_is_no_rule_of_its_methods(self):
        text = GLOBAL + """
import dataclasses
@dataclasses.dataclass
class Mail:
    confirmation: bool = True
    cooldown_seconds: float = 5.0
    def run(self, session): return 1
class Service:
    requires_confirmation = property(lambda self: 1 / 0)
    risk_level = 0.3
    def run(self, session): return 1
app.handler("mail")(Mail().run)
kept = {
    "auto_confirm": False, "confirmed": False, "auto_approve": True, "max_running": 4, "estimated_cost": 0.0, "_risk_level": "high",
    "risk_levels": {"a": 1}, "constraint": {"max_daily_calls": 1}, "risk_level": object(), "constraints": {"estimated_cost": 1},
}
for name, value in kept.items():
    service = Service()
    vars(service)[name] = value
    app.handler("of-" + name)(service.run)
"""
        with WorkerProcess(text) as worker:
            for tool in worker.ready()["tools"]:
                self.assertEqual((tool["rules"], tool["refused"]), ([], None), tool["name"])

    def test_state_in_memory_is_noticed(self):
        text = GLOBAL + """
ORDERS = {}
RATES = {"eur": 1}
COUNT = 0
seen = []
@app.handler("store")
def store(session, order: str):
    global COUNT
    COUNT += 1
    ORDERS[order] = RATES["eur"]
    remember(order)
    local = {}
    local["a"] = 1
def remember(order):
    seen.append(order)
def shadows(seen_too, RATES):
    RATES["a"] = 1
"""
        with WorkerProcess(text) as worker:
            self.assertEqual(worker.ready()["changed_names"], ["app.py: COUNT", "app.py: ORDERS", "app.py: seen"])
        with WorkerProcess(GLOBAL) as worker:
            self.assertEqual(worker.ready()["changed_names"], [])

    def test_a_directory_that_happens_to_be_called_owlclaw_is_not_the_package(self):
        with WorkerProcess({"owlclaw/notes.txt": "", "app.py": GLOBAL}) as worker:
            self.assertEqual(worker.ready()["owlclaw"], "bundled")

    def test_what_cannot_be_loaded_is_explained(self):
        nothing = "x = 1\n"
        two = "from owlclaw import OwlClaw\na = OwlClaw('a')\nb = OwlClaw('b')\n"
        two += "for x in (a, b):\n    x.mount_skills('s')\n    x.handler('hello')(lambda: 1)\ndel x\n"
        rows = [
            ({"app.py": nothing}, "app.py", "no OwlClaw application was found in app.py"),
            ({"app.py": nothing}, "missing.py", "there is no file"),
            ({"app.py": nothing}, "missing.module", "there is no module missing.module"),
            ({"app.py": nothing}, "app.py:app", "has no attribute 'app'"),
            ({"app.py": nothing}, "app.py:x", "app.py:x is a int, not an OwlClaw application"),
            ({"app.py": two}, "app.py", "has 2 applications (a, b); name one as app.py:attribute"),
            ({"app.py": "def create_app(): return 3\n"}, "app.py", "no OwlClaw application was found"),
            ({"app.py": "import sys\nsys.exit('no database')\n"}, "app.py", "SystemExit: no database"),
            ({"app.py": "import nonexistent_thing\n"}, "app", "ModuleNotFoundError: No module named 'nonexistent_thing'"),
            ({"app.py": "def broken(:\n"}, "app.py", "SyntaxError"),
            ({"app.py": "from fastmcp import FastMCP\n"}, "app.py", "runs with `from owlclaw_worker import FastMCP`"),
            ({"app.py": GLOBAL + "app.create_agent_runtime()\n"}, "app.py", "is not in the stand-in for the package owlclaw"),
            ({"app.py": GLOBAL + "undefined\n"}, "app.py", "NameError: name 'undefined' is not defined"),
            ({"app.py": GLOBAL + HANDLER}, "app.py", "already registered"),
            ({"app.py": "from owlclaw import OwlClaw\napp = OwlClaw('x')\n" + HANDLER}, "app.py", "mount_skills"),
        ]
        for files, app, message in rows:
            with self.subTest(message=message):
                told = self.refusal(files, app)["message"]
                self.assertIn(message, told)
                self.assertEqual(told.count(sys.executable), 1, told)
                self.assertIn("stand-in", told)

    def test_a_failing_import_shows_the_applications_frames_and_no_others(self):
        files = {
            "app.py": "import helper\n",
            "helper.py": """
                def connect():
                    try:
                        {}["url"]
                    except KeyError as error:
                        raise RuntimeError("no database") from error
                connect()
                """,
        }
        frame = self.refusal(files, "app.py")
        self.assertEqual(
            frame["message"],
            "RuntimeError: no database (Python %d.%d.%d, %s; the package owlclaw is the stand-in for it that is part of the server)"
            % (*sys.version_info[:3], sys.executable),
        )
        for expected in ("app.py", "helper.py", "in connect", "KeyError: 'url'", "direct cause"):
            self.assertIn(expected, frame["traceback"])
        for unexpected in ("owlclaw_worker", "importlib"):
            self.assertNotIn(unexpected, frame["traceback"])

    def test_an_application_without_handlers_is_loaded_with_a_warning(self):
        with WorkerProcess("from owlclaw import OwlClaw\napp = OwlClaw('empty')\n") as worker:
            ready = worker.ready()
            self.assertEqual(ready["tools"], [])
            self.assertEqual(ready["warnings"], ["the application has registered no handlers"])

    def test_the_workers_own_settings_are_not_left_to_the_application(self):
        text = GLOBAL + """
import os, subprocess, sys
@app.handler("environment")
def environment():
    child = "import importlib.util; print(importlib.util.find_spec('owlclaw_worker'))"
    return {
        "names": sorted(name for name in os.environ if name.startswith("OWLCLAW_WORKER")),
        "path": os.environ.get("PYTHONPATH"),
        "child": subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE).stdout.decode().strip(),
        "cwd": os.getcwd(),
    }
"""
        with WorkerProcess(text) as worker:
            worker.ready()
            value = worker.result(1, "environment")
            root = os.path.realpath(str(worker.application.root))
            self.assertEqual(
                {**value, "cwd": os.path.realpath(value["cwd"])},
                {"names": [], "path": None, "child": "None", "cwd": root},
            )


class Descriptions(unittest.TestCase):
    maxDiff = None

    def test_tools_are_described(self):
        text = '''
            import functools
            from dataclasses import dataclass
            from owlclaw import OwlClaw
            app = OwlClaw("described")
            app.mount_skills("skills")

            @dataclass
            class Receipt:
                total: int

            @app.handler("pay")
            async def pay(session, amount: int = 1) -> Receipt:
                """Pay.

                Args:
                    amount: How much.
                """

            @app.handler("partial")
            def original(a: int, b: int):
                """Adds."""
            app.registry.handlers["partial"] = functools.partial(original, b=2)

            class Tool:
                """Not about any one tool."""
                description = "Declared."
                parameters_schema = {"properties": {"x": {"type": "string"}}, "required": ["x"]}
                async def __call__(self, **arguments):
                    return arguments

            app.registry.register_handler("declared", Tool())

            class Runnable:
                def invoke(self, value): return {"got": value}
            app.handler("chain", runnable=Runnable(), description="Chained.",
                        input_schema={"type": "object", "properties": {"q": {"type": "string"}}})

            @app.handler("bad-schema")
            def bad(): ...
            bad.input_schema = {"type": "string"}

            @app.handler("odd")
            def odd(x: "NoSuch"): ...

            @app.state("stock")
            def stock(): return {"sku": 1}
            '''
        with WorkerProcess(text) as worker:
            ready = worker.ready()
            tools = {tool.pop("name"): tool for tool in ready["tools"]}
            self.assertEqual(
                tools["pay"],
                {
                    "refused": None,
                    "rules": [],
                    "whole": "session",
                    "aliased": [],
                    "description": "Pay.",
                    "input_schema": {
                        "type": "object",
                        "properties": {"amount": {"type": "integer", "description": "How much.", "default": 1}},
                        "additionalProperties": False,
                    },
                    "schema_from": "hints",
                    "output_schema": {
                        "type": "object",
                        "properties": {"total": {"type": "integer"}},
                        "required": ["total"],
                    },
                    "async": True,
                    "context": False,
                    "source": "app.py:12",
                    "doc": "Pay.\n\nArgs:\n    amount: How much.",
                },
            )
            self.assertEqual(tools["partial"]["description"], "Adds.")
            self.assertEqual(list(tools["partial"]["input_schema"]["required"]), ["a"])
            self.assertFalse(tools["partial"]["async"])
            self.assertEqual(tools["declared"]["description"], "Declared.")
            self.assertEqual(tools["declared"]["input_schema"]["type"], "object")
            self.assertEqual(tools["declared"]["input_schema"]["required"], ["x"])
            self.assertEqual(tools["declared"]["schema_from"], "handler")
            self.assertEqual(tools["bad-schema"]["schema_from"], "hints")
            self.assertTrue(tools["declared"]["async"])
            self.assertEqual(tools["chain"]["description"], "Chained.")
            self.assertEqual(worker.result(1, "chain", {"q": "a"}), {"got": {"q": "a"}})
            self.assertEqual(tools["bad-schema"]["input_schema"]["properties"], {})
            self.assertEqual([state["name"] for state in ready["states"]], ["stock"])
            self.assertEqual(len(ready["warnings"]), 2, ready["warnings"])
            self.assertIn("tool 'bad-schema': its own input schema is ignored", ready["warnings"][0])
            self.assertIn("tool 'odd': the type of parameter 'x' names what is not defined: NoSuch", ready["warnings"][1])
            python = "%d.%d.%d" % sys.version_info[:3]
            self.assertEqual((ready["python"], ready["owlclaw"]), (python, "bundled"))



SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

RUNNABLES = """
import asyncio, datetime
from owlclaw import OwlClaw
app = OwlClaw("chains")
app.mount_skills("skills")
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

class Echo:
    async def ainvoke(self, payload): return {"text": payload["text"]}
class Fails:
    attempts = 0
    async def ainvoke(self, payload):
        self.attempts += 1
        if payload["text"] == "third" and self.attempts == 3:
            return {"attempts": 3}
        raise TimeoutError("upstream")

def register(name, runnable, **more):
    app.register_langchain_runnable(name=name, runnable=runnable, description="Runs.", input_schema=SCHEMA, **more)

register("echo", Echo(), output_schema={"type": "object", "properties": {"text": {"type": "string"}}})
register("fails", Fails())
"""


class Runnables(unittest.TestCase):
    """Objects of LangChain, registered as OwlClaw has it."""

    def test_the_stand_in_runs_them_as_the_package_does(self):
        text = RUNNABLES + """
class Slow:
    def invoke(self, payload):
        import time
        time.sleep(0.5)
@app.handler("second-best")
async def second_best(session: dict): return {"got": session["text"], "after": session["_original_error"]}
register("retried", Fails(), retry_policy={"max_attempts": 3, "initial_delay_ms": 1, "retryable_errors": ["TimeoutError"]})
register("falls-back", Fails(), fallback="second-best")
register("slow", Slow(), timeout_seconds=0.05)
register("too-slow", Slow(), timeout_seconds=0.05, fallback="second-best")
@app.handler("typed")
def typed(day: datetime.date, count: int = 1): return [day.year, count]
@app.handler("all-in-one")
async def all_in_one(payload: dict): return payload
register("falls-to-typed", Fails(), fallback="typed")
register("falls-to-one", Fails(), fallback="all-in-one")
register("transformed", lambda text: len(text), input_transformer=lambda it: it["text"], output_transformer=lambda it: {"n": it})

@app.handler("short", runnable=Echo(), input_schema=SCHEMA, output_schema=SCHEMA)
def placeholder(): ...
@app.handler("described", output_schema={"type": "object"}, input_schema=SCHEMA)
async def described(session): return session
"""
        with WorkerProcess(text) as worker:
            tools = {tool["name"]: tool for tool in worker.ready()["tools"]}
            for name in ("echo", "short", "described", "falls-back"):
                self.assertEqual((tools[name]["input_schema"], tools[name]["schema_from"]), (SCHEMA, "handler"), name)
            self.assertEqual(tools["echo"]["output_schema"]["properties"], {"text": {"type": "string"}})
            self.assertEqual((tools["short"]["output_schema"], tools["described"]["output_schema"]), (SCHEMA, {"type": "object"}))
            self.assertEqual(worker.result(1, "echo", {"text": "a"}), {"text": "a"})
            self.assertEqual(worker.result(2, "retried", {"text": "third"}), {"attempts": 3})
            expected = {"got": "b", "after": "upstream", "_fallback_used": True, "_fallback_name": "second-best"}
            self.assertEqual(worker.result(3, "falls-back", {"text": "b"}), expected)
            self.assertEqual(worker.error(4, "slow", {"text": "a"})["exception"], "TimeoutError")
            self.assertEqual(worker.result(5, "transformed", {"text": "abc"}), {"n": 3})
            self.assertEqual(worker.error(6, "fails", {"text": "a"})["message"], "upstream")
            self.assertEqual(worker.result(7, "too-slow", {"text": "b"})["after"], "TimeoutError")
            answered = worker.result(8, "falls-to-typed", {"text": "b", "day": "2026-11-28", "count": 2.0})
            self.assertEqual(answered["result"], [2026, 2])
            for number, given, expected in ((9, {"day": "soon"}, "/day"), (10, {"text": "b"}, "/day: is missing"), (11, {"day": 1}, "/day")):
                error = worker.error(number, "falls-to-typed", given)
                self.assertEqual(error["exception"], "TypeError", error)
                self.assertIn("the fallback 'typed' does not take what 'falls-to-typed' was given: " + expected, error["message"])
            self.assertEqual(worker.result(12, "falls-to-one", {"text": "b"})["text"], "b")

    def test_schemas_and_failures_are_kept_with_the_package(self):
        # The package's own registration, as far as it matters here: a handler of `session` alone, and failures as results.
        package = """
class Registry:
    def __init__(self): self.handlers, self.states = {}, {}
class OwlClaw:
    def __init__(self, name): self.name, self.registry = name, None
    def mount_skills(self, path): self.registry = Registry()
    def handler(self, name, **options):
        def decorate(function):
            self.registry.handlers[name] = function
            return function
        return decorate
    def register_langchain_runnable(self, *, name, runnable, description, input_schema, output_schema=None):
        async def handler(session):
            payload = session.get("input", session)
            try:
                return await runnable.ainvoke(payload)
            except Exception as error:
                details = {"type": "TimeoutError", "message": str(error), "status_code": 504, "details": {}}
                return {"error": details}
        self.registry.handlers[name] = handler
"""
        with WorkerProcess({"app.py": RUNNABLES, "owlclaw/__init__.py": package}) as worker:
            ready = worker.ready()
            self.assertEqual(ready["owlclaw"], "real")
            tools = {tool["name"]: tool for tool in ready["tools"]}
            self.assertEqual((tools["echo"]["input_schema"], tools["echo"]["description"]), (SCHEMA, "Runs."))
            self.assertEqual(tools["echo"]["output_schema"]["properties"], {"text": {"type": "string"}})
            self.assertEqual(worker.result(1, "echo", {"text": "a", "agent_id": "mine"}), {"text": "a"})
            error = worker.error(2, "fails", {"text": "a"})
            self.assertEqual((error["exception"], error["message"]), ("RunnableFailed", "TimeoutError: upstream"))

    def test_what_only_the_package_has_is_named(self):
        for what in (
            "app.create_agent_runtime()",
            "from owlclaw.integrations import LLMClient",
            "from owlclaw.integrations.langchain import TraceManager",
            "import owlclaw.integrations.llm",
        ):
            with WorkerProcess(RUNNABLES + what + "\n") as worker:
                frame = worker.frame()
                self.assertEqual(frame["type"], "fatal", frame)
                self.assertIn("install owlclaw for", frame["message"], what)
                self.assertIn(sys.executable, frame["message"], what)


class Missing(unittest.TestCase):
    def test_the_interpreter_is_named_whatever_ends_an_import(self):
        for text, said in (("f(:\n", "SyntaxError"), ("1/0\n", "ZeroDivisionError: division by zero (Python %d." % sys.version_info[0])):
            with WorkerProcess(text) as worker:
                message = worker.frame()["message"]
                self.assertIn(said, message)
                self.assertIn(sys.executable, message)

    def test_an_older_interpreter_is_told_which_is_needed(self):
        text = "import sys; sys.version_info = (3, 8, 18, 'final', 0); import owlclaw_worker"
        environment = {**os.environ, "PYTHONPATH": str(PYTHON_DIRECTORY)}
        done = subprocess.run([sys.executable, "-B", "-c", text], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("needs Python 3.9 or later, and %s is Python 3.8.18" % sys.executable, done.stderr)

    def test_tests_are_told_what_only_the_package_has(self):
        text = (
            "import owlclaw_worker.testing, owlclaw.integrations.langchain\n"
            "for name in 'owlclaw.agent', 'owlclaw.integrations.llm':\n"
            "    try: __import__(name)\n"
            "    except ModuleNotFoundError as error: print(error.name, error)\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(PYTHON_DIRECTORY)}
        done = subprocess.run([sys.executable, "-B", "-c", text], env=environment, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 2, done)
        for line, name in zip(lines, ("owlclaw.agent", "owlclaw.integrations.llm")):
            self.assertTrue(line.startswith("%s %s is not in the stand-in" % (name, name)), line)
            self.assertIn("install owlclaw for %s" % sys.executable, line)

    def test_what_is_missing_is_named_with_the_interpreter_and_the_package(self):
        for module, cure in (("owlclaw.integrations.hatchet", "install owlclaw for this interpreter"), ("no_such_module", "")):
            with WorkerProcess("from owlclaw import OwlClaw\nimport %s\n" % module) as worker:
                frame = worker.frame()
                self.assertEqual(frame["type"], "fatal", frame)
                self.assertIn(sys.executable, frame["message"])
                self.assertIn("the stand-in for it", frame["message"])
                self.assertIn(cure, frame["message"])


if __name__ == "__main__":
    unittest.main()
