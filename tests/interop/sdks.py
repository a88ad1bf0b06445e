"""The providers' own SDKs in Python against the mock model.

Each of the three APIs is called with and without streaming: for text, for one call,
for parallel calls, for the turn after their results, with errors that the SDK must
retry, and for a model that doesn't exist. The SDK's view of the replies is checked.

Usage: sdks.py URL
The mock must play the scripts `text`, `call`, `calls`, `busy` (429 twice) and
`full` (529 twice).
"""

import json
import sys

import anthropic
import openai

INPUT = "the garden"
TEXT = "You said: the garden."
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

    def first_messages(self):
        return [{"role": "user", "content": INPUT}]

    def ask(self, model, conversation, stream):
        request = {"model": model, "max_tokens": 500, "messages": conversation, "tools": self.tools}
        if not stream:
            return self.client.messages.create(**request)
        with self.client.messages.stream(**request) as events:
            text = "".join(events.text_stream)
            message = events.get_final_message()
        assert text == "".join(block.text for block in message.content if block.type == "text")
        return message

    def text_of(self, reply):
        return "".join(block.text for block in reply.content if block.type == "text")

    def calls(self, reply):
        return [(b.id, b.name, b.input) for b in reply.content if b.type == "tool_use"]

    def check_stop(self, reply, calls):
        assert reply.role == "assistant" and reply.type == "message", reply
        assert reply.stop_reason == ("tool_use" if calls else "end_turn"), reply

    def check_usage(self, reply):
        usage = reply.usage
        assert usage.input_tokens == USED["in"], usage
        assert usage.cache_read_input_tokens == USED["cached"], usage
        assert usage.cache_creation_input_tokens == USED["written"], usage
        assert usage.output_tokens == USED["out"], usage

    def add_results(self, conversation, reply, results):
        answers = [
            {"type": "tool_result", "tool_use_id": call, "content": result}
            for (call, _, _), result in zip(self.calls(reply), results, strict=True)
        ]
        conversation += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": answers}]


class Responses:
    """OpenAI Responses."""

    missing, busy, failed = openai.NotFoundError, openai.RateLimitError, openai.InternalServerError
    tools = [
        {"type": "function", "name": name, "description": "A tool.", "parameters": SCHEMA, "strict": False}
        for name, _ in CALLS
    ]

    def __init__(self, url, retries=3):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=retries)

    def first_messages(self):
        return [{"role": "user", "content": INPUT}]

    def ask(self, model, conversation, stream):
        request = {"model": model, "input": conversation, "tools": self.tools, "instructions": "Be brief."}
        if not stream:
            return self.client.responses.create(**request)
        with self.client.responses.stream(**request) as events:
            text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
            reply = events.get_final_response()
        assert text == reply.output_text, (text, reply)
        return reply

    def text_of(self, reply):
        return reply.output_text

    def calls(self, reply):
        items = [item for item in reply.output if item.type == "function_call"]
        return [(item.call_id, item.name, json.loads(item.arguments)) for item in items]

    def check_stop(self, reply, calls):
        assert reply.status == "completed" and reply.error is None, reply
        assert reply.instructions == "Be brief.", reply
        assert all(item.status == "completed" for item in reply.output), reply

    def check_usage(self, reply):
        usage, input_tokens = reply.usage, USED["in"] + USED["cached"] + USED["written"]
        assert usage.input_tokens == input_tokens, usage
        assert usage.input_tokens_details.cached_tokens == USED["cached"], usage
        assert usage.output_tokens == USED["out"], usage
        assert usage.output_tokens_details.reasoning_tokens == USED["thought"], usage
        assert usage.total_tokens == input_tokens + USED["out"], usage

    def add_results(self, conversation, reply, results):
        # A parsed item has fields that the API does not take back.
        conversation += [item.to_dict(exclude_unset=True) for item in reply.output]
        for item in conversation:
            item.pop("parsed_arguments", None)
        conversation += [
            {"type": "function_call_output", "call_id": call, "output": result}
            for (call, _, _), result in zip(self.calls(reply), results, strict=True)
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

    def first_messages(self):
        return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": INPUT}]

    def ask(self, model, conversation, stream):
        request = {"model": model, "messages": conversation, "tools": self.tools}
        if not stream:
            return self.client.chat.completions.create(**request)
        request["stream_options"] = {"include_usage": True}
        with self.client.chat.completions.stream(**request) as events:
            text = "".join(event.delta for event in events if event.type == "content.delta")
            reply = events.get_final_completion()
        assert text == (reply.choices[0].message.content or ""), (text, reply)
        return reply

    def text_of(self, reply):
        return reply.choices[0].message.content or ""

    def calls(self, reply):
        calls = reply.choices[0].message.tool_calls or []
        return [(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls]

    def check_stop(self, reply, calls):
        assert len(reply.choices) == 1, reply
        assert reply.choices[0].finish_reason == ("tool_calls" if calls else "stop"), reply

    def check_usage(self, reply):
        usage, input_tokens = reply.usage, USED["in"] + USED["cached"] + USED["written"]
        assert usage.prompt_tokens == input_tokens, usage
        assert usage.prompt_tokens_details.cached_tokens == USED["cached"], usage
        assert usage.completion_tokens == USED["out"], usage
        assert usage.completion_tokens_details.reasoning_tokens == USED["thought"], usage
        assert usage.total_tokens == input_tokens + USED["out"], usage

    def add_results(self, conversation, reply, results):
        calls = self.calls(reply)
        conversation.append({
            "role": "assistant",
            "content": reply.choices[0].message.content,
            "tool_calls": [
                {"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                for call, name, given in calls
            ],
        })
        conversation += [
            {"role": "tool", "tool_call_id": call, "content": result}
            for (call, _, _), result in zip(calls, results, strict=True)
        ]


def expect_error(kind, status, request):
    """Makes a request that must fail with this kind of error, and returns the error."""
    try:
        request()
    except kind as error:
        assert error.status_code == status and error.request_id, error
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def play(api, no_retry, stream):
    """Makes all requests over one API; `no_retry` is a client that never retries."""
    reply = api.ask("text", api.first_messages(), stream)
    assert api.text_of(reply) == TEXT, reply
    assert reply.model == "text", reply
    api.check_stop(reply, [])
    api.check_usage(reply)

    conversation = api.first_messages()
    reply = api.ask("scripted/call", conversation, stream)
    assert [(name, given) for _, name, given in api.calls(reply)] == CALLS[:1], reply
    api.check_stop(reply, CALLS[:1])
    api.add_results(conversation, reply, RESULTS[:1])
    assert api.text_of(api.ask("scripted/call", conversation, stream)) == "Then: a spade"

    conversation = api.first_messages()
    reply = api.ask("calls", conversation, stream)
    assert api.text_of(reply) == "Two things.", reply
    calls = api.calls(reply)
    assert [(name, given) for _, name, given in calls] == CALLS, reply
    assert len({call for call, _, _ in calls}) == 2, reply
    api.check_stop(reply, CALLS)
    api.add_results(conversation, reply, RESULTS)
    reply = api.ask("calls", conversation, stream)
    assert api.text_of(reply) == LAST, reply
    api.check_stop(reply, [])
    api.check_usage(reply)

    for model, kind, status in [("busy", api.busy, 429), ("full", api.failed, 529)]:
        expect_error(kind, status, lambda: no_retry.ask(model, no_retry.first_messages(), stream))
        assert api.text_of(api.ask(model, api.first_messages(), stream)) == "At last.", model

    missing = expect_error(api.missing, 404, lambda: api.ask("nobody", api.first_messages(), stream))
    assert "calls" in str(missing) and "nobody" in str(missing), missing
    return 10


def main():
    url = sys.argv[1]
    requests = 0
    for api in [Messages, Responses, Chat]:
        client, no_retry = api(url), api(url, retries=0)
        names = {model.id for model in client.client.models.list()}
        assert {"text", "call", "calls", "busy", "full"} <= names, names
        for stream in [False, True]:
            requests += play(client, no_retry, stream)
    print(f"{requests} requests over 3 APIs, by anthropic {anthropic.__version__} and openai {openai.__version__}")


if __name__ == "__main__":
    main()
