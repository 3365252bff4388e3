//! The stories: one binary, a module for each behaviour.

#![allow(unreachable_pub, reason = "`pub` means `for the other stories` here; nothing is exported")]

mod admin;
mod authenticate;
mod config;
mod refresh;
mod revoke;
mod store;
mod store_failure;
mod support;
