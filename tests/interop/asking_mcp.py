"""An MCP server on the official Python SDK whose tool asks a person a question.

    python asking_mcp.py stdio

The key of its request state is fixed, so that a new process accepts what an earlier one has issued.
"""

from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel

server = MCPServer("tables", request_state_security=RequestStateSecurity(keys=[b"k" * 32], ttl=30 * 24 * 3600))


class Party(BaseModel):
    people: int


def ask_people(date: str) -> Elicit[Party]:
    return Elicit("How many people on %s?" % date, Party)


@server.tool()
def book_table(date: str, party: Annotated[Party, Resolve(ask_people)]) -> str:
    return "booked %s for %d" % (date, party.people)


server.run("stdio")
