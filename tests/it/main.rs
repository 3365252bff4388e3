//! The stories: one binary, a module for each behaviour.

mod authenticate;
mod config;
mod store;
mod support;
