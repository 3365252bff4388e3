//! The edges of the process: TLS, sockets, the PROXY protocol, HTTP, gRPC and WebSocket.

pub mod boundaries;
pub mod coalescing_stream;
pub mod grpc;
pub mod http;
pub mod local_socket;
pub mod protobuf;
pub mod proxy_protocol;
pub mod reach;
pub mod socket;
pub mod socket_handover;
pub mod tls;
pub mod url;
pub mod websocket;
