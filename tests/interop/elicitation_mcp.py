"""An MCP server on the official Python SDK with a tool that asks the user a question.

    python elicitation_mcp.py stdio

The key of the request state is fixed, so that a new process accepts the state that an earlier
process has issued.
"""

from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel

security = RequestStateSecurity(keys=[b"k" * 32], ttl=30 * 24 * 3600)
server = MCPServer("tables", request_state_security=security)


class Party(BaseModel):
    people: int


def ask_party_size(date: str) -> Elicit[Party]:
    return Elicit("How many people on %s?" % date, Party)


@server.tool()
def reserve_table(date: str, party: Annotated[Party, Resolve(ask_party_size)]) -> str:
    return "reserved %s for %d" % (date, party.people)


server.run("stdio")
