"""A third-party client in Python that uses only the server's OpenAPI document.

The client submits a run, follows it to its end, steers it meanwhile, approves its gate with the
digest that the server has returned, and reads the list of runs page by page.

Usage: client.py URL AGENT   (the API key in LONGHAUL_KEY)
The agent must take two turns before its approval gate, and end after it.
"""

import os
import sys

from openapi_client import OpenApiClient
from httpx_sse import connect_sse


def follow(api, run):
    """Follows a run to its end. Steers it and approves its gate."""
    events, deltas, steer = [], [], None
    path = api.path("read_events", id=run)
    with connect_sse(api.http, "GET", path) as source:
        for message in source.iter_sse():
            data = message.json()
            if message.event == "end":
                assert data["status"] == "completed", data
                assert data["last_seq"] == events[-1]["seq"], data
                return events, deltas, steer
            if message.event == "message.delta":
                deltas.append(data["text"])
                continue
            assert message.id == str(data["seq"]), message
            assert message.event == data["type"], message
            api.check_schema(data, "/components/schemas/Event")
            events.append(data)
            if steer is None and data["type"] == "tool.completed":
                steer = api.call("steer", 202, {"text": "Mind the gap."}, id=run)
            if data["type"] == "gate.raised":
                approve_gate(api, run)
    raise AssertionError(f"the stream ended early, after {events[-1:]}")


def approve_gate(api, run):
    """Approves the open gate of a run. Only the digest of the gate itself is accepted."""
    gates = api.call("list_gates", query={"run": run, "status": "open"})["data"]
    assert len(gates) == 1, gates
    gate = api.call("show_gate", id=gates[0]["id"])
    approval = {"decision": "approve", "note": "go on"}
    without_digest = api.call("answer_gate", 422, approval, id=gate["id"])
    assert without_digest["code"] == "digest_missing", without_digest
    wrong_approval = approval | {"digest": "0" * 64}
    wrong_digest = api.call("answer_gate", 409, wrong_approval, id=gate["id"])
    assert wrong_digest["code"] == "digest_changed", wrong_digest
    approval["digest"] = gate["digest"]
    accepted = api.call("answer_gate", 200, approval, id=gate["id"])
    assert accepted["outcome"] == "closed", accepted
    repeated = api.call("answer_gate", 409, approval, id=gate["id"])
    assert repeated["code"] == "already_answered", repeated


def check_pages(api, runs):
    """Reads the list of runs in pages of two. Each run is listed once, newest first."""
    listed, query = [], {"limit": 2}
    while True:
        page = api.call("list_runs", query=query)
        listed += [run["id"] for run in page["data"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert listed == list(reversed(runs)), (listed, runs)
    completed = api.call("list_runs", query={"brief": "true", "status": "completed"})
    assert runs[0] in [run["id"] for run in completed["data"]], completed


def check_finished_run(api, run):
    """Reads a finished run over every endpoint."""
    finished = api.call("show_run", id=run)
    assert (finished["status"], finished["gates"]) == ("completed", []), finished
    api.call("why", id=run)
    transcript = api.call("show_transcript", id=run)
    assert "Mind the gap." in str(transcript["messages"]), transcript
    steers = api.call("list_steers", id=run)["data"]
    assert [steer["status"] for steer in steers] == ["delivered"], steers
    late_steer = api.call("steer", 409, {"text": "Too late."}, id=run)
    assert late_steer["code"] == "run_ended", late_steer


def main():
    api = OpenApiClient(sys.argv[1], os.environ["LONGHAUL_KEY"])
    agent = sys.argv[2]
    request = {"agent": agent, "input": "milk", "tags": ["interop"], "metadata": {"by": "httpx"}}
    headers = {"Idempotency-Key": "interop-first"}
    run = api.call("submit_run", 201, request, headers=headers)["id"]
    assert api.call("submit_run", 201, request, headers=headers)["id"] == run
    events, deltas, steer = follow(api, run)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), events
    assert deltas and steer, (deltas, steer)
    journal = api.call("read_events", query={"limit": 1000}, id=run)["data"]
    assert journal == events, "the page and the stream differ"
    check_finished_run(api, run)
    requests = [{"agent": agent, "input": number} for number in range(4)]
    other_runs = [api.call("submit_run", 201, request)["id"] for request in requests]
    check_pages(api, [run, *other_runs])
    for other_run in other_runs:
        api.call("cancel_run", id=other_run)
    for operation in ("list_agents", "list_lanes", "list_keys", "live", "ready", "version"):
        api.call(operation)
    api.call("show_run", 404, id="run_" + "0" * 26)
    operations = len(api.called_operations)
    print(f"{len(events)} events, {len(deltas)} deltas, {operations} operations")


main()
