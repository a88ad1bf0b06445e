"""Runs Schemathesis over the server's OpenAPI document, with real ids to start from.

Usage: fuzz.py URL AGENT CONFIG   (the key in LONGHAUL_KEY, the minimum number of
requests in LONGHAUL_FUZZ_REQUESTS; writes files into the current folder)
The agent must stop at a gate. The seed is in CONFIG, so a run can be repeated.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from openapi_client import OpenApiClient
from httpx_sse import connect_sse

# Number of runs that wait at a gate at the start: requests will end some of them.
RUNS = 8


def prepare(api, agent):
    """Creates runs that wait at a gate and have one steer each, and writes their ids to files."""
    runs, gates, steers = [], [], []
    for number in range(RUNS):
        run = api.call("submit_run", 201, {"agent": agent, "input": number})["id"]
        with connect_sse(api.http, "GET", api.path("read_events", id=run)) as source:
            raised = next(event for event in source.iter_sse() if event.event == "gate.raised")
        runs.append(run)
        gates.append(raised.json()["data"]["gate"]["id"])
        steers.append(api.call("steer", 202, {"text": "Hello."}, id=run)["id"])
    for name, ids in (("runs", runs), ("gates", gates), ("steers", steers)):
        Path(f"{name}.txt").write_text("".join(f'"{one}"\n' for one in ids))


def requests(report):
    """The number of requests in the report."""
    with open(report, encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    done = (event["ScenarioFinished"] for event in events if "ScenarioFinished" in event)
    return sum(len(scenario["recorder"]["interactions"]) for scenario in done)


def main():
    url, agent, config = sys.argv[1:]
    key = os.environ["LONGHAUL_KEY"]
    wanted = int(os.environ.get("LONGHAUL_FUZZ_REQUESTS", "400"))
    api = OpenApiClient(url, key)
    prepare(api, agent)
    Path("schemathesis.toml").write_text(Path(config).read_text())
    each = max(1, wanted // len(api.operations))
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {key}", "--max-examples", str(each)]
    command += ["--no-color", "--report", "ndjson", "--report-ndjson-path", "events.ndjson"]
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        sys.exit(status)
    made = requests("events.ndjson")
    assert made >= wanted, f"only {made} requests were made, and {wanted} are required"
    api.call("ready")
    print(f"{made} requests")


main()
