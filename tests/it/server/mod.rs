//! Client connections: idle connections and lingering close.

pub mod idle;
pub mod lingering_close;
