"""Questions of a handler to the client that makes the call: forms, addresses to visit, messages of its model, its
roots; and resources that it reads from the server.

The handler waits where it asks. Nothing of it is run again when the answers come.
"""

import asyncio
import concurrent.futures
import dataclasses
import enum
import json
import threading
import typing

from . import constraints, convert, hints, judge, protocol, schema

__all__ = [
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "CancelledElicitation",
    "CannotAsk",
    "DeclinedElicitation",
    "Root",
]

# A client that has not answered within an hour does not come back.
MAX_WAIT = 60 * 60


class CannotAsk(Exception):
    """The client cannot be asked this: it has not declared that it answers such questions.

    A handler that can do without the answer catches it. Otherwise the call ends with the protocol's error for
    a missing capability.
    """


_T = typing.TypeVar("_T")


@dataclasses.dataclass
class AcceptedElicitation(typing.Generic[_T]):
    """The user has filled in the form."""

    data: _T
    action: typing.Literal["accept"] = "accept"


@dataclasses.dataclass
class AcceptedUrlElicitation:
    """The user has agreed to visit the address. What comes of it, the client does not know."""

    action: typing.Literal["accept"] = "accept"


@dataclasses.dataclass
class DeclinedElicitation:
    """The user has refused."""

    action: typing.Literal["decline"] = "decline"


@dataclasses.dataclass
class CancelledElicitation:
    """The user has closed the form without an answer."""

    action: typing.Literal["cancel"] = "cancel"


# What comes of a question.
Elicited = typing.Union[AcceptedElicitation[_T], DeclinedElicitation, CancelledElicitation]
UrlElicited = typing.Union[AcceptedUrlElicitation, DeclinedElicitation, CancelledElicitation]


@dataclasses.dataclass
class Root:
    """A root of the client."""

    uri: str
    name: typing.Optional[str] = None


@dataclasses.dataclass
class SamplingResult:
    """What the client's model has written."""

    text: typing.Optional[str]
    content: typing.Any
    model: str
    role: str = "assistant"
    stop_reason: typing.Optional[str] = None

    @property
    def result(self) -> typing.Optional[str]:
        """The text."""
        return self.text


@dataclasses.dataclass
class ResourceContent:
    """One part of a resource."""

    content: typing.Union[str, bytes]
    mime_type: typing.Optional[str] = None
    uri: typing.Optional[str] = None


class ResourceContents(typing.List[ResourceContent]):
    """The parts of a resource."""

    @property
    def contents(self) -> typing.List[ResourceContent]:
        """The parts."""
        return list(self)


class Questions:
    """What the handler of one call has asked and not yet heard. Callable from any thread."""

    def __init__(self, call):
        self._call = call
        self._lock = threading.Lock()
        self._asked = {}  # futures by key
        self._unsent = {}
        self._open = set()  # the keys of questions that the client has been given
        self._count = 0

    async def ask(self, kind, question):
        """Ask the client, and wait for its answer."""
        answer = self._new(kind, question)
        # Questions of tasks that run beside each other are asked together.
        asyncio.get_running_loop().call_soon(self._send)
        return await self._answered(answer)

    async def read(self, uri):
        """Read a resource of the server."""
        with self._lock:
            key, answer = self._register("read")
        self._call.emit({"type": "read", "id": self._call.id, "key": key, "uri": uri})
        return await self._answered(answer)

    async def _answered(self, answer):
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), MAX_WAIT)
        except asyncio.TimeoutError:
            raise TimeoutError("there was no answer within an hour") from None

    def _register(self, kind):
        self._count += 1
        key = "%s-%d" % (kind, self._count)
        answer = self._asked[key] = concurrent.futures.Future()
        return key, answer

    def _new(self, kind, question):
        with self._lock:
            key, answer = self._register(kind)
            self._unsent[key] = question
            return answer

    def _send(self):
        with self._lock:
            if self._open or not self._unsent:
                # One set of questions at a time.
                return
            questions, self._unsent = self._unsent, {}
            self._open.update(questions)
        try:
            self._call.emit({"type": "ask", "id": self._call.id, "questions": questions})
        except BaseException as error:
            # Whoever waits for what could not be asked must hear of it.
            self._fail(questions, error)

    def take(self, frame):
        """Take the answers of a frame."""
        with self._lock:
            keys = [*frame["responses"], *frame["errors"]]
            answers = [(key, self._asked.pop(key, None)) for key in keys]
            self._open.difference_update(keys)
        for key, answer in answers:
            if answer is None or not answer.set_running_or_notify_cancel():
                continue
            if key in frame["responses"]:
                answer.set_result(frame["responses"][key])
            else:
                kind = LookupError if key.startswith("read") else CannotAsk
                answer.set_exception(kind(frame["errors"][key]))
        self._send()

    def _fail(self, keys, error):
        with self._lock:
            answers = [self._asked.pop(key, None) for key in keys]
            self._open.difference_update(keys)
        for answer in answers:
            if answer is not None and answer.set_running_or_notify_cancel():
                answer.set_exception(error)
        self._send()

    def give_up(self):
        """Wake up whoever waits: there will be no answers."""
        with self._lock:
            asked, self._asked = self._asked, {}
        for answer in asked.values():
            answer.cancel()


# Forms


def form(response_type):
    """The schema of a form, and what makes an answer of its content, which a client may have filled with anything."""
    if response_type is None:
        return {"type": "object", "properties": {}}, lambda content: content
    if isinstance(response_type, (list, dict)):
        return _choice(response_type)
    is_record = isinstance(response_type, type) and (
        hints.is_record(response_type)
        or hints.is_typed_dict(response_type)
        or hints.is_pydantic(response_type)
        or hints.is_old_pydantic(response_type)
    )
    generator = schema.Generator()
    made = generator.schema(response_type)
    definitions = {**generator.definitions, **made.pop("$defs", {})}
    read = convert.converter(response_type)
    if is_record:
        whole = made = _resolved(made, definitions)
        properties = {name: _field(name, one, definitions) for name, one in made.get("properties", {}).items()}
        wanted = {"type": "object", "properties": properties}
        if made.get("required"):
            wanted["required"] = list(made["required"])

        def of_record(content):
            content = _judged(whole, definitions, _chosen(whole, definitions, content))
            return content if read is None else read(content, "")

        return wanted, of_record
    whole = {"type": "object", "properties": {"value": made}, "required": ["value"]}
    value = _field("value", made, definitions)
    value.setdefault("title", "Value")
    wanted = {"type": "object", "properties": {"value": value}, "required": ["value"]}

    def of_value(content):
        value = _judged(whole, definitions, _chosen(whole, definitions, content))["value"]
        return value if read is None else read(value, "/value")

    return wanted, of_value


def _texts_of(made):
    """The values of a choice by what stands for them in a form."""
    return {one if isinstance(one, str) else json.dumps(one): one for one in made["enum"]}


def _chosen(whole, definitions, content):
    """The content of an answer with values in place of the texts that stand for them."""
    made = {}
    for name, one in content.items():
        field = _plain_choice(whole.get("properties", {}).get(name, {}), definitions)
        made[name] = _texts_of(field).get(one, one) if isinstance(one, str) and "enum" in field else one
    return made


def _plain_choice(made, definitions):
    """A field without what lets it be null."""
    made = _resolved(made, definitions)
    some = [one for one in made.get("anyOf") or made.get("oneOf") or () if one.get("type") != "null"]
    return _resolved(some[0], definitions) if len(some) == 1 else made


def _judged(whole, definitions, content):
    """The content of an answer as a handler's arguments are let through: by the schema, and without null for what may
    be left out and cannot be null.
    """
    properties, required = whole.get("properties", {}), whole.get("required", ())
    kept = {
        name: one
        for name, one in content.items()
        if one is not None or name in required or name not in properties or judge.fits(properties[name], definitions, None)
    }
    judge.check(whole, definitions, kept, "")
    return kept


def _choice(options):
    """A form of one choice: `["a", "b"]`, `{"a": {"title": "A"}}`, and within a list, of several."""
    is_multiple = isinstance(options, list) and len(options) == 1 and isinstance(options[0], (list, dict))
    offered = options[0] if is_multiple else options
    if not offered:
        raise ValueError("a form of no choices: there is nothing that the user could answer")
    if isinstance(offered, dict):
        titled = [{"const": name, "title": str((about or {}).get("title", name))} for name, about in offered.items()]
        value = {"anyOf": titled} if is_multiple else {"type": "string", "oneOf": titled}
    else:
        value = {"type": "string", "enum": [str(name) for name in offered]}
    if is_multiple:
        value = {"type": "array", "items": value}
    wanted = {"type": "object", "properties": {"value": {**value, "title": "Value"}}, "required": ["value"]}
    return wanted, lambda content: _judged(wanted, {}, content)["value"]


def _resolved(made, definitions):
    seen = 0
    while "$ref" in made and seen < 32:
        name = made["$ref"].rpartition("/")[2]
        made = {**definitions.get(name, {}), **{key: one for key, one in made.items() if key != "$ref"}}
        seen += 1
    return made


def _field(name, made, definitions):
    """One field of a form, which clients take if it is a text, a number, a choice or a tick."""
    made = _resolved(made, definitions)
    branches = made.get("anyOf") or made.get("oneOf")
    if branches:
        some = [one for one in branches if one.get("type") != "null"]
        if len(some) == 1:
            made = {**{key: one for key, one in made.items() if key not in ("anyOf", "oneOf")}, **some[0]}
            made = _resolved(made, definitions)
            if made.get("default", 0) is None:
                del made["default"]
    if "const" in made:
        made = {**made, "enum": [made.pop("const")]}
    if "enum" in made and "type" not in made:
        made = {"type": "string", **made}
    if not all(isinstance(one, str) for one in made.get("enum", ())):
        # Choices are texts, whatever they stand for.
        made = {**made, "type": "string", "enum": list(_texts_of(made))}
        if "default" in made:
            made["default"] = json.dumps(made["default"])
    kind = made.get("type")
    items = _resolved(made.get("items", {}), definitions) if kind == "array" else {}
    if kind not in ("string", "number", "integer", "boolean") and not ("enum" in items or "anyOf" in items):
        raise TypeError(
            "the field %r cannot be asked for in a form: a field is a str, an int, a float, a bool, a Literal or an "
            "Enum of texts, or a list of one of these two" % name
        )
    if kind == "array":
        made = {**made, "items": {"type": "string", **items}}
    return made


def elicited(answer, read):
    """What the user has answered to a form, or to an address where `read` is None."""
    action = answer.get("action") if isinstance(answer, dict) else None
    if action == "accept":
        if read is None:
            return AcceptedUrlElicitation()
        content = answer.get("content")
        try:
            return AcceptedElicitation(data=read(content if isinstance(content, dict) else {}))
        except constraints.InvalidArgument as error:
            raise ValueError("the client has answered what was not asked for: %s" % error) from None
    if action == "decline":
        return DeclinedElicitation()
    if action == "cancel":
        return CancelledElicitation()
    raise ValueError("the client has answered a question with something else than an answer")


# Messages of the client's model


def sampling(messages, system_prompt, include_context, temperature, max_tokens, model_preferences, tools, tool_choice):
    """The parameters of a request for a message."""
    if isinstance(messages, str) or not isinstance(messages, (list, tuple)):
        messages = [messages]
    params = {"messages": [_message(one) for one in messages], "maxTokens": max_tokens}
    if system_prompt is not None:
        params["systemPrompt"] = str(system_prompt)
    if include_context is not None:
        params["includeContext"] = include_context
    if temperature is not None:
        params["temperature"] = temperature
    if model_preferences is not None:
        params["modelPreferences"] = _preferences(model_preferences)
    if tools is not None:
        params["tools"] = protocol.to_plain(tools)
    if tool_choice is not None:
        params["toolChoice"] = protocol.to_plain(tool_choice)
    return params


def _message(message):
    from . import content

    if isinstance(message, str):
        return {"role": "user", "content": {"type": "text", "text": message}}
    plain = message if isinstance(message, dict) else None
    if plain is None and callable(getattr(message, "model_dump", None)):
        plain = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(plain, dict) and "role" in plain:
        said = plain.get("content")
        return {"role": plain["role"], "content": _message(said)["content"] if isinstance(said, str) else said}
    role, said = getattr(message, "role", None), getattr(message, "content", None)
    if role is not None:
        return {"role": role, "content": _message(said)["content"]}
    block = content.block(message)
    if block is None:
        raise TypeError("a message for the client's model is a text, a Message or a block of content: %r" % (message,))
    return {"role": "user", "content": block}


def _preferences(preferences):
    if isinstance(preferences, str):
        preferences = [preferences]
    if isinstance(preferences, (list, tuple)):
        return {"hints": [{"name": str(name)} for name in preferences]}
    if callable(getattr(preferences, "model_dump", None)):
        return preferences.model_dump(mode="json", by_alias=True, exclude_none=True)
    return protocol.to_plain(preferences)


def sampled(answer):
    """The message that the client's model has written."""
    if not isinstance(answer, dict) or "content" not in answer:
        raise ValueError("the client has answered with something else than a message")
    said = answer["content"]
    blocks = said if isinstance(said, list) else [said]
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return SamplingResult(
        text="".join(texts) if texts else None,
        content=said,
        model=str(answer.get("model", "")),
        role=str(answer.get("role", "assistant")),
        stop_reason=answer.get("stopReason"),
    )


def roots(answer):
    """The roots that the client has named."""
    if not isinstance(answer, dict) or not isinstance(answer.get("roots"), list):
        raise ValueError("the client has answered with something else than its roots")
    return [Root(str(one.get("uri")), one.get("name")) for one in answer["roots"] if isinstance(one, dict)]


def resource(answer):
    """The parts of a resource of the server."""
    import base64

    parts = ResourceContents()
    for one in answer["contents"]:
        said = one["text"] if one.get("text") is not None else base64.b64decode(one.get("blob") or "")
        parts.append(ResourceContent(said, one.get("mimeType"), one.get("uri")))
    return parts
