"""Runs Schemathesis over the server's OpenAPI document, with existing ids to start from.

Usage: fuzz.py URL AGENT CONFIG   (the API key in LONGHAUL_KEY, the minimum number of requests in
LONGHAUL_FUZZ_REQUESTS; writes files into the current folder)
The agent must stop at a gate. The seed is in CONFIG, so that the requests can be repeated.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from openapi_client import OpenApiClient
from httpx_sse import connect_sse

# Number of runs that wait at a gate at the start. The generated requests end some of them.
RUN_COUNT = 8


def create_runs(api, agent):
    """Creates runs that wait at a gate and have one steer each, and writes their ids to files."""
    runs, gates, steers = [], [], []
    for number in range(RUN_COUNT):
        run = api.call("submit_run", 201, {"agent": agent, "input": number})["id"]
        with connect_sse(api.http, "GET", api.path("read_events", id=run)) as source:
            gate_raised = next(event for event in source.iter_sse() if event.event == "gate.raised")
        runs.append(run)
        gates.append(gate_raised.json()["data"]["gate"]["id"])
        steers.append(api.call("steer", 202, {"text": "Hello."}, id=run)["id"])
    for name, ids in (("runs", runs), ("gates", gates), ("steers", steers)):
        Path(f"{name}.txt").write_text("".join(f'"{item_id}"\n' for item_id in ids))


def count_requests(report):
    """Returns the number of requests in a report of Schemathesis."""
    with open(report, encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    scenarios = (event["ScenarioFinished"] for event in events if "ScenarioFinished" in event)
    return sum(len(scenario["recorder"]["interactions"]) for scenario in scenarios)


def main():
    url, agent, config = sys.argv[1:]
    key = os.environ["LONGHAUL_KEY"]
    requests_min = int(os.environ.get("LONGHAUL_FUZZ_REQUESTS", "400"))
    api = OpenApiClient(url, key)
    create_runs(api, agent)
    Path("schemathesis.toml").write_text(Path(config).read_text())
    max_examples = max(1, requests_min // len(api.operations))
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {key}", "--max-examples", str(max_examples)]
    command += ["--no-color", "--report", "ndjson", "--report-ndjson-path", "events.ndjson"]
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        sys.exit(status)
    requests = count_requests("events.ndjson")
    assert requests >= requests_min, f"{requests} requests were made, {requests_min} are required"
    api.call("ready")
    print(f"{requests} requests")


main()
