//! The protocols: TLS, HTTP framing, headers, paths, PROXY protocol and gRPC.

pub mod forwarded;
pub mod framing;
pub mod grpc;
pub mod grpc_limits;
pub mod headers;
pub mod paths;
pub mod proxy_protocol;
pub mod removed_headers;
pub mod tls;
