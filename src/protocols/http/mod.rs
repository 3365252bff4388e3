//! The parts of HTTP/1.1 and HTTP/2 that the gateway handles itself: framing, headers, targets, bodies, its own
//! responses.

pub mod body;
pub mod challenges;
pub mod client;
pub mod client_cert;
pub mod content_coding;
pub mod field_list;
pub mod forwarded;
pub mod framing;
pub mod header_list;
pub mod header_rules;
pub mod headers;
pub mod media_type;
pub mod name_pattern;
pub mod parameters;
pub mod path;
pub mod path_prefix;
pub mod poll_activity;
pub mod readings;
pub mod redirects;
pub mod removed_fields;
pub mod respond;
pub mod target;
pub mod trace_context;
