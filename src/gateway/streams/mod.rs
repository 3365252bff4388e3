//! Streams end with their token: within a second of its expiry, of its revocation, or of the revocation of its key.
//! A WebSocket or a response also ends with its route, if a reload takes it away or makes it reject the request.
//!
//! A stream is a WebSocket, or a request that is still in flight after
//! [`crate::protocols::http::body::LONG_RUNNING_AFTER`]: its response, its upload, or the wait for its response.
//! Shorter requests are never registered here and pay nothing.
//!
//! [`Streams`] holds the open streams of one worker and ends them. How a stream ends in its own protocol is up to its
//! owner: [`TokenBound`] for bodies, `protocols/websocket` for WebSockets. [`DrainBehavior`] says what a graceful
//! shutdown does to it.

mod basis;
mod drain_behavior;
mod grpc;
mod registry;
mod reroute;
mod token_bound;

pub use basis::{Held, HeldToken, TokenChecks};
pub use drain_behavior::DrainBehavior;
pub use registry::{OpenStream, Streams};
pub use reroute::ActiveRoutes;
pub use token_bound::{Termination, TokenBound};
