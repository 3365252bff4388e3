//! Basic types that every other module uses: time, ids, secrets, reject reasons, steps of a decision.

pub mod barrier;
pub mod boot_time;
pub mod clock;
pub mod clock_step;
pub mod close_reason;
pub mod der;
mod folders;
pub mod ids;
pub mod limit;
pub mod owner;
pub mod pem;
pub mod per_worker;
pub mod private_file;
pub mod process;
pub mod regular_file;
pub mod reject;
pub mod secret;
pub mod step;
pub mod thumbprint;
