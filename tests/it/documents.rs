//! The tests of texts: configuration files, and the rules of this repository. They start no gateway in this process.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(unreachable_pub, reason = "`pub` means `for other tests` here; nothing is exported")]

mod config;
mod house;
#[allow(dead_code, unused_imports, reason = "the other binaries use the rest")]
mod support;
mod workflows;
