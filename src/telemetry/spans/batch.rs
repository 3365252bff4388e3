//! The message that a collector accepts: `ExportTraceServiceRequest` of OTLP 1, with the spans of many requests.

use bytes::Bytes;

use crate::protocols::protobuf::Message;

// ExportTraceServiceRequest
const RESOURCE_SPANS: u32 = 1;
// ResourceSpans
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
// Resource
const ATTRIBUTES: u32 = 1;
// ScopeSpans
const SCOPE: u32 = 1;
pub(super) const SPANS: u32 = 2;
// InstrumentationScope
const NAME: u32 = 1;
const VERSION: u32 = 2;
// KeyValue, AnyValue
const KEY: u32 = 1;
const VALUE: u32 = 2;
const TEXT: u32 = 1;
const INTEGER: u32 = 3;

/// The value of an attribute.
pub(super) enum Value<'a> {
    Text(&'a str),
    Integer(u64),
}

/// Appends an attribute as field `field` of a message.
pub(super) fn attribute(message: &mut Message, field: u32, key: &str, value: Value<'_>) {
    message.message(field, |attribute| {
        attribute.bytes(KEY, key.as_bytes());
        attribute.message(VALUE, |any| match value {
            Value::Text(text) => any.bytes(TEXT, text.as_bytes()),
            Value::Integer(number) => any.number(INTEGER, number),
        });
    });
}

/// `requests`: the encoded spans of one request each.
pub(super) fn encode(requests: &[Vec<u8>]) -> Bytes {
    let name = env!("CARGO_PKG_NAME");
    let version = env!("CARGO_PKG_VERSION");
    let mut request = Message::default();
    request.message(RESOURCE_SPANS, |spans| {
        spans.message(RESOURCE, |resource| {
            attribute(resource, ATTRIBUTES, "service.name", Value::Text(name));
            attribute(resource, ATTRIBUTES, "service.version", Value::Text(version));
        });
        spans.message(SCOPE_SPANS, |of_scope| {
            of_scope.message(SCOPE, |scope| {
                scope.bytes(NAME, name.as_bytes());
                scope.bytes(VERSION, version.as_bytes());
            });
            requests.iter().for_each(|spans| of_scope.0.extend_from_slice(spans));
        });
    });
    request.0.into()
}
