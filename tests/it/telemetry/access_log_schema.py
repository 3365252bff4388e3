"""Checks lines of JSON on standard input against a JSON Schema.

Argument: the file of the schema. Prints each property of the schema that occurs in a line. An invalid line is an error.
"""
import json
import pathlib
import sys

import jsonschema


def main():
    schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.FormatChecker(["ipv4", "ipv6"])
    validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
    seen = set()
    for text in sys.stdin:
        line = json.loads(text)
        for error in validator.iter_errors(line):
            sys.exit(f"{error.message}\n{text}")
        seen |= line.keys()
    print("\n".join(name for name in schema["properties"] if name in seen))


main()
