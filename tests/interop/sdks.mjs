// The Node SDKs of Anthropic and OpenAI against the mock model.
//
// The requests are those of sdks.py: three APIs, with and without streaming, text, one tool call,
// parallel tool calls, the turn after their results, errors that the SDK must retry, and a model
// that doesn't exist.
//
// Usage: node sdks.mjs URL   (the folder of the installed packages in LONGHAUL_INTEROP_DIR)

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.LONGHAUL_INTEROP_DIR, "package.json"));
const { Anthropic } = require("@anthropic-ai/sdk");
const { OpenAI } = require("openai");

const url = process.argv[2];
const input = "the garden";
// Names and inputs of the tool calls in the script `calls`.
const expectedCalls = [
  ["search", { place: "the garden" }],
  ["measure", { objects: ["bed", "Beet ü"], depth: 2.5 }],
];
const toolResults = ["a spade", "12 m²"];
const totalInputTokens = 135;
const schema = { type: "object", properties: {}, additionalProperties: true };

const anthropic = new Anthropic({ baseURL: url, apiKey: "any", maxRetries: 3 });
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 3 });

// An object for each API: `toolCalls` returns id, name and input of each tool call of a reply.
const messages = {
  client: anthropic,
  firstMessages: () => [{ role: "user", content: input }],
  async generate(model, conversation, stream, options) {
    const tools = expectedCalls.map(([name]) => ({
      name,
      description: "A tool.",
      input_schema: schema,
    }));
    const request = { model, max_tokens: 500, messages: conversation, tools };
    if (!stream) return anthropic.messages.create(request, options);
    let text = "";
    const events = anthropic.messages.stream(request, options);
    events.on("text", (chunk) => (text += chunk));
    const reply = await events.finalMessage();
    assert.equal(text, this.textOf(reply));
    return reply;
  },
  textOf: (reply) => reply.content.map((block) => block.text ?? "").join(""),
  toolCalls: (reply) =>
    reply.content
      .filter(({ type }) => type === "tool_use")
      .map(({ id, name, input }) => [id, name, input]),
  checkStop: (reply, calls) =>
    assert.equal(reply.stop_reason, calls.length ? "tool_use" : "end_turn"),
  checkUsage({ usage }) {
    assert.equal(usage.input_tokens, 100);
    assert.equal(usage.cache_read_input_tokens, 30);
    assert.equal(usage.cache_creation_input_tokens, 5);
    assert.equal(usage.output_tokens, 20);
  },
  addResults(conversation, reply, results) {
    const content = this.toolCalls(reply).map(([id], index) => ({
      type: "tool_result",
      tool_use_id: id,
      content: results[index],
    }));
    conversation.push({ role: "assistant", content: reply.content }, { role: "user", content });
  },
};

const responses = {
  client: openai,
  firstMessages: () => [{ role: "user", content: input }],
  async generate(model, conversation, stream, options) {
    const tools = expectedCalls.map(([name]) => ({
      type: "function",
      name,
      parameters: schema,
      strict: false,
    }));
    const request = { model, input: conversation, tools };
    if (!stream) return openai.responses.create(request, options);
    let text = "";
    let reply;
    const sequenceNumbers = [];
    const events = await openai.responses.create({ ...request, stream: true }, options);
    for await (const event of events) {
      sequenceNumbers.push(event.sequence_number);
      if (event.type === "response.output_text.delta") text += event.delta;
      if (event.type === "response.completed") reply = event.response;
    }
    assert.deepEqual(sequenceNumbers, Array.from(sequenceNumbers, (_, index) => index));
    assert.equal(text, this.textOf(reply));
    return reply;
  },
  textOf: (reply) =>
    reply.output.flatMap(({ content }) => content ?? []).map(({ text }) => text).join(""),
  toolCalls: (reply) =>
    reply.output
      .filter(({ type }) => type === "function_call")
      .map((item) => [item.call_id, item.name, JSON.parse(item.arguments)]),
  checkStop: (reply) => assert.equal(reply.status, "completed"),
  checkUsage({ usage }) {
    assert.equal(usage.input_tokens, totalInputTokens);
    assert.equal(usage.input_tokens_details.cached_tokens, 30);
    assert.equal(usage.output_tokens, 20);
    assert.equal(usage.output_tokens_details.reasoning_tokens, 7);
    assert.equal(usage.total_tokens, totalInputTokens + 20);
  },
  addResults(conversation, reply, results) {
    conversation.push(...reply.output);
    this.toolCalls(reply).forEach(([call_id], index) =>
      conversation.push({ type: "function_call_output", call_id, output: results[index] }),
    );
  },
};

const chat = {
  client: openai,
  firstMessages: () => [
    { role: "system", content: "Be brief." },
    { role: "user", content: input },
  ],
  async generate(model, conversation, stream, options) {
    const tools = expectedCalls.map(([name]) => ({
      type: "function",
      function: { name, parameters: schema },
    }));
    const request = { model, messages: conversation, tools };
    if (!stream) return openai.chat.completions.create(request, options);
    let text = "";
    const streamRequest = { ...request, stream_options: { include_usage: true } };
    const events = openai.chat.completions.stream(streamRequest, options);
    events.on("content", (chunk) => (text += chunk));
    const reply = await events.finalChatCompletion();
    assert.equal(text, this.textOf(reply));
    return reply;
  },
  textOf: (reply) => reply.choices[0].message.content ?? "",
  toolCalls: (reply) =>
    (reply.choices[0].message.tool_calls ?? []).map((call) => [
      call.id,
      call.function.name,
      JSON.parse(call.function.arguments),
    ]),
  checkStop: (reply, calls) =>
    assert.equal(reply.choices[0].finish_reason, calls.length ? "tool_calls" : "stop"),
  checkUsage({ usage }) {
    assert.equal(usage.prompt_tokens, totalInputTokens);
    assert.equal(usage.prompt_tokens_details.cached_tokens, 30);
    assert.equal(usage.completion_tokens, 20);
    assert.equal(usage.completion_tokens_details.reasoning_tokens, 7);
    assert.equal(usage.total_tokens, totalInputTokens + 20);
  },
  addResults(conversation, reply, results) {
    conversation.push(reply.choices[0].message);
    this.toolCalls(reply).forEach(([tool_call_id], index) =>
      conversation.push({ role: "tool", tool_call_id, content: results[index] }),
    );
  },
};

// Makes all requests over one API and returns their number.
async function checkApi(api, stream) {
  const namesAndInputs = (reply) => api.toolCalls(reply).map(([, name, input]) => [name, input]);
  let reply = await api.generate("text", api.firstMessages(), stream);
  assert.equal(api.textOf(reply), "You said: the garden.");
  api.checkStop(reply, []);
  api.checkUsage(reply);

  let conversation = api.firstMessages();
  reply = await api.generate("scripted/call", conversation, stream);
  assert.deepEqual(namesAndInputs(reply), expectedCalls.slice(0, 1));
  api.addResults(conversation, reply, toolResults.slice(0, 1));
  reply = await api.generate("scripted/call", conversation, stream);
  assert.equal(api.textOf(reply), "Then: a spade");

  conversation = api.firstMessages();
  reply = await api.generate("calls", conversation, stream);
  assert.equal(api.textOf(reply), "Two things.");
  assert.deepEqual(namesAndInputs(reply), expectedCalls);
  assert.equal(new Set(api.toolCalls(reply).map(([id]) => id)).size, 2);
  api.checkStop(reply, expectedCalls);
  api.addResults(conversation, reply, toolResults);
  reply = await api.generate("calls", conversation, stream);
  assert.equal(api.textOf(reply), "Then: 12 m²");
  api.checkStop(reply, []);
  api.checkUsage(reply);

  const expectError = (model, status, pattern, options) =>
    assert.rejects(
      async () => api.generate(model, api.firstMessages(), stream, options),
      (error) => error.status === status && pattern.test(error.message) && Boolean(error.requestID),
    );
  for (const [model, status] of [["rate_limited", 429], ["overloaded", 529]]) {
    // The call fails without retries and succeeds with them.
    await expectError(model, status, /script makes this call fail/, { maxRetries: 0 });
    reply = await api.generate(model, api.firstMessages(), stream);
    assert.equal(api.textOf(reply), "At last.");
  }

  await expectError("no_such_model", 404, /calls/);
  return 10;
}

const scripts = ["text", "call", "calls", "rate_limited", "overloaded"];
let requests = 0;
for (const api of [messages, responses, chat]) {
  const models = new Set();
  for await (const model of api.client.models.list()) models.add(model.id);
  for (const script of scripts) assert.ok(models.has(script), script);
  for (const stream of [false, true]) requests += await checkApi(api, stream);
}
process.stdout.write(`${requests} requests over 3 APIs\n`);
