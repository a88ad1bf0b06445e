"""The server's own description, and calls that are held to it.

Used by the judges: an operation is found by its id, and what comes back must be
what the description says, in status, content type and shape.
"""

import json

import httpx
from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

HERE = "urn:longhaul:openapi"


class Described:
    """A client that knows only what `/openapi.json` says."""

    def __init__(self, url, key):
        headers = {"Authorization": f"Bearer {key}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=30)
        answer = self.http.get("/openapi.json")
        assert answer.status_code == 200, answer.text
        self.document = answer.json()
        assert self.document["openapi"].startswith("3.1."), self.document["openapi"]
        OpenAPIV31SpecValidator(self.document).validate()
        self.operations = {
            operation["operationId"]: (method, path, operation)
            for path, item in self.document["paths"].items()
            for method, operation in item.items()
        }
        resource = Resource(contents=self.document, specification=DRAFT202012)
        self.registry = Registry().with_resource(HERE, resource)
        self.used = set()

    def fits(self, thing, pointer):
        """Holds a thing to the schema at this place of the document."""
        validator = Draft202012Validator(
            {"$ref": f"{HERE}#{pointer}"},
            registry=self.registry,
            format_checker=FormatChecker(),
        )
        errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(thing)]
        assert not errors, f"{pointer}: {errors}\n{json.dumps(thing, indent=1)}"

    def path(self, operation_id, **parts):
        """The path of an operation with its parts filled in."""
        return self.operations[operation_id][1].format(**parts)

    def call(self, operation_id, wanted=200, body=None, query=None, headers=None, **parts):
        """Calls an operation, and holds its answer to the description."""
        method, path, operation = self.operations[operation_id]
        answer = self.http.request(
            method, path.format(**parts), json=body, params=query, headers=headers
        )
        said = f"{operation_id}: {answer.status_code} {answer.text}"
        assert answer.status_code == wanted, said
        self.used.add(operation_id)
        responses = operation["responses"]
        status = str(wanted) if str(wanted) in responses else "default"
        kind = answer.headers["content-type"].split(";")[0]
        assert kind in responses[status]["content"], f"{kind}: {said}"
        steps = ["paths", path, method, "responses", status, "content", kind, "schema"]
        escaped = (step.replace("~", "~0").replace("/", "~1") for step in steps)
        thing = answer.json()
        self.fits(thing, "/" + "/".join(escaped))
        return thing
