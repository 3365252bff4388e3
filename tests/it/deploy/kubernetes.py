"""Checks Kubernetes manifests against the schemas of a version of Kubernetes, without a cluster.

Arguments: the folder of the schemas, then the manifests. Prints "kind name" for each valid resource. A field that the
schema does not have is an error. Resources of the Gateway API are left out: gateway_api/check.mjs checks them.
A Cluster of CloudNativePG is left out: no registry has its schema.
"""
import json
import pathlib
import sys

import jsonschema
import yaml


def schema_of(folder, resource):
    group, _, version = resource["apiVersion"].rpartition("/")
    name = "-".join(filter(None, [resource["kind"].lower(), group.split(".")[0], version]))
    return json.loads((folder / f"{name}.json").read_text())


def main():
    folder = pathlib.Path(sys.argv[1])
    definitions = json.loads((folder / "_definitions.json").read_text())
    for path in sys.argv[2:]:
        for resource in yaml.safe_load_all(pathlib.Path(path).read_text()):
            if resource["apiVersion"].startswith(("gateway.networking.k8s.io/", "postgresql.cnpg.io/")):
                continue
            schema = schema_of(folder, resource)
            resolver = jsonschema.RefResolver("", schema, store={definitions["$id"]: definitions})
            jsonschema.Draft202012Validator(schema, resolver=resolver).validate(resource)
            print(resource["kind"], resource["metadata"]["name"])


main()
