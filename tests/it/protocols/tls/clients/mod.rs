//! Certificates of clients: which handshakes succeed, and for how long a connection lasts.

mod connections;
mod handshakes;
mod lists;
mod parties;
mod resumption;
