"""The providers' own SDKs in Python, in front of a mock that plays scripts.

Each of the three wires is asked whole and as a stream, for words, for a call, for
calls side by side, for the turn after their results, past outages that the SDK
itself must ride out, and for a model that isn't there. What counts is what the
SDK made of it.

Usage: sdks.py URL
The mock must play the scripts `words`, `call`, `calls`, `busy` (429 twice) and
`full` (529 twice).
"""

import json
import sys

import anthropic
import openai

INPUT = "the garden"
WORDS = "You said: the garden."
CALLS = [("look", {"where": "the garden"}), ("measure", {"of": ["bed", "Beet ü"], "deep": 2.5})]
RESULTS = ["a spade", "12 m²"]
LAST = "Then: 12 m²"
USED = {"in": 100, "cached": 30, "written": 5, "out": 20, "thought": 7}
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": True}


class Messages:
    """Anthropic Messages."""

    missing, busy, failed = anthropic.NotFoundError, anthropic.RateLimitError, anthropic.InternalServerError
    tools = [{"name": name, "description": "A tool.", "input_schema": SCHEMA} for name, _ in CALLS]

    def __init__(self, url, retries=3):
        self.client = anthropic.Anthropic(base_url=url, api_key="any", max_retries=retries)

    def begin(self):
        return [{"role": "user", "content": INPUT}]

    def ask(self, model, talk, stream):
        asked = {"model": model, "max_tokens": 500, "messages": talk, "tools": self.tools}
        if not stream:
            return self.client.messages.create(**asked)
        with self.client.messages.stream(**asked) as told:
            text = "".join(told.text_stream)
            message = told.get_final_message()
        assert text == "".join(block.text for block in message.content if block.type == "text")
        return message

    def words(self, said):
        return "".join(block.text for block in said.content if block.type == "text")

    def calls(self, said):
        return [(b.id, b.name, b.input) for b in said.content if b.type == "tool_use"]

    def ends(self, said, calls):
        assert said.role == "assistant" and said.type == "message", said
        assert said.stop_reason == ("tool_use" if calls else "end_turn"), said

    def used(self, said):
        usage = said.usage
        assert usage.input_tokens == USED["in"], usage
        assert usage.cache_read_input_tokens == USED["cached"], usage
        assert usage.cache_creation_input_tokens == USED["written"], usage
        assert usage.output_tokens == USED["out"], usage

    def go_on(self, talk, said, results):
        answers = [
            {"type": "tool_result", "tool_use_id": call, "content": result}
            for (call, _, _), result in zip(self.calls(said), results, strict=True)
        ]
        talk += [{"role": "assistant", "content": said.content}, {"role": "user", "content": answers}]


class Responses:
    """OpenAI Responses."""

    missing, busy, failed = openai.NotFoundError, openai.RateLimitError, openai.InternalServerError
    tools = [
        {"type": "function", "name": name, "description": "A tool.", "parameters": SCHEMA, "strict": False}
        for name, _ in CALLS
    ]

    def __init__(self, url, retries=3):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=retries)

    def begin(self):
        return [{"role": "user", "content": INPUT}]

    def ask(self, model, talk, stream):
        asked = {"model": model, "input": talk, "tools": self.tools, "instructions": "Be brief."}
        if not stream:
            return self.client.responses.create(**asked)
        with self.client.responses.stream(**asked) as told:
            text = "".join(event.delta for event in told if event.type == "response.output_text.delta")
            said = told.get_final_response()
        assert text == said.output_text, (text, said)
        return said

    def words(self, said):
        return said.output_text

    def calls(self, said):
        items = [item for item in said.output if item.type == "function_call"]
        return [(item.call_id, item.name, json.loads(item.arguments)) for item in items]

    def ends(self, said, calls):
        assert said.status == "completed" and said.error is None, said
        assert said.instructions == "Be brief.", said
        assert all(item.status == "completed" for item in said.output), said

    def used(self, said):
        usage, whole = said.usage, USED["in"] + USED["cached"] + USED["written"]
        assert usage.input_tokens == whole, usage
        assert usage.input_tokens_details.cached_tokens == USED["cached"], usage
        assert usage.output_tokens == USED["out"], usage
        assert usage.output_tokens_details.reasoning_tokens == USED["thought"], usage
        assert usage.total_tokens == whole + USED["out"], usage

    def go_on(self, talk, said, results):
        # A parsed item has fields that the API does not take back.
        talk += [item.to_dict(exclude_unset=True) for item in said.output]
        for item in talk:
            item.pop("parsed_arguments", None)
        talk += [
            {"type": "function_call_output", "call_id": call, "output": result}
            for (call, _, _), result in zip(self.calls(said), results, strict=True)
        ]


class Chat:
    """OpenAI Chat Completions."""

    missing, busy, failed = openai.NotFoundError, openai.RateLimitError, openai.InternalServerError
    tools = [
        {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": SCHEMA}}
        for name, _ in CALLS
    ]

    def __init__(self, url, retries=3):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=retries)

    def begin(self):
        return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": INPUT}]

    def ask(self, model, talk, stream):
        asked = {"model": model, "messages": talk, "tools": self.tools}
        if not stream:
            return self.client.chat.completions.create(**asked)
        asked["stream_options"] = {"include_usage": True}
        with self.client.chat.completions.stream(**asked) as told:
            text = "".join(event.delta for event in told if event.type == "content.delta")
            said = told.get_final_completion()
        assert text == (said.choices[0].message.content or ""), (text, said)
        return said

    def words(self, said):
        return said.choices[0].message.content or ""

    def calls(self, said):
        calls = said.choices[0].message.tool_calls or []
        return [(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls]

    def ends(self, said, calls):
        assert len(said.choices) == 1, said
        assert said.choices[0].finish_reason == ("tool_calls" if calls else "stop"), said

    def used(self, said):
        usage, whole = said.usage, USED["in"] + USED["cached"] + USED["written"]
        assert usage.prompt_tokens == whole, usage
        assert usage.prompt_tokens_details.cached_tokens == USED["cached"], usage
        assert usage.completion_tokens == USED["out"], usage
        assert usage.completion_tokens_details.reasoning_tokens == USED["thought"], usage
        assert usage.total_tokens == whole + USED["out"], usage

    def go_on(self, talk, said, results):
        calls = self.calls(said)
        talk.append({
            "role": "assistant",
            "content": said.choices[0].message.content,
            "tool_calls": [
                {"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                for call, name, given in calls
            ],
        })
        talk += [
            {"role": "tool", "tool_call_id": call, "content": result}
            for (call, _, _), result in zip(calls, results, strict=True)
        ]


def refused(kind, status, question):
    """The error that a question meets, which must be of this kind."""
    try:
        question()
    except kind as error:
        assert error.status_code == status and error.request_id, error
        return error
    raise AssertionError(f"{kind.__name__} did not come")


def play(wire, hasty, stream):
    """Asks for everything over one wire; `hasty` is the same wire, and never tries again."""
    said = wire.ask("words", wire.begin(), stream)
    assert wire.words(said) == WORDS, said
    assert said.model == "words", said
    wire.ends(said, [])
    wire.used(said)

    talk = wire.begin()
    said = wire.ask("scripted/call", talk, stream)
    assert [(name, given) for _, name, given in wire.calls(said)] == CALLS[:1], said
    wire.ends(said, CALLS[:1])
    wire.go_on(talk, said, RESULTS[:1])
    assert wire.words(wire.ask("scripted/call", talk, stream)) == "Then: a spade"

    talk = wire.begin()
    said = wire.ask("calls", talk, stream)
    assert wire.words(said) == "Two things.", said
    calls = wire.calls(said)
    assert [(name, given) for _, name, given in calls] == CALLS, said
    assert len({call for call, _, _ in calls}) == 2, said
    wire.ends(said, CALLS)
    wire.go_on(talk, said, RESULTS)
    said = wire.ask("calls", talk, stream)
    assert wire.words(said) == LAST, said
    wire.ends(said, [])
    wire.used(said)

    for model, kind, status in [("busy", wire.busy, 429), ("full", wire.failed, 529)]:
        refused(kind, status, lambda: hasty.ask(model, hasty.begin(), stream))
        assert wire.words(wire.ask(model, wire.begin(), stream)) == "At last.", model

    missing = refused(wire.missing, 404, lambda: wire.ask("nobody", wire.begin(), stream))
    assert "calls" in str(missing) and "nobody" in str(missing), missing
    return 10


def main():
    url = sys.argv[1]
    asked = 0
    for wire in [Messages, Responses, Chat]:
        spoken, hasty = wire(url), wire(url, retries=0)
        names = {model.id for model in spoken.client.models.list()}
        assert {"words", "call", "calls", "busy", "full"} <= names, names
        for stream in [False, True]:
            asked += play(spoken, hasty, stream)
    print(f"{asked} questions over 3 wires, by anthropic {anthropic.__version__} and openai {openai.__version__}")


if __name__ == "__main__":
    main()
