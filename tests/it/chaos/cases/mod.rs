//! The faults: of gateways, of the network, of the database, and of what the gateways share.

mod database;
mod network;
mod replicas;
mod sharing;
