//! To good traffic the gateway is not there: what a client sent arrives, and what the backend answers comes back.

mod bodies;
mod changes;
mod connections;
mod faithful;
mod protocols;
mod semantics;
