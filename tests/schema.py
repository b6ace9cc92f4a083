"""Check JSON against the part of JSON Schema that docs/manifest.schema.json uses."""

import json
import re
from pathlib import Path
from typing import Any

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "manifest.schema.json").read_text(encoding="utf-8"))
_KINDS = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float),
}  # fmt: skip
_WORDS = {
    "$defs", "$ref", "$schema", "title", "description", "type", "required", "properties", "additionalProperties", "items", "anyOf",
    "enum", "const", "pattern", "minimum",
}  # fmt: skip


def problems(value: Any, schema: Any = SCHEMA, path: str = "") -> list[str]:
    """Return what does not fit, as paths with reasons."""
    if isinstance(schema, bool):
        return [] if schema else [f"{path}: not known"]
    assert schema.keys() <= _WORDS, schema.keys() - _WORDS
    if "$ref" in schema:
        return problems(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], path)
    if "anyOf" in schema:
        problem_lists = [problems(value, subschema, path) for subschema in schema["anyOf"]]
        return [] if any(not problem_list for problem_list in problem_lists) else problem_lists[0]
    wrong = []
    if kind := schema.get("type"):
        number = isinstance(value, bool) and kind in ("integer", "number")
        if number or not isinstance(value, _KINDS[kind]):
            return [f"{path}: {value!r} is not of type {kind}"]
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        wrong.append(f"{path}: {value!r} is another one")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        wrong.append(f"{path}: {value!r} is not {schema['pattern']}")
    if "minimum" in schema and value < schema["minimum"]:
        wrong.append(f"{path}: {value} is below {schema['minimum']}")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        wrong += [f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value]
        for name, entry in value.items():
            wrong += problems(entry, properties.get(name, schema.get("additionalProperties", True)), f"{path}.{name}")
    if isinstance(value, list):
        for i, entry in enumerate(value):
            wrong += problems(entry, schema.get("items", True), f"{path}[{i}]")
    return wrong
