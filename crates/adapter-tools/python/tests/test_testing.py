"""The test client, which runs handlers in the process of a test."""

import asyncio
import datetime
import math
import sys
import unittest

from support import PYTHON_DIRECTORY

sys.path.insert(0, str(PYTHON_DIRECTORY / "owlclaw_stand_in"))

from owlclaw import OwlClaw  # noqa: E402

import owlclaw_worker  # noqa: E402
from owlclaw_worker import Context, Image  # noqa: E402
from owlclaw_worker.testing import Client  # noqa: E402

app = OwlClaw("tested")
app.mount_skills("skills")


async def later(value):
    await asyncio.sleep(0)
    return value


@app.handler("due")
def due(day: datetime.date, ctx: Context, days: int = 1) -> dict:
    ctx.info("adding")
    return {"due": day + datetime.timedelta(days=days), "for": ctx.client_id, "nan": math.nan}


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


@app.handler("fails")
def fails():
    raise LookupError("no such thing")


class Testing(unittest.TestCase):
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

    def test_what_fails_raises(self):
        client = Client(app)
        with self.assertRaisesRegex(LookupError, "no such thing"):
            client.call("fails")
        with self.assertRaisesRegex(LookupError, "there is no tool named 'lost'; there are draws"):
            client.call("lost")
        with self.assertRaisesRegex(Exception, "day"):
            client.call("due", {"day": "2026-02-30"})

    def test_tools_are_described(self):
        tools = {tool["name"]: tool for tool in Client(app).tools()}
        self.assertEqual(list(tools["due"]["input_schema"]["properties"]), ["day", "days"])


if __name__ == "__main__":
    unittest.main()
