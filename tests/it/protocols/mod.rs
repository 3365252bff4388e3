//! The edges: TLS, framing, headers, paths, PROXY protocol, gRPC.

pub mod forwarded;
pub mod framing;
pub mod grpc;
pub mod headers;
pub mod paths;
pub mod proxy_protocol;
pub mod tls;
