"""Blocks of content, results and contents of resources that are objects of the official SDK, of either version."""

import importlib.util
import unittest

from support import WorkerProcess, call_frame

HEAD = """
import typing
from mcp import types
from mcp.types import (
    BlobResourceContents, CallToolResult, EmbeddedResource, GetPromptResult, ImageContent, PromptMessage, ResourceLink,
    TextContent, TextResourceContents,
)
from owlclaw_worker import FastMCP, Image, ToolResult
mcp = FastMCP("sdk")
is_new = "mime_type" in ImageContent.model_fields
def new(kind, **members):
    names = {"mimeType": "mime_type", "isError": "is_error", "structuredContent": "structured_content"}
    return kind(**{names[name] if is_new and name in names else name: one for name, one in members.items()})
def text(said="q"): return TextContent(type="text", text=said)
def image(): return new(ImageContent, type="image", data="eA==", mimeType="image/png")
def contents(): return new(TextResourceContents, uri="data://x", text="t", mimeType="text/html")
class Own(TextContent):
    pass
"""

TEXT = {"type": "text", "text": "q"}
IMAGE = {"type": "image", "data": "eA==", "mimeType": "image/png"}
EMBEDDED = {"type": "resource", "resource": {"uri": "data://x", "text": "t", "mimeType": "text/html"}}


@unittest.skipUnless(importlib.util.find_spec("mcp"), "the SDK is not installed")
class OfTheSdk(unittest.TestCase):
    maxDiff = None

    def ask(self, kind, call_id, name):
        self.worker.send({**call_frame(call_id, name), "type": kind})
        return self.worker.frame()

    def start(self, text):
        self.worker = WorkerProcess(HEAD + text)
        self.worker.__enter__()
        self.addCleanup(self.worker.__exit__, None, None, None)
        return self.worker.ready()

    def test_results_are_content_and_promise_no_object(self):
        ready = self.start("""
@mcp.tool
def one() -> TextContent: return text()
@mcp.tool
def picture() -> ImageContent: return image()
@mcp.tool
def perhaps() -> typing.Optional[ImageContent]: return image()
@mcp.tool
def either() -> typing.Union[TextContent, ImageContent]: return image()
@mcp.tool
def several() -> typing.List[typing.Union[TextContent, ImageContent]]: return [image(), text(), "plain"]
@mcp.tool
def link() -> ResourceLink: return ResourceLink(type="resource_link", uri="data://x", name="x")
@mcp.tool
def embedded() -> EmbeddedResource: return EmbeddedResource(type="resource", resource=contents())
@mcp.tool
def own() -> Own: return Own(type="text", text="q")
@mcp.tool
def whole() -> CallToolResult: return new(CallToolResult, content=[text()], structuredContent={"a": 1}, _meta={"m": 2})
@mcp.tool
def noted() -> typing.Annotated[CallToolResult, "said in full"]: return new(CallToolResult, content=[text()])
@mcp.tool
def failed() -> CallToolResult: return new(CallToolResult, content=[text("bad")], isError=True)
@mcp.tool
def ours() -> ToolResult: return ToolResult(content=["bad", image()], is_error=True)
""")
        self.assertEqual([one["name"] for one in ready["tools"] if one["output_schema"] is not None], [])
        expected = {
            "one": {"content": [TEXT]},
            "picture": {"content": [IMAGE]},
            "perhaps": {"content": [IMAGE]},
            "either": {"content": [IMAGE]},
            "several": {"content": [IMAGE, TEXT, {"type": "text", "text": "plain"}]},
            "link": {"content": [{"type": "resource_link", "uri": "data://x", "name": "x"}]},
            "embedded": {"content": [EMBEDDED]},
            "own": {"content": [TEXT]},
            "whole": {"content": [TEXT], "structured": {"a": 1}, "meta": {"m": 2}},
            "noted": {"content": [TEXT]},
            "failed": {"content": [{"type": "text", "text": "bad"}], "is_error": True},
            "ours": {"content": [{"type": "text", "text": "bad"}, IMAGE], "is_error": True},
        }
        for call_id, (name, value) in enumerate(expected.items()):
            frame = self.ask("call", call_id, name)
            self.assertEqual((frame["type"], frame.get("value")), ("content", value), (name, frame))

    def test_blocks_keep_what_is_said_about_them(self):
        self.start("""
about = {"annotations": types.Annotations(audience=["user"], priority=0.5), "_meta": {"a/b": 1}}
@mcp.tool
def said(): return [TextContent(type="text", text="q", **about), new(ImageContent, type="image", data="eA==", mimeType="image/png", **about)]
@mcp.tool
def whole() -> CallToolResult: return new(CallToolResult, content=[TextContent(type="text", text="q", **about)])
@mcp.tool
def link(): return ResourceLink(type="resource_link", uri="data://x", name="x", title="X", size=5, **about)
@mcp.tool
def ours(): return [Image(data=b"x", annotations=about["annotations"]), File(data=b"x", format="txt", annotations={"priority": 1})]
@mcp.tool
def wrong(): return Image(data=b"x", annotations={"priority": 2})
@mcp.tool
def taken(): return ToolResult(content="q", meta={"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}})
""".replace("about =", "from owlclaw_worker import File\nabout =", 1))
        about = {"annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"a/b": 1}}
        embedded = {"type": "resource", "resource": {"uri": "file:///resource.txt", "mimeType": "text/plain", "text": "x"}}
        expected = {
            "said": [{**TEXT, **about}, {**IMAGE, **about}],
            "whole": [{**TEXT, **about}],
            "link": [{"type": "resource_link", "uri": "data://x", "name": "x", "title": "X", "size": 5, **about}],
            "ours": [{**IMAGE, "annotations": about["annotations"]}, {**embedded, "annotations": {"priority": 1}}],
        }
        for call_id, (name, blocks) in enumerate(expected.items()):
            self.assertEqual(self.ask("call", call_id, name).get("value"), {"content": blocks}, name)
        for call_id, name, why in ((10, "wrong", "a priority from 0 to 1"), (11, "taken", "`_meta` of a result has 'io.modelcontextprotocol/serverInfo'")):
            self.assertIn(why, self.ask("call", call_id, name)["message"])

    def test_messages_of_prompts_and_contents_of_resources_are_understood(self):
        self.start("""
@mcp.prompt
def said(): return [PromptMessage(role="assistant", content=text()), image(), "plain"]
@mcp.prompt
def result(): return GetPromptResult(description="d", messages=[PromptMessage(role="user", content=image())])
@mcp.resource("data://one", mime_type="text/plain")
def one(): return contents()
@mcp.resource("data://several", mime_type="text/x-declared")
def several():
    return [contents(), new(BlobResourceContents, uri="data://x", blob="eA=="), image(), text(), "plain"]
""")
        value = self.ask("prompt", 1, "said")["value"]
        self.assertEqual(
            value["messages"],
            [
                {"role": "assistant", "content": TEXT},
                {"role": "user", "content": IMAGE},
                {"role": "user", "content": {"type": "text", "text": "plain"}},
            ],
        )
        value = self.ask("prompt", 2, "result")["value"]
        self.assertEqual(value, {"description": "d", "messages": [{"role": "user", "content": IMAGE}]})
        html = {"text": "t", "mime_type": "text/html"}
        self.assertEqual(self.ask("resource", 3, "data://one")["value"]["contents"], [html])
        declared = "text/x-declared"
        self.assertEqual(
            self.ask("resource", 4, "data://several")["value"]["contents"],
            [
                html,
                {"blob": "eA==", "mime_type": declared},
                {"blob": "eA==", "mime_type": "image/png"},
                {"text": "q", "mime_type": declared},
                {"text": "plain", "mime_type": declared},
            ],
        )

    def test_completions_tell_prompts_from_templates_by_the_classes_of_the_sdk(self):
        self.start("""
from mcp.types import Completion, CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference
@mcp.completion()
async def complete(ref, argument, context):
    assert isinstance(argument, CompletionArgument) and isinstance(context, CompletionContext)
    if isinstance(ref, PromptReference):
        return Completion(values=[ref.name, argument.name, argument.value, str(context.arguments)])
    if isinstance(ref, ResourceTemplateReference):
        return Completion(values=[ref.uri])
""")
        asked = {"argument": {"name": "lang", "value": "p"}, "context": {"arguments": {"a": "b"}}}
        for call_id, (ref, expected) in enumerate((
            ({"type": "ref/prompt", "name": "p"}, ["p", "lang", "p", "{'a': 'b'}"]),
            ({"type": "ref/resource", "uri": "gh://{a}"}, ["gh://{a}"]),
        )):
            self.worker.send({**call_frame(call_id, ""), "type": "completion", "arguments": {"ref": ref, **asked}})
            frame = self.worker.frame()
            self.assertEqual(frame.get("value", {}).get("values"), expected, frame)


if __name__ == "__main__":
    unittest.main()
