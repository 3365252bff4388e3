"""A collector of traces: decodes OTLP over HTTP with the messages that OpenTelemetry publishes.

Arguments: the folder of the Python modules, then the statuses of the responses, of which the last one repeats; `hang`
stands for no response, `503+2` for a `Retry-After` of 2, and `200+partial` for a response that rejects one span. Prints
its port, then one line of JSON for each request.
"""
import http.server
import json
import sys
import threading

sys.path.insert(0, sys.argv[1])

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: E402
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status  # noqa: E402

statuses = sys.argv[2:] or ["200"]
lock = threading.Lock()


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def decoded(span):
    return {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_span_id.hex(),
        "name": span.name,
        "kind": Span.SpanKind.Name(span.kind),
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "flags": span.flags,
        "status": Status.StatusCode.Name(span.status.code),
        "attributes": attributes(span.attributes),
    }


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        message = ExportTraceServiceRequest()
        message.ParseFromString(body)
        # A field that the published messages do not have would be lost here.
        assert message.SerializeToString() is not None and message.ByteSize() == len(body), "unknown fields"
        spans = [
            {**decoded(span), "resource": attributes(of_resource.resource.attributes), "scope": of_scope.scope.name}
            for of_resource in message.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]
        with lock:
            status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
            line = {
                "path": self.path,
                "contentType": self.headers["content-type"],
                "authorization": self.headers.get("authorization"),
                "status": status,
                "spans": spans,
            }
            print(json.dumps(line), flush=True)
        if status == "hang":
            threading.Event().wait()
        code, _, more = status.partition("+")
        response = ExportTraceServiceResponse()
        self.send_response(int(code))
        if more == "partial":
            response.partial_success.rejected_spans = 1
            response.partial_success.error_message = "over quota\n\x1b[31m" + 1000 * "x"
        elif more:
            self.send_header("retry-after", more)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(response.ByteSize()))
        self.end_headers()
        self.wfile.write(response.SerializeToString())

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
