// The providers' own SDKs on Node against the mock model.
//
// The same requests as in sdks.py: three APIs, with and without streaming, text, one
// call, parallel calls, the turn after their results, errors that the SDK must retry,
// and a model that doesn't exist.
//
// Usage: node sdks.mjs URL   (its packages in LONGHAUL_INTEROP_DIR)

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.LONGHAUL_INTEROP_DIR, "package.json"));
const { Anthropic } = require("@anthropic-ai/sdk");
const { OpenAI } = require("openai");

const url = process.argv[2];
const input = "the garden";
const calls = [
  ["look", { where: "the garden" }],
  ["measure", { of: ["bed", "Beet ü"], deep: 2.5 }],
];
const results = ["a spade", "12 m²"];
const inputTokens = 135;
const schema = { type: "object", properties: {}, additionalProperties: true };

const anthropic = new Anthropic({ baseURL: url, apiKey: "any", maxRetries: 3 });
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 3 });

const messages = {
  client: anthropic,
  firstMessages: () => [{ role: "user", content: input }],
  async ask(model, conversation, stream, options) {
    const tools = calls.map(([name]) => ({ name, description: "A tool.", input_schema: schema }));
    const request = { model, max_tokens: 500, messages: conversation, tools };
    if (!stream) return anthropic.messages.create(request, options);
    let text = "";
    const events = anthropic.messages.stream(request, options).on("text", (chunk) => (text += chunk));
    const reply = await events.finalMessage();
    assert.equal(text, this.textOf(reply));
    return reply;
  },
  textOf: (reply) => reply.content.map((block) => block.text ?? "").join(""),
  calls: (reply) =>
    reply.content.filter(({ type }) => type === "tool_use").map(({ id, name, input }) => [id, name, input]),
  checkStop: (reply, made) => assert.equal(reply.stop_reason, made.length ? "tool_use" : "end_turn"),
  checkUsage({ usage }) {
    assert.equal(usage.input_tokens, 100);
    assert.equal(usage.cache_read_input_tokens, 30);
    assert.equal(usage.cache_creation_input_tokens, 5);
    assert.equal(usage.output_tokens, 20);
  },
  addResults(conversation, reply, results) {
    const content = this.calls(reply).map(([id], index) => ({
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
  async ask(model, conversation, stream, options) {
    const tools = calls.map(([name]) => ({ type: "function", name, parameters: schema, strict: false }));
    const request = { model, input: conversation, tools };
    if (!stream) return openai.responses.create(request, options);
    let text = "";
    let last;
    const numbers = [];
    for await (const event of await openai.responses.create({ ...request, stream: true }, options)) {
      numbers.push(event.sequence_number);
      if (event.type === "response.output_text.delta") text += event.delta;
      if (event.type === "response.completed") last = event.response;
    }
    assert.deepEqual(numbers, Array.from(numbers, (_, index) => index));
    assert.equal(text, this.textOf(last));
    return last;
  },
  textOf: (reply) =>
    reply.output.flatMap(({ content }) => content ?? []).map(({ text }) => text).join(""),
  calls: (reply) =>
    reply.output
      .filter(({ type }) => type === "function_call")
      .map((item) => [item.call_id, item.name, JSON.parse(item.arguments)]),
  checkStop: (reply) => assert.equal(reply.status, "completed"),
  checkUsage({ usage }) {
    assert.equal(usage.input_tokens, inputTokens);
    assert.equal(usage.input_tokens_details.cached_tokens, 30);
    assert.equal(usage.output_tokens, 20);
    assert.equal(usage.output_tokens_details.reasoning_tokens, 7);
    assert.equal(usage.total_tokens, inputTokens + 20);
  },
  addResults(conversation, reply, results) {
    conversation.push(...reply.output);
    this.calls(reply).forEach(([call_id], index) =>
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
  async ask(model, conversation, stream, options) {
    const tools = calls.map(([name]) => ({ type: "function", function: { name, parameters: schema } }));
    const request = { model, messages: conversation, tools };
    if (!stream) return openai.chat.completions.create(request, options);
    let text = "";
    const streamed = { ...request, stream_options: { include_usage: true } };
    const events = openai.chat.completions.stream(streamed, options);
    events.on("content", (chunk) => (text += chunk));
    const reply = await events.finalChatCompletion();
    assert.equal(text, this.textOf(reply));
    return reply;
  },
  textOf: (reply) => reply.choices[0].message.content ?? "",
  calls: (reply) =>
    (reply.choices[0].message.tool_calls ?? []).map((call) => [
      call.id,
      call.function.name,
      JSON.parse(call.function.arguments),
    ]),
  checkStop: (reply, made) => assert.equal(reply.choices[0].finish_reason, made.length ? "tool_calls" : "stop"),
  checkUsage({ usage }) {
    assert.equal(usage.prompt_tokens, inputTokens);
    assert.equal(usage.prompt_tokens_details.cached_tokens, 30);
    assert.equal(usage.completion_tokens, 20);
    assert.equal(usage.completion_tokens_details.reasoning_tokens, 7);
    assert.equal(usage.total_tokens, inputTokens + 20);
  },
  addResults(conversation, reply, results) {
    conversation.push(reply.choices[0].message);
    this.calls(reply).forEach(([tool_call_id], index) =>
      conversation.push({ role: "tool", tool_call_id, content: results[index] }),
    );
  },
};

async function play(api, stream) {
  const made = (reply) => api.calls(reply).map(([, name, given]) => [name, given]);
  let reply = await api.ask("text", api.firstMessages(), stream);
  assert.equal(api.textOf(reply), "You said: the garden.");
  api.checkStop(reply, []);
  api.checkUsage(reply);

  let conversation = api.firstMessages();
  reply = await api.ask("scripted/call", conversation, stream);
  assert.deepEqual(made(reply), calls.slice(0, 1));
  api.addResults(conversation, reply, results.slice(0, 1));
  assert.equal(api.textOf(await api.ask("scripted/call", conversation, stream)), "Then: a spade");

  conversation = api.firstMessages();
  reply = await api.ask("calls", conversation, stream);
  assert.equal(api.textOf(reply), "Two things.");
  assert.deepEqual(made(reply), calls);
  assert.equal(new Set(api.calls(reply).map(([id]) => id)).size, 2);
  api.checkStop(reply, calls);
  api.addResults(conversation, reply, results);
  reply = await api.ask("calls", conversation, stream);
  assert.equal(api.textOf(reply), "Then: 12 m²");
  api.checkStop(reply, []);
  api.checkUsage(reply);

  const expectError = (model, status, pattern, options) =>
    assert.rejects(
      async () => api.ask(model, api.firstMessages(), stream, options),
      (error) => error.status === status && pattern.test(error.message) && Boolean(error.requestID),
    );
  for (const [model, status] of [["busy", 429], ["full", 529]]) {
    // It fails without retries and succeeds with them.
    await expectError(model, status, /script makes this call fail/, { maxRetries: 0 });
    assert.equal(api.textOf(await api.ask(model, api.firstMessages(), stream)), "At last.");
  }

  await expectError("nobody", 404, /calls/);
  return 10;
}

let requests = 0;
for (const api of [messages, responses, chat]) {
  const names = new Set();
  for await (const model of api.client.models.list()) names.add(model.id);
  for (const name of ["text", "call", "calls", "busy", "full"]) assert.ok(names.has(name), name);
  for (const stream of [false, true]) requests += await play(api, stream);
}
process.stdout.write(`${requests} requests over 3 APIs\n`);
