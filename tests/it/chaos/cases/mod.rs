//! The faults: of gateways, of the network, of the database, and of what the gateways share.

mod clocks;
mod database;
mod database_clocks;
mod lost;
mod machine_clocks;
mod network;
mod patroni;
mod pauses;
mod readiness;
mod replicas;
mod sharing;
