// A program over the types that `openapi-typescript` generates from the server's OpenAPI document.
// It starts a run, a batch and a chain. generated.mjs compiles it with type checks and calls it.

import createClient from "openapi-fetch";
import type { components, paths } from "./openapi.js";

type NewRun = components["schemas"]["NewRun"];
type Run = components["schemas"]["Run"];

function check(condition: boolean, message: unknown): void {
  if (!condition) throw new Error(JSON.stringify(message));
}

export async function start(baseUrl: string, key: string, agent: string): Promise<void> {
  const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
  const task: NewRun = { agent, input: { text: "x" }, tags: ["generated"] };
  // @ts-expect-error: every run has an input.
  const withoutInput: NewRun = { agent };
  const rejected = await client.POST("/v1/runs", { body: withoutInput });
  check(rejected.error?.code === "invalid", rejected.error);

  const params = { header: { "Idempotency-Key": "generated-2" } };
  const submitted = await client.POST("/v1/runs", { params, body: task });
  check(submitted.data?.agent === agent, submitted.error);
  const repeated = await client.POST("/v1/runs", { params, body: task });
  check(repeated.data?.id === submitted.data?.id, repeated.error);

  const batch = await client.POST("/v1/runs/batch", { body: { runs: [task, task] } });
  check(batch.data?.runs.length === 2, batch.error);

  const chain = { steps: [{ agent }, { agent }] };
  const first = await client.POST("/v1/runs", { body: { input: "x", chain } });
  check(first.data?.chain?.of === 2, first.error);

  const id = submitted.data?.id ?? "";
  const shown = await client.GET("/v1/runs/{id}", { params: { path: { id } } });
  const run: Run | undefined = shown.data;
  check(run?.id === id, shown.error);
}
