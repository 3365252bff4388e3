//! The stories: one binary, a module for each behaviour.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(unreachable_pub, reason = "`pub` means `for the other stories` here; nothing is exported")]

mod admin;
mod app;
mod auth;
mod broker;
mod cli;
mod config;
mod deploy;
mod gateway;
mod hostile;
mod house;
mod limits;
mod protocols;
mod server;
mod store;
mod support;
mod telemetry;
mod tokens;
mod upstream;
