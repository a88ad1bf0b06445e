"""A third-party client in Python, written from the server's OpenAPI document alone.

It submits a run, follows it to its end, steers it meanwhile, answers its gate
with the digest that was shown, and reads the list of runs page by page.

Usage: client.py URL AGENT   (the key in LONGHAUL_KEY)
The agent must take two turns before its approval gate, and end after it.
"""

import os
import sys

from openapi_client import OpenApiClient
from httpx_sse import connect_sse


def follow(api, run):
    """Follows a run to its end. Steers it and answers its gate."""
    seen, deltas, steer = [], [], None
    address = api.path("read_events", id=run)
    with connect_sse(api.http, "GET", address) as source:
        for event in source.iter_sse():
            data = event.json()
            if event.event == "end":
                assert data["status"] == "completed", data
                assert data["last_seq"] == seen[-1]["seq"], data
                return seen, deltas, steer
            if event.event == "message.delta":
                deltas.append(data["text"])
                continue
            assert event.id == str(data["seq"]), event
            assert event.event == data["type"], event
            api.check_schema(data, "/components/schemas/Event")
            seen.append(data)
            if steer is None and data["type"] == "tool.completed":
                steer = api.call("steer", 202, {"text": "Mind the gap."}, id=run)
            if data["type"] == "gate.raised":
                decide(api, run)
    raise AssertionError(f"the stream ended early, after {seen[-1:]}")


def decide(api, run):
    """Approves with the digest that is shown. Other digests are rejected."""
    gates = api.call("list_gates", query={"run": run, "status": "open"})["data"]
    assert len(gates) == 1, gates
    gate = api.call("show_gate", id=gates[0]["id"])
    yes = {"decision": "approve", "note": "go on"}
    blind = api.call("answer_gate", 422, yes, id=gate["id"])
    assert blind["code"] == "digest_missing", blind
    other = api.call("answer_gate", 409, yes | {"digest": "0" * 64}, id=gate["id"])
    assert other["code"] == "digest_changed", other
    given = api.call("answer_gate", 200, yes | {"digest": gate["digest"]}, id=gate["id"])
    assert given["outcome"] == "closed", given
    again = api.call("answer_gate", 409, yes | {"digest": gate["digest"]}, id=gate["id"])
    assert again["code"] == "already_answered", again


def pages(api, runs):
    """Reads the list of runs two at a time: every run once, newest first."""
    read, query = [], {"limit": 2}
    while True:
        part = api.call("list_runs", query=query)
        read += [run["id"] for run in part["data"]]
        if part["next"] is None:
            break
        query["after"] = part["next"]
    assert read == list(reversed(runs)), (read, runs)
    brief = api.call("list_runs", query={"brief": "true", "status": "completed"})
    assert runs[0] in [run["id"] for run in brief["data"]], brief


def inspect_run(api, run):
    """Reads a finished run over every endpoint."""
    done = api.call("show_run", id=run)
    assert (done["status"], done["gates"]) == ("completed", []), done
    api.call("why", id=run)
    transcript = api.call("show_transcript", id=run)
    assert "Mind the gap." in str(transcript["messages"]), transcript
    steers = api.call("list_steers", id=run)["data"]
    assert [steer["status"] for steer in steers] == ["delivered"], steers
    late = api.call("steer", 409, {"text": "Too late."}, id=run)
    assert late["code"] == "run_ended", late


def main():
    api = OpenApiClient(sys.argv[1], os.environ["LONGHAUL_KEY"])
    agent = sys.argv[2]
    task = {"agent": agent, "input": "milk", "tags": ["interop"], "metadata": {"by": "httpx"}}
    once = {"Idempotency-Key": "interop-first"}
    run = api.call("submit_run", 201, task, headers=once)["id"]
    assert api.call("submit_run", 201, task, headers=once)["id"] == run
    seen, deltas, steer = follow(api, run)
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1)), seen
    assert deltas and steer, (deltas, steer)
    journal = api.call("read_events", query={"limit": 1000}, id=run)["data"]
    assert journal == seen, "the page and the stream differ"
    inspect_run(api, run)
    rest = [api.call("submit_run", 201, {"agent": agent, "input": n})["id"] for n in range(4)]
    pages(api, [run, *rest])
    for other in rest:
        api.call("cancel_run", id=other)
    for operation in ("list_agents", "list_lanes", "list_keys", "live", "ready", "version"):
        api.call(operation)
    api.call("show_run", 404, id="run_" + "0" * 26)
    print(f"{len(seen)} events, {len(deltas)} deltas, {len(api.used)} operations")


main()
