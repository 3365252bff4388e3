//! `bearward schema`: the JSON Schema of `gateway.toml`.

use super::error::CommandError;
use crate::config;

pub(super) fn run() -> Result<(), CommandError> {
    println!("{:#}", config::schema());
    Ok(())
}
