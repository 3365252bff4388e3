"""A client of the grpcio library that calls the authorization service of Envoy: check_peer.py PORT

Reads one call in each line of standard input: {"message": HEX, "metadata": {NAME: VALUE}, "gzip": true or false}.
Prints the outcome of each: {"code": NAME, "message": HEX or null, "details": TEXT}. The messages are plain bytes.
"""

import json
import sys

import grpc

PATH = "/envoy.service.auth.v3.Authorization/Check"
# Timeout of each call in seconds. Much more than any call needs.
TIMEOUT = 20


def outcome(check, call):
    compression = grpc.Compression.Gzip if call["gzip"] else None
    metadata = list(call["metadata"].items())
    try:
        message, answer = check.with_call(
            bytes.fromhex(call["message"]), timeout=TIMEOUT, metadata=metadata, compression=compression
        )
    except grpc.RpcError as error:
        return {"code": error.code().name, "message": None, "details": error.details()}
    return {"code": answer.code().name, "message": message.hex(), "details": answer.details()}


def main():
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(f"ipv4:127.0.0.1:{sys.argv[1]}", options) as channel:
        check = channel.unary_unary(PATH)
        for line in sys.stdin:
            print(json.dumps(outcome(check, json.loads(line))), flush=True)


main()
