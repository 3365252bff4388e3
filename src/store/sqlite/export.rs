//! Reads everything of a database that no gateway uses, to move it to another store.

use std::path::Path;
use std::time::Duration;

use rusqlite::Row;

use crate::store::copy::{ClientMark, Counters, Part, Record, SubjectMark};
use crate::store::error::StoreError;
use crate::store::sqlite::file::{self, Opened};
use crate::store::sqlite::rows::{self, read_counter};
use crate::store::sqlite::{acme, endings, marks, provider_logins, signing_keys};
use crate::tokens::audit_event::Recorded;

/// An open database. No gateway can open it meanwhile.
pub struct Export {
    opened: Opened,
}

impl Export {
    /// # Errors
    /// If there is no database, or a gateway uses it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if file::open_read_only(path)?.is_none() {
            return Err(StoreError::new(format!("there is no database {}", path.display())));
        }
        Ok(Export { opened: file::open(path, Duration::ZERO)? })
    }

    pub fn counters(&self) -> Result<Counters, StoreError> {
        let read = |sql: &str| -> Result<u64, StoreError> {
            let value: Option<i64> = self.opened.connection.query_row(sql, [], |row| row.get(0))?;
            Ok(value.unwrap_or(0).unsigned_abs())
        };
        let meta = |name: &str| read(&format!("select max(value) from meta where name = '{name}'"));
        Ok(Counters {
            revocation_sequence: meta("revocation_sequence")?,
            event_sequence: read("select max(seq) from sqlite_sequence where name = 'audit'")?,
            watermark: meta("watermark")?,
            longest_life: meta("longest_life")?,
            longest_family: meta("longest_family")?,
        })
    }

    pub fn count(&self, part: Part) -> Result<u64, StoreError> {
        let sql = format!("select count(*) from {}", table(part));
        let count: i64 = self.opened.connection.query_row(&sql, [], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// Calls `each` with pages of at most `page` records.
    pub fn read(
        &self,
        part: Part,
        page: usize,
        each: &mut dyn FnMut(Vec<Record>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        // The order of creation: that of keys of the same millisecond counts.
        let sql = format!("select * from {} order by rowid", table(part));
        let mut statement = self.opened.connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        let mut records = Vec::with_capacity(page);
        while let Some(row) = rows.next()? {
            records.push(record(part, row)?);
            if records.len() == page {
                each(std::mem::replace(&mut records, Vec::with_capacity(page)))?;
            }
        }
        if records.is_empty() { Ok(()) } else { each(records) }
    }
}

const fn table(part: Part) -> &'static str {
    match part {
        Part::Families => "families",
        Part::Revocations => "revocations",
        Part::Subjects => "subjects",
        Part::Clients => "clients",
        Part::SigningKeys => "signing_keys",
        Part::Events => "audit",
        Part::Endings => "endings",
        Part::Marks => "marks",
        Part::ProviderLogins => "provider_logins",
        Part::Acme => "acme",
    }
}

fn record(part: Part, row: &Row<'_>) -> Result<Record, StoreError> {
    Ok(match part {
        Part::Families => Record::Family(Box::new(rows::family(row)?)),
        Part::Revocations => Record::Revocation(rows::revocation(row)?),
        Part::Subjects => Record::Subject(SubjectMark {
            subject: row.get("subject")?,
            not_after: row.get("not_after")?,
            needed_until: row.get("needed_until")?,
        }),
        Part::Clients => Record::Client(ClientMark {
            client_id: row.get("client_id")?,
            subject: row.get("subject")?,
            not_after: row.get("not_after")?,
            needed_until: row.get("needed_until")?,
        }),
        Part::SigningKeys => Record::SigningKey(signing_keys::read(row)?),
        Part::Events => Record::Event(Recorded { sequence: read_counter(row, "sequence")?, event: row.get("event")? }),
        Part::Endings => Record::Ending(endings::read(row)?),
        Part::Marks => Record::Mark(marks::read(row)?),
        Part::ProviderLogins => Record::ProviderLogin(Box::new(provider_logins::read(row)?)),
        Part::Acme => Record::Acme(acme::read(row)?),
    })
}
