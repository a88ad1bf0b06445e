"""A client that `openapi-python-client` generates from the server's OpenAPI document.

The client starts a run, a batch and a chain. A warning of the generator, such as for an operation
that it leaves out, is an error.

Usage: generated.py URL AGENT   (the API key in LONGHAUL_KEY; writes into the current folder)
"""

import os
import subprocess
import sys
from pathlib import Path

import httpx

PACKAGE = "longhaul_client"


def generate(url, key):
    """Generates the client as a package in the current folder."""
    headers = {"Authorization": f"Bearer {key}"}
    response = httpx.get(f"{url}/openapi.json", headers=headers, timeout=30)
    Path("openapi.json").write_text(response.raise_for_status().text)
    # The generated code is not reformatted, which takes longer than to generate it.
    Path("config.yaml").write_text("post_hooks: []\n")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json"]
    command += ["--config", "config.yaml", "--meta", "none", "--output-path", PACKAGE]
    subprocess.run([*command, "--overwrite", "--fail-on-warning"], check=True)
    sys.path.insert(0, str(Path.cwd()))


def main():
    url, agent = sys.argv[1:]
    key = os.environ["LONGHAUL_KEY"]
    generate(url, key)
    from longhaul_client import AuthenticatedClient
    from longhaul_client.api.gates import list_gates
    from longhaul_client.api.runs import show_run, submit_batch, submit_run
    from longhaul_client.models import Batch, ListGate, NewBatch, NewRun, Run

    client = AuthenticatedClient(base_url=url, token=key, timeout=30)
    task = NewRun(agent=agent, input_={"text": "x"}, tags=["generated"])
    run = submit_run.sync(client=client, body=task, idempotency_key="generated-1")
    assert isinstance(run, Run), run
    repeated = submit_run.sync(client=client, body=task, idempotency_key="generated-1")
    assert repeated.id == run.id, repeated
    assert show_run.sync(run.id, client=client).agent == agent

    batch = submit_batch.sync(client=client, body=NewBatch(runs=[task, task]))
    assert isinstance(batch, Batch) and len(batch.runs) == 2, batch

    steps = {"steps": [{"agent": agent}, {"agent": agent}]}
    first = submit_run.sync(client=client, body=NewRun(input_="x", chain=steps))
    assert isinstance(first, Run) and first.chain.of == 2, first

    assert isinstance(list_gates.sync(client=client), ListGate)
    print("a run, a batch and a chain")


main()
