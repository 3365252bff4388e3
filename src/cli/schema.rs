//! `bearward schema`: the JSON Schema of `gateway.toml`.

use super::error::CommandError;
use super::output::say;
use crate::config;

pub(super) fn run() -> Result<(), CommandError> {
    say!("{:#}", config::schema());
    Ok(())
}
