//! The stories of a gateway that runs in the process of the test, on real sockets with a real store.
//!
//! The integration tests are three binaries, so that an edit of a story compiles and links little: this one,
//! `programs.rs` and `documents.rs`. Each has a folder for each folder of `src` that it tests, and all have `support`.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(unreachable_pub, reason = "`pub` means `for other tests` here; nothing is exported")]

mod admin;
mod auth;
mod gateway;
mod hostile;
mod limits;
mod protocols;
mod server;
#[allow(dead_code, unused_imports, reason = "the other binaries use the rest")]
mod support;
mod telemetry;
mod tokens;
mod types;
mod upstream;
