"""A gRPC client and a gRPC server of the grpcio library. The messages are plain bytes.

    grpc_peer.py serve                                   Prints its port, and serves until standard input ends.
    grpc_peer.py call PORT CERTIFICATE TOKEN NAME...     Makes calls over TLS, and prints the outcome of each as JSON.
                                                         The call "endure" also prints each message that it receives.

The outcome of a successful call is its result. The outcome of a failed call is its status with the details.
"""

import json
import sys
import threading
from concurrent import futures

import grpc

SERVICE = "bears.Kept"
# Timeout of each call in seconds. Much more than any call needs.
TIMEOUT = 20


# The methods of the server.

cancelled = threading.Event()


def unary(request, context):
    """Echoes the request, and the metadata of the caller."""
    sent = dict(context.invocation_metadata())
    context.send_initial_metadata([("said-first", sent.get("say-first", "nothing"))])
    context.set_trailing_metadata([("said-last-bin", sent.get("say-last-bin", b""))])
    return request


def denied(request, context):
    context.set_trailing_metadata([("which", "7")])
    context.abort(grpc.StatusCode.NOT_FOUND, "no such bear: 100 % sure, Bär")


def count_down(request, context):
    for number in range(int(request), 0, -1):
        yield str(number).encode()


def total(requests, context):
    return str(sum(len(request) for request in requests)).encode()


def converse(requests, context):
    for request in requests:
        yield b"re: " + request


def fail_midway(request, context):
    yield b"so far"
    context.abort(grpc.StatusCode.DATA_LOSS, "no further")


def endless(request, context):
    context.add_callback(cancelled.set)
    yield b"begun"
    while context.is_active():
        cancelled.wait(0.05)


def was_cancelled(request, context):
    return b"yes" if cancelled.wait(TIMEOUT) else b"no"


def serve():
    methods = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Denied": grpc.unary_unary_rpc_method_handler(denied),
        "CountDown": grpc.unary_stream_rpc_method_handler(count_down),
        "Total": grpc.stream_unary_rpc_method_handler(total),
        "Converse": grpc.stream_stream_rpc_method_handler(converse),
        "FailMidway": grpc.unary_stream_rpc_method_handler(fail_midway),
        "Endless": grpc.unary_stream_rpc_method_handler(endless),
        "WasCancelled": grpc.unary_unary_rpc_method_handler(was_cancelled),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


# The calls of the client. Each returns its result.

class Client:
    def __init__(self, channel, token):
        self.channel = channel
        self.metadata = [("authorization", "Bearer " + token)] if token else []

    def _path(self, method):
        return f"/{SERVICE}/{method}"

    def _unary(self, method, request, **more):
        more.setdefault("metadata", self.metadata)
        return self.channel.unary_unary(self._path(method)).with_call(request, timeout=TIMEOUT, **more)

    def _stream(self, method, request, timeout=TIMEOUT):
        return self.channel.unary_stream(self._path(method))(request, timeout=timeout, metadata=self.metadata)

    def unary(self):
        metadata = [("say-first", "of keepers"), ("say-last-bin", bytes(range(256)))]
        response, call = self._unary("Unary", b"\0bear\xff", metadata=self.metadata + metadata)
        first, last = dict(call.initial_metadata()), dict(call.trailing_metadata())
        return [response.hex(), first["said-first"], last["said-last-bin"].hex(), call.code().name]

    def large(self):
        request = bytes(range(256)) * 14 * 1024
        return self._unary("Unary", request)[0] == request

    def empty(self):
        return self._unary("Unary", b"")[0].hex()

    def denied(self):
        return self._unary("Denied", b"")

    def missing(self):
        return self._unary("Missing", b"")

    def count_down(self):
        return [response.decode() for response in self._stream("CountDown", b"5")]

    def total(self):
        requests = (b"x" * 100_000 for _ in range(20))
        total = self.channel.stream_unary(self._path("Total"))
        return total(requests, timeout=TIMEOUT, metadata=self.metadata).decode()

    def converse(self):
        """Sends each message after the response to the previous one, so that a proxy that waits for more would block."""
        received = threading.Semaphore(1)

        def requests():
            for word in (b"one", b"two", b"three"):
                received.acquire(timeout=TIMEOUT)
                yield word

        responses = []
        stream = self.channel.stream_stream(self._path("Converse"))
        for response in stream(requests(), timeout=TIMEOUT, metadata=self.metadata):
            responses.append(response.decode())
            received.release()
        return responses

    def fail_midway(self):
        for response in self._stream("FailMidway", b""):
            assert response == b"so far"
        return "complete"

    def cancel(self):
        stream = self._stream("Endless", b"")
        assert next(stream) == b"begun"
        stream.cancel()
        return self.was_cancelled()

    def was_cancelled(self):
        return self._unary("WasCancelled", b"")[0].decode()

    def endure(self):
        """A call that the server does not end."""
        for response in self._stream("Endless", b""):
            print(json.dumps(["endure", response.decode()]), flush=True)
        return "complete"

    def deadline(self):
        for _ in self._stream("Endless", b"", timeout=0.3):
            pass
        return "complete"

    def many(self):
        """Concurrent calls over one connection."""
        path, requests = self._path("Unary"), [str(number).encode() for number in range(100)]
        call = self.channel.unary_unary(path).future
        calls = [call(request, timeout=TIMEOUT, metadata=self.metadata) for request in requests]
        return [call.result() for call in calls] == requests


def call(port, certificate, token, names):
    with open(certificate, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    options = [("grpc.ssl_target_name_override", "localhost"), ("grpc.enable_http_proxy", 0)]
    with grpc.secure_channel(f"ipv4:127.0.0.1:{port}", credentials, options) as channel:
        client = Client(channel, token)
        for name in names:
            try:
                outcome = getattr(client, name)()
            except grpc.RpcError as error:
                outcome = {"status": error.code().name, "says": error.details()}
                outcome["metadata"] = [[key, value] for key, value in error.trailing_metadata() or ()]
            print(json.dumps([name, outcome]), flush=True)


if sys.argv[1] == "serve":
    serve()
else:
    call(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
