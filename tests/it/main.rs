//! The stories: one binary, a module for each behaviour.

#![allow(unreachable_pub, reason = "`pub` means `for the other stories` here; nothing is exported")]

mod authenticate;
mod config;
mod deploy;
mod floors;
mod house;
mod keys;
mod reload;
mod source;
mod store;
mod support;
