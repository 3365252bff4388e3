//! Client connections: idle connections, lingering close, rejected uploads.

pub mod idle;
pub mod linger_slots;
pub mod lingering_close;
pub mod rejected_uploads;
