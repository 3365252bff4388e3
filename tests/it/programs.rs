//! The stories of programs: the real `bearward`, its packages, stores, databases, and what they survive.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(unreachable_pub, reason = "`pub` means `for other tests` here; nothing is exported")]

mod app;
mod broker;
mod chaos;
mod cli;
mod client_matrix;
mod deploy;
mod packages;
mod store;
#[allow(dead_code, unused_imports, reason = "the other binaries use the rest")]
mod support;
