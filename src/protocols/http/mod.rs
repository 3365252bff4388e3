//! What HTTP/1.1 and HTTP/2 ask of a request and its response: framing, headers, paths, bodies.

pub mod body;
pub mod client;
pub mod field_list;
pub mod forwarded;
pub mod framing;
pub mod headers;
pub mod media_type;
pub mod path;
pub mod poll_notes;
pub mod respond;
pub mod target;
