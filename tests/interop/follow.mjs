// A third-party EventSource, as in browsers: follows one run to its end.
//
// The test may kill and restart the server meanwhile; the EventSource reconnects with
// its last event id. Every message is printed to stdout as a line of JSON. At the end
// it checks that every event came exactly once and in order.
//
// Usage: node follow.mjs URL KINDS   (the key in LONGHAUL_KEY, its packages in LONGHAUL_INTEROP_DIR)

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.LONGHAUL_INTEROP_DIR, "package.json"));
const { EventSource } = require("eventsource");

// The event types; an EventSource receives only those it has a listener for.
const kinds = process.argv[3].split(",");
const print = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

const received = [];
const connections = [];
let deltas = 0;

const source = new EventSource(process.argv[2], {
  fetch: (url, init) => {
    connections.push({ lastEventId: init.headers["Last-Event-ID"], received: received.at(-1)?.toString() });
    const headers = { ...init.headers, Authorization: `Bearer ${process.env.LONGHAUL_KEY}` };
    return fetch(url, { ...init, headers });
  },
});

source.addEventListener("open", () => print({ open: connections.at(-1).lastEventId ?? null }));

source.addEventListener("error", (event) => {
  print({ cut: event.message ?? "the stream ended" });
  // A rejection is final, a lost connection is not.
  if (source.readyState === EventSource.CLOSED) {
    print({ refused: event.code });
    process.exit(1);
  }
});

for (const kind of kinds) {
  source.addEventListener(kind, (event) => {
    const data = JSON.parse(event.data);
    assert.equal(data.type, kind);
    assert.equal(event.lastEventId, String(data.seq));
    received.push(data.seq);
    print({ received: data.seq, type: kind });
  });
}

source.addEventListener("message.delta", (event) => {
  assert.equal(event.lastEventId, "", "deltas have no event id");
  assert.equal(typeof JSON.parse(event.data).text, "string");
  deltas += 1;
  print({ deltas });
});

source.addEventListener("end", (event) => {
  source.close();
  const end = JSON.parse(event.data);
  print({ end });
  assert.equal(end.status, "completed");
  assert.deepEqual(received, Array.from({ length: end.last_seq }, (_, n) => n + 1));
  assert.ok(deltas > 0, "no delta was received");
  // Deltas did not change the event id from which it resumed.
  for (const { lastEventId, received } of connections) assert.equal(lastEventId, received);
  print({ events: received.length, deltas, connections });
});
