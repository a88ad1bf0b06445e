"""The Python SDKs of Anthropic and OpenAI against the mock model.

Each of the three APIs is called with and without streaming: for text, for one tool call, for
parallel tool calls, for the turn after their results, with errors that the SDK must retry, and for
a model that doesn't exist. The replies are checked as the SDK returns them.

Usage: sdks.py URL
The mock must have the scripts `text`, `call`, `calls`, `rate_limited` (429 twice) and `overloaded`
(529 twice).
"""

import json
import sys

import anthropic
import openai

INPUT = "the garden"
TEXT = "You said: the garden."
# Names and inputs of the tool calls in the script `calls`.
CALLS = [
    ("search", {"place": "the garden"}),
    ("measure", {"objects": ["bed", "Beet ü"], "depth": 2.5}),
]
RESULTS = ["a spade", "12 m²"]
TEXT_AFTER_RESULTS = "Then: 12 m²"
# Token usage of the replies with a `usage` in their script.
USAGE = {"input": 100, "cache_read": 30, "cache_write": 5, "output": 20, "reasoning": 7}
TOTAL_INPUT_TOKENS = USAGE["input"] + USAGE["cache_read"] + USAGE["cache_write"]
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": True}


class Messages:
    """Anthropic Messages."""

    not_found_error = anthropic.NotFoundError
    rate_limit_error = anthropic.RateLimitError
    server_error = anthropic.InternalServerError
    tools = [{"name": name, "description": "A tool.", "input_schema": SCHEMA} for name, _ in CALLS]

    def __init__(self, url, retries=3):
        self.client = anthropic.Anthropic(base_url=url, api_key="any", max_retries=retries)

    def first_messages(self):
        return [{"role": "user", "content": INPUT}]

    def generate(self, model, conversation, stream):
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

    def tool_calls(self, reply):
        """Returns id, name and input of each tool call."""
        blocks = [block for block in reply.content if block.type == "tool_use"]
        return [(block.id, block.name, block.input) for block in blocks]

    def check_stop(self, reply, calls):
        assert reply.role == "assistant" and reply.type == "message", reply
        assert reply.stop_reason == ("tool_use" if calls else "end_turn"), reply

    def check_usage(self, reply):
        usage = reply.usage
        assert usage.input_tokens == USAGE["input"], usage
        assert usage.cache_read_input_tokens == USAGE["cache_read"], usage
        assert usage.cache_creation_input_tokens == USAGE["cache_write"], usage
        assert usage.output_tokens == USAGE["output"], usage

    def add_results(self, conversation, reply, results):
        content = [
            {"type": "tool_result", "tool_use_id": call_id, "content": result}
            for (call_id, _, _), result in zip(self.tool_calls(reply), results, strict=True)
        ]
        conversation.append({"role": "assistant", "content": reply.content})
        conversation.append({"role": "user", "content": content})


class Responses:
    """OpenAI Responses."""

    not_found_error = openai.NotFoundError
    rate_limit_error = openai.RateLimitError
    server_error = openai.InternalServerError
    tools = [
        {
            "type": "function",
            "name": name,
            "description": "A tool.",
            "parameters": SCHEMA,
            "strict": False,
        }
        for name, _ in CALLS
    ]

    def __init__(self, url, retries=3):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=retries)

    def first_messages(self):
        return [{"role": "user", "content": INPUT}]

    def generate(self, model, conversation, stream):
        request = {"model": model, "input": conversation, "tools": self.tools}
        request["instructions"] = "Be brief."
        if not stream:
            return self.client.responses.create(**request)
        with self.client.responses.stream(**request) as events:
            deltas = [event for event in events if event.type == "response.output_text.delta"]
            text = "".join(event.delta for event in deltas)
            reply = events.get_final_response()
        assert text == reply.output_text, (text, reply)
        return reply

    def text_of(self, reply):
        return reply.output_text

    def tool_calls(self, reply):
        """Returns id, name and input of each tool call."""
        items = [item for item in reply.output if item.type == "function_call"]
        return [(item.call_id, item.name, json.loads(item.arguments)) for item in items]

    def check_stop(self, reply, calls):
        assert reply.status == "completed" and reply.error is None, reply
        assert reply.instructions == "Be brief.", reply
        assert all(item.status == "completed" for item in reply.output), reply

    def check_usage(self, reply):
        usage = reply.usage
        assert usage.input_tokens == TOTAL_INPUT_TOKENS, usage
        assert usage.input_tokens_details.cached_tokens == USAGE["cache_read"], usage
        assert usage.output_tokens == USAGE["output"], usage
        assert usage.output_tokens_details.reasoning_tokens == USAGE["reasoning"], usage
        assert usage.total_tokens == TOTAL_INPUT_TOKENS + USAGE["output"], usage

    def add_results(self, conversation, reply, results):
        # The SDK adds fields to its items that the API does not accept in a request.
        conversation += [item.to_dict(exclude_unset=True) for item in reply.output]
        for item in conversation:
            item.pop("parsed_arguments", None)
        conversation += [
            {"type": "function_call_output", "call_id": call_id, "output": result}
            for (call_id, _, _), result in zip(self.tool_calls(reply), results, strict=True)
        ]


class Chat:
    """OpenAI Chat Completions."""

    not_found_error = openai.NotFoundError
    rate_limit_error = openai.RateLimitError
    server_error = openai.InternalServerError
    tools = [
        {
            "type": "function",
            "function": {"name": name, "description": "A tool.", "parameters": SCHEMA},
        }
        for name, _ in CALLS
    ]

    def __init__(self, url, retries=3):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=retries)

    def first_messages(self):
        return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": INPUT}]

    def generate(self, model, conversation, stream):
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

    def tool_calls(self, reply):
        """Returns id, name and input of each tool call."""
        calls = reply.choices[0].message.tool_calls or []
        functions = [(call.id, call.function) for call in calls]
        return [(id, function.name, json.loads(function.arguments)) for id, function in functions]

    def check_stop(self, reply, calls):
        assert len(reply.choices) == 1, reply
        assert reply.choices[0].finish_reason == ("tool_calls" if calls else "stop"), reply

    def check_usage(self, reply):
        usage = reply.usage
        assert usage.prompt_tokens == TOTAL_INPUT_TOKENS, usage
        assert usage.prompt_tokens_details.cached_tokens == USAGE["cache_read"], usage
        assert usage.completion_tokens == USAGE["output"], usage
        assert usage.completion_tokens_details.reasoning_tokens == USAGE["reasoning"], usage
        assert usage.total_tokens == TOTAL_INPUT_TOKENS + USAGE["output"], usage

    def add_results(self, conversation, reply, results):
        calls = self.tool_calls(reply)
        conversation.append({
            "role": "assistant",
            "content": reply.choices[0].message.content,
            "tool_calls": [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(tool_input)},
                }
                for call_id, name, tool_input in calls
            ],
        })
        conversation += [
            {"role": "tool", "tool_call_id": call_id, "content": result}
            for (call_id, _, _), result in zip(calls, results, strict=True)
        ]


def expect_error(error_type, status, request):
    """Makes a request that must fail with this type of error, and returns the error."""
    try:
        request()
    except error_type as error:
        assert error.status_code == status and error.request_id, error
        return error
    raise AssertionError(f"{error_type.__name__} was not raised")


def check_api(api, no_retry, stream):
    """Makes all requests over one API and returns their number. `no_retry` is a client that never
    retries."""
    reply = api.generate("text", api.first_messages(), stream)
    assert api.text_of(reply) == TEXT, reply
    assert reply.model == "text", reply
    api.check_stop(reply, [])
    api.check_usage(reply)

    conversation = api.first_messages()
    reply = api.generate("scripted/call", conversation, stream)
    assert [(name, tool_input) for _, name, tool_input in api.tool_calls(reply)] == CALLS[:1], reply
    api.check_stop(reply, CALLS[:1])
    api.add_results(conversation, reply, RESULTS[:1])
    assert api.text_of(api.generate("scripted/call", conversation, stream)) == "Then: a spade"

    conversation = api.first_messages()
    reply = api.generate("calls", conversation, stream)
    assert api.text_of(reply) == "Two things.", reply
    calls = api.tool_calls(reply)
    assert [(name, tool_input) for _, name, tool_input in calls] == CALLS, reply
    assert len({call_id for call_id, _, _ in calls}) == 2, reply
    api.check_stop(reply, CALLS)
    api.add_results(conversation, reply, RESULTS)
    reply = api.generate("calls", conversation, stream)
    assert api.text_of(reply) == TEXT_AFTER_RESULTS, reply
    api.check_stop(reply, [])
    api.check_usage(reply)

    for model, error_type, status in [
        ("rate_limited", api.rate_limit_error, 429),
        ("overloaded", api.server_error, 529),
    ]:
        messages = api.first_messages()
        expect_error(error_type, status, lambda: no_retry.generate(model, messages, stream))
        reply = api.generate(model, api.first_messages(), stream)
        assert api.text_of(reply) == "At last.", model

    messages = api.first_messages()
    error = expect_error(
        api.not_found_error, 404, lambda: api.generate("no_such_model", messages, stream)
    )
    assert "calls" in str(error) and "no_such_model" in str(error), error
    return 10


def main():
    url = sys.argv[1]
    requests = 0
    for api_class in [Messages, Responses, Chat]:
        api, no_retry = api_class(url), api_class(url, retries=0)
        names = {model.id for model in api.client.models.list()}
        assert {"text", "call", "calls", "rate_limited", "overloaded"} <= names, names
        for stream in [False, True]:
            requests += check_api(api, no_retry, stream)
    versions = f"anthropic {anthropic.__version__} and openai {openai.__version__}"
    print(f"{requests} requests over 3 APIs, by {versions}")


if __name__ == "__main__":
    main()
