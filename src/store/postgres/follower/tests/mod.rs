//! The follower without a database.

mod model;
mod task;
