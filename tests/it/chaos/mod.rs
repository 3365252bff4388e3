//! Gateways on one PostgreSQL while processes, networks and the database fail.
//!
//! Each case sends load, makes a fault, and gives the recorded history to the checkers. `controls` shows that each
//! checker finds the fault that it is there for. `tests/run` runs five cases; `tests/chaos` runs all of them.

mod cases;
mod checkers;
mod cluster;
mod controls;
mod fault_proxy;
mod load;
