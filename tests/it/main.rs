//! The integration tests: one binary, with a folder for each folder of `src`.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(unreachable_pub, reason = "`pub` means `for other tests` here; nothing is exported")]

mod admin;
mod app;
mod auth;
mod broker;
mod chaos;
mod cli;
mod config;
mod deploy;
mod gateway;
mod hostile;
mod house;
mod limits;
mod packages;
mod protocols;
mod server;
mod store;
mod support;
mod telemetry;
mod tokens;
mod types;
mod upstream;
mod workflows;
