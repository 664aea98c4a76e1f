"""Costs of language models that handlers ask by way of OwlClaw."""

import unittest

from support import WorkerProcess

# What the real package has of this, and nothing else.
OWLCLAW = {
    "owlclaw/__init__.py": """
class OwlClaw:
    def __init__(self, name):
        self.name = name
        self._handlers = {}
    def handler(self, name):
        def register(function):
            self._handlers[name] = function
            return function
        return register
""",
    "owlclaw/integrations/__init__.py": "from owlclaw.integrations.llm import acompletion\n",
    "owlclaw/integrations/llm.py": """
import asyncio
from dataclasses import dataclass

_mock_config = None

@dataclass
class Usage:
    prompt_tokens: int
    completion_tokens: int

@dataclass
class Response:
    usage: object
    model: str = "answered-by"

async def acompletion(**keywords):
    "What the application calls."
    await asyncio.sleep(0)
    if keywords.get("fails"):
        raise ConnectionError("no model")
    return Response(keywords.get("usage", Usage(900, 120)))

def completion(model, usage=None):
    return {"usage": {"prompt_tokens": 7, "completion_tokens": 8}} if usage is None else Response(usage, model)

def _private():
    return acompletion

class Client:
    async def complete(self):
        return await acompletion(model="by-a-client")
""",
}

PRICES = """
@dataclass(frozen=True)
class CostInfo:
    prompt_tokens: int
    completion_tokens: int
    total_cost: float

def extract_cost_info(response, *, model):
    usage = response["usage"] if isinstance(response, dict) else response.usage
    if usage is None:
        return CostInfo(0, 0, 0.0)
    if isinstance(usage, dict):
        usage = Usage(**usage)
    return CostInfo(usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens / 1_000_000)
"""

APPLICATION = """
import asyncio, inspect, sys
from owlclaw import OwlClaw
app = OwlClaw("models")
assert "owlclaw.integrations.llm" not in sys.modules

@app.handler("ask")
async def ask(**keywords):
    from owlclaw.integrations import acompletion
    from owlclaw.integrations import llm
    assert acompletion is llm.acompletion is llm._private()
    assert inspect.iscoroutinefunction(acompletion) and acompletion.__doc__.startswith("What the app")
    return (await acompletion(model="some-model", **keywords)).model

@app.handler("ask-sync")
def ask_sync():
    from owlclaw.integrations import llm
    return llm.completion("sync-model")

@app.handler("by-client")
async def by_client():
    from owlclaw.integrations.llm import Client
    answers = await asyncio.gather(Client().complete(), Client().complete())
    return len(answers)

@app.handler("mock")
async def mock():
    from owlclaw.integrations import llm
    llm._mock_config = {"default": "hello"}
    return (await llm.acompletion(model="mock")).model
"""


class Costs(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.files = {**OWLCLAW, "app.py": APPLICATION}
        self.files["owlclaw/integrations/llm.py"] += PRICES

    def costs(self, worker, *call):
        """What a call returned, and what it said it cost."""
        value = worker.result(*call)
        frames = worker.frames_before()
        for frame in frames:
            self.assertEqual((frame.pop("type"), frame.pop("id")), ("cost", call[0]))
        return value, frames

    def test_each_call_of_a_model_is_counted_for_the_call_that_makes_it(self):
        for start in ("fork", "spawn"):
            with self.subTest(start=start), WorkerProcess(self.files, start=start) as worker:
                worker.ready()
                cost = {"usd": "0.0009", "model": "some-model", "tokens_in": 900, "tokens_out": 120}
                self.assertEqual(self.costs(worker, 1, "ask"), ("answered-by", [cost]))
                by_client = {**cost, "model": "by-a-client"}
                self.assertEqual(self.costs(worker, 2, "by-client"), (2, [by_client] * 2))
                value, frames = self.costs(worker, 3, "ask-sync")
                self.assertEqual(value["usage"]["prompt_tokens"], 7)
                expected = {"usd": "0.000007", "model": "sync-model", "tokens_in": 7, "tokens_out": 8}
                self.assertEqual(frames, [expected])

    def test_without_prices_tokens_are_counted(self):
        with WorkerProcess({**self.files, **OWLCLAW}) as worker:
            worker.ready()
            cost = {"model": "some-model", "tokens_in": 900, "tokens_out": 120}
            self.assertEqual(self.costs(worker, 1, "ask"), ("answered-by", [cost]))
            cost = {"model": "sync-model", "tokens_in": 7, "tokens_out": 8}
            self.assertEqual(self.costs(worker, 2, "ask-sync")[1], [cost])

    def test_nothing_is_said_about_what_is_not_known_or_costs_nothing(self):
        with WorkerProcess(self.files) as worker:
            worker.ready()
            self.assertEqual(self.costs(worker, 1, "ask", {"usage": None}), ("answered-by", []))
            self.assertEqual(self.costs(worker, 2, "mock"), ("answered-by", []))

    def test_what_cannot_be_read_fails_no_call(self):
        with WorkerProcess(self.files) as worker:
            worker.ready()
            self.assertEqual(self.costs(worker, 1, "ask", {"usage": "much"}), ("answered-by", []))
            self.assertIn("could not be read", worker.output("stderr"))

    def test_errors_of_the_model_are_the_handlers(self):
        with WorkerProcess(self.files) as worker:
            worker.ready()
            frame = worker.error(1, "ask", {"fails": True})
            self.assertEqual((frame["exception"], frame["message"]), ("ConnectionError", "no model"))

    def test_outside_of_calls_it_is_only_passed_on(self):
        self.files["app.py"] += """
from owlclaw.integrations import llm
assert llm.completion("m")["usage"]["prompt_tokens"] == 7
assert asyncio.run(llm.acompletion(model="m")).model == "answered-by"
"""
        self.files["app.py"] = self.files["app.py"].replace('assert "owlclaw.integrations.llm" not in', "assert True or")
        with WorkerProcess(self.files) as worker:
            self.assertEqual(worker.ready()["owlclaw"], "real")


if __name__ == "__main__":
    unittest.main()
