//! The stories: one binary, a module for each behaviour.

#![allow(unreachable_pub, reason = "`pub` means `for the other stories` here; nothing is exported")]

mod access_log;
mod admin;
mod audit;
mod authenticate;
mod cache_races;
mod cli;
mod config;
mod corpora;
mod demo;
mod deploy;
mod drain;
mod explain;
mod floors;
mod forward;
mod forwarding;
mod framing;
mod header_hygiene;
mod house;
mod idle;
mod interleavings;
mod keys;
mod killed;
mod limits;
mod observe;
mod openssl;
mod oracle;
mod paths;
mod refresh;
mod reload;
mod replaced_tokens;
mod revoke;
mod rules;
mod source;
mod store;
mod store_failure;
mod support;
mod tls;
mod token_places;
mod upstream_failures;
mod verify;
mod websocket;
