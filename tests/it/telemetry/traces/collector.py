"""A collector of traces: decodes OTLP over HTTP with the messages that OpenTelemetry publishes.

Arguments: the folder of the Python modules, then the statuses of the responses, of which the last one repeats; `hang`
stands for no response. Prints its port, then one line of JSON for each request.
"""
import http.server
import json
import sys
import threading

sys.path.insert(0, sys.argv[1])

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
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
        self.send_response(int(status))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
