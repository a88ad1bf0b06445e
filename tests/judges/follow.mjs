// A stranger's EventSource, as browsers have it: follows one run to its end.
//
// Whoever starts it may kill the server and start it again meanwhile; it comes
// back by itself and says where it stood. What it hears is told on stdout, a line
// of JSON each, and at the end it judges: every event once, in order, none lost.
//
// Usage: node follow.mjs URL KINDS   (the key in LONGHAUL_KEY, its packages in LONGHAUL_JUDGES)

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.LONGHAUL_JUDGES, "package.json"));
const { EventSource } = require("eventsource");

// The kinds of facts; EventSource hears only what it listens for by name.
const kinds = process.argv[3].split(",");
const tell = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

const heard = [];
const openings = [];
let words = 0;

const source = new EventSource(process.argv[2], {
  fetch: (url, init) => {
    openings.push({ said: init.headers["Last-Event-ID"], heard: heard.at(-1)?.toString() });
    const headers = { ...init.headers, Authorization: `Bearer ${process.env.LONGHAUL_KEY}` };
    return fetch(url, { ...init, headers });
  },
});

source.addEventListener("open", () => tell({ open: openings.at(-1).said ?? null }));

source.addEventListener("error", (event) => {
  tell({ cut: event.message ?? "the stream ended" });
  // A refusal is final, a lost connection is not.
  if (source.readyState === EventSource.CLOSED) {
    tell({ refused: event.code });
    process.exit(1);
  }
});

for (const kind of kinds) {
  source.addEventListener(kind, (event) => {
    const fact = JSON.parse(event.data);
    assert.equal(fact.type, kind);
    assert.equal(event.lastEventId, String(fact.seq));
    heard.push(fact.seq);
    tell({ heard: fact.seq, type: kind });
  });
}

source.addEventListener("message.delta", (event) => {
  assert.equal(event.lastEventId, "", "words have no place in the journal");
  assert.equal(typeof JSON.parse(event.data).text, "string");
  words += 1;
  tell({ words });
});

source.addEventListener("end", (event) => {
  source.close();
  const end = JSON.parse(event.data);
  tell({ end });
  assert.equal(end.status, "completed");
  assert.deepEqual(heard, Array.from({ length: end.last }, (_, n) => n + 1));
  assert.ok(words > 0, "no word was heard");
  // Words between did not move the place from which it went on.
  for (const { said, heard } of openings) assert.equal(said, heard);
  tell({ facts: heard.length, words, openings });
});
