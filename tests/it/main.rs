//! One binary for all integration tests; a module for each behaviour.

mod config;
