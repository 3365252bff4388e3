//! The follower without a database.

mod interrupted;
mod model;
mod task;
