"""A stranger's client in Python, written from the server's description alone.

It submits a run, follows it to its end, steers it on the way, answers its gate
with the digest that was shown, and reads the list of runs by pages.

Usage: client.py URL AGENT   (the key in LONGHAUL_KEY)
The agent must take two turns before it asks for a yes, and end after it.
"""

import os
import sys

from described import Described
from httpx_sse import connect_sse


def follow(api, run):
    """Follows a run to its end, and does on the way what a person would."""
    seen, spoken, steer = [], [], None
    address = api.path("read_events", id=run)
    with connect_sse(api.http, "GET", address) as source:
        for event in source.iter_sse():
            thing = event.json()
            if event.event == "end":
                assert thing["status"] == "completed", thing
                assert thing["last"] == seen[-1]["seq"], thing
                return seen, spoken, steer
            if event.event == "message.delta":
                spoken.append(thing["text"])
                continue
            assert event.id == str(thing["seq"]), event
            assert event.event == thing["type"], event
            api.fits(thing, "/components/schemas/Event")
            seen.append(thing)
            if steer is None and thing["type"] == "tool.completed":
                steer = api.call("steer", 202, {"text": "Mind the gap."}, id=run)
            if thing["type"] == "gate.raised":
                decide(api, run)
    raise AssertionError(f"the stream broke off after {seen[-1:]}")


def decide(api, run):
    """Says yes to what is shown, and to nothing else."""
    gates = api.call("list_gates", query={"run": run, "status": "open"})["data"]
    assert len(gates) == 1, gates
    gate = api.call("show_gate", id=gates[0]["id"])
    yes = {"decision": "approve", "note": "go on"}
    blind = api.call("answer_gate", 422, yes, id=gate["id"])
    assert blind["code"] == "digest_missing", blind
    other = api.call("answer_gate", 409, yes | {"digest": "0" * 64}, id=gate["id"])
    assert other["code"] == "digest_changed", other
    given = api.call("answer_gate", 200, yes | {"digest": gate["digest"]}, id=gate["id"])
    assert given["verdict"] == "closed", given
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


def looks(api, run):
    """Looks at a finished run from every side."""
    done = api.call("show_run", id=run)
    assert (done["status"], done["gates"]) == ("completed", []), done
    api.call("why", id=run)
    talk = api.call("show_transcript", id=run)
    assert "Mind the gap." in str(talk["messages"]), talk
    steers = api.call("list_steers", id=run)["data"]
    assert [steer["status"] for steer in steers] == ["delivered"], steers
    late = api.call("steer", 409, {"text": "Too late."}, id=run)
    assert late["code"] == "run_ended", late


def main():
    api = Described(sys.argv[1], os.environ["LONGHAUL_KEY"])
    agent = sys.argv[2]
    task = {"agent": agent, "input": "milk", "tags": ["judged"], "metadata": {"by": "httpx"}}
    once = {"Idempotency-Key": "the-judge's-first"}
    run = api.call("submit_run", 201, task, headers=once)["id"]
    assert api.call("submit_run", 201, task, headers=once)["id"] == run
    seen, spoken, steer = follow(api, run)
    assert [fact["seq"] for fact in seen] == list(range(1, len(seen) + 1)), seen
    assert spoken and steer, (spoken, steer)
    journal = api.call("read_events", query={"limit": 1000}, id=run)["data"]
    assert journal == seen, "the page and the stream differ"
    looks(api, run)
    rest = [api.call("submit_run", 201, {"agent": agent, "input": n})["id"] for n in range(4)]
    pages(api, [run, *rest])
    for other in rest:
        api.call("cancel_run", id=other)
    for operation in ("list_agents", "list_lanes", "list_keys", "live", "ready", "version"):
        api.call(operation)
    api.call("show_run", 404, id="run_" + "0" * 26)
    print(f"{len(seen)} facts, {len(spoken)} words, {len(api.used)} operations")


main()
