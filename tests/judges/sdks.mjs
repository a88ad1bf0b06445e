// The providers' own SDKs on Node, in front of a mock that plays scripts.
//
// The same questions as in sdks.py: three wires, whole and as a stream, words, a
// call, calls side by side, the turn after their results, outages that the SDK
// rides out, and a model that isn't there. What counts is what the SDK made of it.
//
// Usage: node sdks.mjs URL   (its packages in LONGHAUL_JUDGES)

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.LONGHAUL_JUDGES, "package.json"));
const { Anthropic } = require("@anthropic-ai/sdk");
const { OpenAI } = require("openai");

const url = process.argv[2];
const input = "the garden";
const calls = [
  ["look", { where: "the garden" }],
  ["measure", { of: ["bed", "Beet ü"], deep: 2.5 }],
];
const results = ["a spade", "12 m²"];
const whole = 135;
const schema = { type: "object", properties: {}, additionalProperties: true };

const anthropic = new Anthropic({ baseURL: url, apiKey: "any", maxRetries: 3 });
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 3 });

const messages = {
  client: anthropic,
  begin: () => [{ role: "user", content: input }],
  async ask(model, talk, stream, options) {
    const tools = calls.map(([name]) => ({ name, description: "A tool.", input_schema: schema }));
    const asked = { model, max_tokens: 500, messages: talk, tools };
    if (!stream) return anthropic.messages.create(asked, options);
    let text = "";
    const told = anthropic.messages.stream(asked, options).on("text", (piece) => (text += piece));
    const said = await told.finalMessage();
    assert.equal(text, this.words(said));
    return said;
  },
  words: (said) => said.content.map((block) => block.text ?? "").join(""),
  calls: (said) =>
    said.content.filter(({ type }) => type === "tool_use").map(({ id, name, input }) => [id, name, input]),
  ends: (said, made) => assert.equal(said.stop_reason, made.length ? "tool_use" : "end_turn"),
  used({ usage }) {
    assert.equal(usage.input_tokens, 100);
    assert.equal(usage.cache_read_input_tokens, 30);
    assert.equal(usage.cache_creation_input_tokens, 5);
    assert.equal(usage.output_tokens, 20);
  },
  goOn(talk, said, results) {
    const content = this.calls(said).map(([id], place) => ({
      type: "tool_result",
      tool_use_id: id,
      content: results[place],
    }));
    talk.push({ role: "assistant", content: said.content }, { role: "user", content });
  },
};

const responses = {
  client: openai,
  begin: () => [{ role: "user", content: input }],
  async ask(model, talk, stream, options) {
    const tools = calls.map(([name]) => ({ type: "function", name, parameters: schema, strict: false }));
    const asked = { model, input: talk, tools };
    if (!stream) return openai.responses.create(asked, options);
    let text = "";
    let last;
    const numbers = [];
    for await (const event of await openai.responses.create({ ...asked, stream: true }, options)) {
      numbers.push(event.sequence_number);
      if (event.type === "response.output_text.delta") text += event.delta;
      if (event.type === "response.completed") last = event.response;
    }
    assert.deepEqual(numbers, Array.from(numbers, (_, place) => place));
    assert.equal(text, this.words(last));
    return last;
  },
  words: (said) =>
    said.output.flatMap(({ content }) => content ?? []).map(({ text }) => text).join(""),
  calls: (said) =>
    said.output
      .filter(({ type }) => type === "function_call")
      .map((item) => [item.call_id, item.name, JSON.parse(item.arguments)]),
  ends: (said) => assert.equal(said.status, "completed"),
  used({ usage }) {
    assert.equal(usage.input_tokens, whole);
    assert.equal(usage.input_tokens_details.cached_tokens, 30);
    assert.equal(usage.output_tokens, 20);
    assert.equal(usage.output_tokens_details.reasoning_tokens, 7);
    assert.equal(usage.total_tokens, whole + 20);
  },
  goOn(talk, said, results) {
    talk.push(...said.output);
    this.calls(said).forEach(([call_id], place) =>
      talk.push({ type: "function_call_output", call_id, output: results[place] }),
    );
  },
};

const chat = {
  client: openai,
  begin: () => [
    { role: "system", content: "Be brief." },
    { role: "user", content: input },
  ],
  async ask(model, talk, stream, options) {
    const tools = calls.map(([name]) => ({ type: "function", function: { name, parameters: schema } }));
    const asked = { model, messages: talk, tools };
    if (!stream) return openai.chat.completions.create(asked, options);
    let text = "";
    const streamed = { ...asked, stream_options: { include_usage: true } };
    const told = openai.chat.completions.stream(streamed, options);
    told.on("content", (piece) => (text += piece));
    const said = await told.finalChatCompletion();
    assert.equal(text, this.words(said));
    return said;
  },
  words: (said) => said.choices[0].message.content ?? "",
  calls: (said) =>
    (said.choices[0].message.tool_calls ?? []).map((call) => [
      call.id,
      call.function.name,
      JSON.parse(call.function.arguments),
    ]),
  ends: (said, made) => assert.equal(said.choices[0].finish_reason, made.length ? "tool_calls" : "stop"),
  used({ usage }) {
    assert.equal(usage.prompt_tokens, whole);
    assert.equal(usage.prompt_tokens_details.cached_tokens, 30);
    assert.equal(usage.completion_tokens, 20);
    assert.equal(usage.completion_tokens_details.reasoning_tokens, 7);
    assert.equal(usage.total_tokens, whole + 20);
  },
  goOn(talk, said, results) {
    talk.push(said.choices[0].message);
    this.calls(said).forEach(([tool_call_id], place) =>
      talk.push({ role: "tool", tool_call_id, content: results[place] }),
    );
  },
};

async function play(wire, stream) {
  const made = (said) => wire.calls(said).map(([, name, given]) => [name, given]);
  let said = await wire.ask("words", wire.begin(), stream);
  assert.equal(wire.words(said), "You said: the garden.");
  wire.ends(said, []);
  wire.used(said);

  let talk = wire.begin();
  said = await wire.ask("scripted/call", talk, stream);
  assert.deepEqual(made(said), calls.slice(0, 1));
  wire.goOn(talk, said, results.slice(0, 1));
  assert.equal(wire.words(await wire.ask("scripted/call", talk, stream)), "Then: a spade");

  talk = wire.begin();
  said = await wire.ask("calls", talk, stream);
  assert.equal(wire.words(said), "Two things.");
  assert.deepEqual(made(said), calls);
  assert.equal(new Set(wire.calls(said).map(([id]) => id)).size, 2);
  wire.ends(said, calls);
  wire.goOn(talk, said, results);
  said = await wire.ask("calls", talk, stream);
  assert.equal(wire.words(said), "Then: 12 m²");
  wire.ends(said, []);
  wire.used(said);

  const refused = (model, status, words, options) =>
    assert.rejects(
      async () => wire.ask(model, wire.begin(), stream, options),
      (error) => error.status === status && words.test(error.message) && Boolean(error.requestID),
    );
  for (const [model, status] of [["busy", 429], ["full", 529]]) {
    // Without another try it fails, and with some the rest of the outage passes.
    await refused(model, status, /script fails/, { maxRetries: 0 });
    assert.equal(wire.words(await wire.ask(model, wire.begin(), stream)), "At last.");
  }

  await refused("nobody", 404, /calls/);
  return 10;
}

let asked = 0;
for (const wire of [messages, responses, chat]) {
  const names = new Set();
  for await (const model of wire.client.models.list()) names.add(model.id);
  for (const name of ["words", "call", "calls", "busy", "full"]) assert.ok(names.has(name), name);
  for (const stream of [false, true]) asked += await play(wire, stream);
}
process.stdout.write(`${asked} questions over 3 wires\n`);
