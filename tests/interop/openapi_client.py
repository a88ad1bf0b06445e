"""A client that is built from the server's OpenAPI document.

Used by client.py and fuzz.py. Operations are called by their id. Status, content type and schema
of every response are validated against the document.
"""

import json

import httpx
from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

BASE_URI = "urn:longhaul:openapi"


class OpenApiClient:
    """A client that uses only the document at `/openapi.json`."""

    def __init__(self, url, key):
        headers = {"Authorization": f"Bearer {key}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=30)
        response = self.http.get("/openapi.json")
        assert response.status_code == 200, response.text
        self.document = response.json()
        assert self.document["openapi"].startswith("3.1."), self.document["openapi"]
        OpenAPIV31SpecValidator(self.document).validate()
        self.operations = {
            operation["operationId"]: (method, path, operation)
            for path, item in self.document["paths"].items()
            for method, operation in item.items()
        }
        resource = Resource(contents=self.document, specification=DRAFT202012)
        self.registry = Registry().with_resource(BASE_URI, resource)
        self.called_operations = set()

    def check_schema(self, value, pointer):
        """Validates a value against the schema at a JSON pointer in the document."""
        validator = Draft202012Validator(
            {"$ref": f"{BASE_URI}#{pointer}"},
            registry=self.registry,
            format_checker=FormatChecker(),
        )
        errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
        assert not errors, f"{pointer}: {errors}\n{json.dumps(value, indent=1)}"

    def path(self, operation_id, **path_parameters):
        """Returns the path of an operation with its parameters filled in."""
        return self.operations[operation_id][1].format(**path_parameters)

    def call(
        self, operation_id, expected=200, body=None, query=None, headers=None, **path_parameters
    ):
        """Calls an operation and validates its response against the document."""
        method, path, operation = self.operations[operation_id]
        response = self.http.request(
            method, path.format(**path_parameters), json=body, params=query, headers=headers
        )
        message = f"{operation_id}: {response.status_code} {response.text}"
        assert response.status_code == expected, message
        self.called_operations.add(operation_id)
        responses = operation["responses"]
        status = str(expected) if str(expected) in responses else "default"
        content_type = response.headers["content-type"].split(";")[0]
        assert content_type in responses[status]["content"], f"{content_type}: {message}"
        keys = ["paths", path, method, "responses", status, "content", content_type, "schema"]
        escaped_keys = (key.replace("~", "~0").replace("/", "~1") for key in keys)
        value = response.json()
        self.check_schema(value, "/" + "/".join(escaped_keys))
        return value
