//! `[trace]`: what a collector and the backends get.

mod collector;
mod context;
mod limits;
mod spans;
