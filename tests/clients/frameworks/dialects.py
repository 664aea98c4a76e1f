"""The interfaces of models that programs with agents speak: what a request offers and says, and how an answer is written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass
class Call:
    id: str
    tool: str
    arguments: str


@dataclass
class Asked:
    """A request: names of the tools, as the answer must have them, and the text of each message."""

    tools: list[str]
    texts: list[str]
    streams: bool
    body: dict = field(repr=False)


def _texts(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or [])


def _events(events: list[dict], named: bool) -> bytes:
    lines = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join(lines).encode()


class Completions:
    """OpenAI's chat completions."""

    @staticmethod
    def read(path: str, body: dict) -> Asked:
        tools = [tool["function"]["name"] for tool in body.get("tools") or []]
        return Asked(tools, [_texts(it.get("content")) for it in body["messages"]], bool(body.get("stream")), body)

    @staticmethod
    def write(asked: Asked, calls: list[Call]) -> bytes:
        message: dict = {"role": "assistant", "content": None if calls else "done"}
        if calls:
            message["tool_calls"] = [
                {"id": it.id, "type": "function", "function": {"name": it.tool, "arguments": it.arguments}} for it in calls
            ]
        finish = "tool_calls" if calls else "stop"
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": asked.body.get("model", "none"),
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        if not asked.streams:
            return json.dumps(answer).encode()
        if calls:
            message["tool_calls"] = [{"index": index, **call} for index, call in enumerate(message["tool_calls"])]
        first = {"index": 0, "delta": message, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": finish}
        chunks = [{**answer, "object": "chat.completion.chunk", "choices": [choice]} for choice in (first, last)]
        return _events(chunks, named=False) + b"data: [DONE]\n\n"


class Responses:
    """OpenAI's responses, always streamed."""

    @staticmethod
    def read(path: str, body: dict) -> Asked:
        tools = []
        for tool in body.get("tools") or []:
            within = tool.get("tools") if tool["type"] == "namespace" else None
            # The answer names both.
            tools += [f"{tool['name']} {it['name']}" for it in within] if within else [tool.get("name", tool["type"])]
        said = body["input"] if isinstance(body["input"], list) else [{"content": body["input"]}]
        texts = [_texts(it.get("output") if it.get("type") == "function_call_output" else it.get("content")) for it in said]
        return Asked(tools, texts, True, body)

    @staticmethod
    def write(asked: Asked, calls: list[Call]) -> bytes:
        items: list[dict] = []
        for call in calls:
            *namespace, name = call.tool.split(" ")
            item = {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": name, "arguments": call.arguments}
            items.append({**item, **({"namespace": namespace[0]} if namespace else {})})
        if not items:
            text = [{"type": "output_text", "text": "done", "annotations": []}]
            items = [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": text}]
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        done = {"id": "resp_1", "object": "response", "status": "completed", "output": items, "usage": usage}
        return _events(
            [
                {"type": "response.created", "response": {"id": "resp_1", "object": "response", "output": []}},
                *[{"type": "response.output_item.added", "output_index": at, "item": it} for at, it in enumerate(items)],
                *[{"type": "response.output_item.done", "output_index": at, "item": it} for at, it in enumerate(items)],
                {"type": "response.completed", "response": done},
            ],
            named=True,
        )


class Messages:
    """Anthropic's messages."""

    @staticmethod
    def read(path: str, body: dict) -> Asked:
        texts = []
        for message in body["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else [{"text": message["content"]}]
            texts.append("\n".join(_texts(it["content"]) if "content" in it else str(it.get("text", "")) for it in blocks))
        return Asked([tool["name"] for tool in body.get("tools") or []], texts, bool(body.get("stream")), body)

    @staticmethod
    def write(asked: Asked, calls: list[Call]) -> bytes:
        blocks: list[dict] = [
            {"type": "tool_use", "id": f"toolu_{it.id}", "name": it.tool, "input": json.loads(it.arguments)} for it in calls
        ] or [{"type": "text", "text": "done"}]
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked.body["model"], "usage": usage}
        if not asked.streams:
            return json.dumps({**message, "content": blocks, **stop}).encode()
        events: list[dict] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
        for at, block in enumerate(blocks):
            if block["type"] == "tool_use":
                empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            else:
                empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
            events += [
                {"type": "content_block_start", "index": at, "content_block": empty},
                {"type": "content_block_delta", "index": at, "delta": delta},
                {"type": "content_block_stop", "index": at},
            ]
        return _events([*events, {"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"}], named=True)


class Gemini:
    """Google's content."""

    @staticmethod
    def read(path: str, body: dict) -> Asked:
        tools = [it["name"] for tool in body.get("tools") or [] for it in tool.get("functionDeclarations", [])]
        texts = []
        for content in body["contents"]:
            texts.append("\n".join(_gemini(part) for part in content.get("parts", [])))
        return Asked(tools, texts, "stream" in path, body)

    @staticmethod
    def write(asked: Asked, calls: list[Call]) -> bytes:
        parts: list[dict] = [
            {"functionCall": {"id": it.id, "name": it.tool, "args": json.loads(it.arguments)}} for it in calls
        ] or [{"text": "done"}]
        answer = {
            "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        }
        return _events([answer], named=False) if asked.streams else json.dumps(answer).encode()


def _gemini(part: dict) -> str:
    if "functionResponse" in part:
        return json.dumps(part["functionResponse"].get("response"), ensure_ascii=False)
    return part.get("text", "")


def of(path: str) -> type[Completions] | type[Responses] | type[Messages] | type[Gemini] | None:
    """The interface that a path belongs to."""
    for end, dialect in [
        ("/chat/completions", Completions),
        ("/responses", Responses),
        ("/messages", Messages),
        ("enerateContent", Gemini),
    ]:
        if path.partition("?")[0].endswith(end):
            return dialect
    return None
