// A third-party EventSource, as in browsers: follows one run to its end.
//
// The test may kill and restart the server meanwhile; the EventSource reconnects with the id of the
// last event. Every message is printed to stdout as a line of JSON. At the end the program checks
// that every event was received exactly once and in order.
//
// Usage: node follow.mjs URL EVENT_TYPES   (the API key in LONGHAUL_KEY, the folder of the
// installed packages in LONGHAUL_INTEROP_DIR)

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.LONGHAUL_INTEROP_DIR, "package.json"));
const { EventSource } = require("eventsource");

// An EventSource receives only the event types that it has a listener for.
const eventTypes = process.argv[3].split(",");
const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

// Sequence numbers of the received events.
const received = [];
// For each connection, the event id that the EventSource has sent, and the last event received.
const connections = [];
let deltas = 0;

const source = new EventSource(process.argv[2], {
  fetch: (url, init) => {
    connections.push({
      lastEventId: init.headers["Last-Event-ID"],
      lastReceived: received.at(-1)?.toString(),
    });
    const headers = { ...init.headers, Authorization: `Bearer ${process.env.LONGHAUL_KEY}` };
    return fetch(url, { ...init, headers });
  },
});

source.addEventListener("open", () => print({ open: connections.at(-1).lastEventId ?? null }));

source.addEventListener("error", (event) => {
  print({ disconnected: event.message ?? "the stream ended" });
  // The EventSource reconnects after a lost connection, but not after an error response.
  if (source.readyState === EventSource.CLOSED) {
    print({ rejected_with_status: event.code });
    process.exit(1);
  }
});

for (const eventType of eventTypes) {
  source.addEventListener(eventType, (event) => {
    const data = JSON.parse(event.data);
    assert.equal(data.type, eventType);
    assert.equal(event.lastEventId, String(data.seq));
    received.push(data.seq);
    print({ received: data.seq, type: eventType });
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
  assert.deepEqual(received, Array.from({ length: end.last_seq }, (_, index) => index + 1));
  assert.ok(deltas > 0, "no delta was received");
  // Deltas do not change the event id from which the EventSource resumes.
  for (const { lastEventId, lastReceived } of connections) {
    assert.equal(lastEventId, lastReceived);
  }
  print({ events: received.length, deltas, connections });
});
