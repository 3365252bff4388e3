//! The tests of texts: configuration files, and the rules of this repository. They start `bearward check` and linters,
//! and a gateway only in `config::large`, which measures a reload as it measures the reading of a file.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(unreachable_pub, reason = "`pub` means `for other tests` here; nothing is exported")]

mod config;
mod house;
#[allow(dead_code, unused_imports, reason = "the other binaries use the rest")]
mod support;
mod workflows;
