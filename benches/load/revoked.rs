//! Writes live revocations to the store of a gateway that is not running.

use std::path::Path;
use std::time::Duration;

use bearward::types::clock::{Clock, SystemClock};
use bearward::types::ids::TokenId;
use rusqlite::{Connection, params};

use crate::Outcome;

const HOUR: Duration = Duration::from_secs(3600);

/// Revokes `count` families for the next hour. No token that this bench sends belongs to one of them.
pub fn fill(path: &Path, count: u32) -> Outcome<()> {
    let mut database = Connection::open(path)?;
    database.execute_batch("pragma synchronous = off")?;
    let (now, transaction) = (SystemClock.now(), database.transaction()?);
    let (at, until) = (i64::try_from(now.as_millis())?, i64::try_from((now + HOUR).as_millis())?);
    {
        let sql = "insert into revocations (sequence, kind, name, at, until) values (?1, 'family', ?2, ?3, ?4)";
        let mut insert = transaction.prepare(sql)?;
        for sequence in 1..=count {
            // Spread over all bits, like real ids.
            let id = u128::from(sequence).wrapping_mul(0xc2b2_ae3d_27d4_eb4f_9e37_79b9_7f4a_7c15);
            let name = TokenId::from_bytes(id.to_be_bytes()).to_string();
            insert.execute(params![sequence, name, at, until])?;
        }
    }
    transaction.execute("update meta set value = ?1 where name = 'revocation_sequence'", [count])?;
    transaction.commit()?;
    Ok(())
}
