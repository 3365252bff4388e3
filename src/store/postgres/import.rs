//! Fills an empty database with the content of another store.
//!
//! Rows are written in pages, each of which is one statement. A mark stands in the database until all of them are
//! there: no gateway starts before, and the next attempt begins with empty tables.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_postgres::Row;

use crate::store::copy::{Checksum, ClientMark, Counters, Part, Record, SubjectMark};
use crate::store::error::StoreError;
use crate::store::postgres::acme;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::endings::{self, ending_columns};
use crate::store::postgres::error::QueryError;
use crate::store::postgres::import_rows::write;
use crate::store::postgres::inspect::connect;
use crate::store::postgres::maintenance;
use crate::store::postgres::mark_rows;
use crate::store::postgres::provider_logins::{self, login_columns};
use crate::store::postgres::roots::{self, IS_UNFINISHED, RootCheck};
use crate::store::postgres::rows::{self, family_columns, get, read_counter, read_text, read_time, revocation_columns};
use crate::store::postgres::schema;
use crate::store::postgres::session::Session;
use crate::store::postgres::settings::PostgresSettings;
use crate::store::postgres::signing_keys;
use crate::store::postgres::tls::Tls;
use crate::tokens::audit_event::Recorded;
use crate::types::clock::UnixTime;
use crate::types::secret;

/// Number of rows that are read at once.
const PAGE: i64 = 2_000;

const IS_USED: &str = "select exists (select from families) or exists (select from revocations)
    or exists (select from subjects) or exists (select from marks) or exists (select from provider_logins)
    or exists (select from acme) or exists (select from clients)
    or exists (select from signing_keys) or exists (select from audit)
    or exists (select from meta m where m.name = 'revocation_sequence' and m.value > 0)";
const BEGIN: &str = "insert into meta (name, value) values ('copy', 1) on conflict (name) do nothing";
const CLEAR: &str = "truncate families, revocations, subjects, clients, signing_keys, audit, endings, marks,
    provider_logins, acme, root_check";
const RAISE: &str = "update meta set value = greatest(value, $2) where name = $1";
/// The tag is that of the newest entry, or a new one if that was deleted.
const SEQUENCE: &str = "update meta set value = $1,
        tag = case when $1 = 0 then ''::bytea else coalesce((select r.tag from revocations r where r.sequence = $1), $2)
            end
    where name = 'revocation_sequence'";
const EVENT_SEQUENCE: &str = "select setval(pg_get_serial_sequence('audit', 'sequence'), greatest($1, 1), $1 > 0)";
const END: &str = "with changed as (update meta set value = value + 1 where name = 'signing_keys')
    delete from meta where name = 'copy'";

const FAMILIES: &str = concat!("select ", family_columns!(), " from families f where f.id > $1 order by f.id limit $2");
const REVOCATIONS: &str =
    concat!("select ", revocation_columns!(), " from revocations r where r.sequence > $1 order by r.sequence limit $2");
const SUBJECTS: &str = "select s.subject, s.not_after, s.needed_until from subjects s
    where s.subject > $1 order by s.subject limit $2";
const CLIENTS: &str = "select c.client_id, c.subject, c.not_after, c.needed_until from clients c
    where (c.client_id, c.subject) > ($1, $2) order by c.client_id, c.subject limit $3";
const EVENTS: &str = "select a.sequence, a.event from audit a where a.sequence > $1 order by a.sequence limit $2";

const ENDINGS: &str =
    concat!("select ", ending_columns!(), " from endings e where e.sequence > $1 order by e.sequence limit $2");

const MARKS: &str = "select m.id, m.kind, m.value, m.until from marks m where m.id > $1 order by m.id limit $2";

const LOGINS: &str =
    concat!("select ", login_columns!(), " from provider_logins l where l.id > $1 order by l.id limit $2");

/// A database that is being filled. Not for a thread that drives a runtime.
pub struct Import {
    runtime: Runtime,
    session: Session,
}

impl Import {
    /// Creates the tables if they are missing.
    ///
    /// # Errors
    /// If the database is not empty, except for the rows of an interrupted copy, which are removed.
    pub fn begin(settings: &PostgresSettings, tls: Option<Tls>, now: UnixTime) -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::new(format!("cannot create a runtime: {error}")))?;
        let connector = Connector::new(settings.clone(), tls, "copy");
        let begun = runtime.block_on(async {
            let session = connect(&connector, Duration::ZERO).await.map_err(QueryError::from)?;
            schema::prepare(&session, &settings.schema, now).await?;
            if !session.is(IS_UNFINISHED).await? && session.is(IS_USED).await? {
                return Err(StoreError::new(format!(
                    "the schema \"{}\" is not empty; copy to another one, or empty it: DROP SCHEMA {0} CASCADE",
                    settings.schema
                ))
                .into());
            }
            session.execute(BEGIN, &[]).await?;
            session.batch(CLEAR).await?;
            Ok(session)
        });
        match begun {
            Ok(session) => Ok(Import { runtime, session }),
            Err(error) => {
                // Does not wait for a name server that does not respond.
                runtime.shutdown_background();
                Err(QueryError::into_store_error(error))
            }
        }
    }

    /// Writes one page. All records are of the same part.
    pub fn write(&self, records: &[Record]) -> Result<(), StoreError> {
        self.runtime.block_on(write(&self.session, records)).map_err(QueryError::into_store_error)
    }

    /// The checksum of what the database contains. Calls `each` with the number of records after each page.
    pub fn checksum(&self, part: Part, each: &mut dyn FnMut(u64)) -> Result<Checksum, StoreError> {
        self.runtime.block_on(checksum(&self.session, part, each)).map_err(QueryError::into_store_error)
    }

    /// Sets the counters, and lets gateways with these root secrets start.
    pub fn end(self, counters: &Counters, roots: &[RootCheck], now: UnixTime) -> Result<(), StoreError> {
        let ended = self.runtime.block_on(async {
            roots::add(&self.session, roots, now).await?;
            end(&self.session, counters).await
        });
        self.runtime.shutdown_background();
        ended.map_err(QueryError::into_store_error)
    }
}

async fn end(session: &Session, counters: &Counters) -> Result<(), QueryError> {
    for (name, value) in [
        ("watermark", counters.watermark),
        ("longest_life", counters.longest_life),
        ("longest_family", counters.longest_family),
    ] {
        session.execute(RAISE, &[&name, &rows::counter(value)?]).await?;
    }
    // A gateway with a longer lifetime may have created the tables.
    let longest = maintenance::longest_ever(session, "longest_life", Duration::ZERO).await?;
    maintenance::keep_revocations_for(session, longest).await?;
    let tag = secret::random::<16>().to_vec();
    session.execute(SEQUENCE, &[&rows::counter(counters.revocation_sequence)?, &tag]).await?;
    session.query(EVENT_SEQUENCE, &[&rows::counter(counters.event_sequence)?]).await?;
    session.execute(END, &[]).await?;
    Ok(())
}

async fn checksum(session: &Session, part: Part, each: &mut dyn FnMut(u64)) -> Result<Checksum, QueryError> {
    let mut checksum = Checksum::default();
    if part == Part::SigningKeys {
        let (_, keys) = signing_keys::read_all(session).await?;
        keys.into_iter().for_each(|key| checksum.add(&Record::SigningKey(key)));
        return Ok(checksum);
    }
    let mut after_text = String::new();
    let mut after_subject = String::new();
    let mut after_number = i64::MIN;
    let mut after_bytes = Vec::<u8>::new();
    loop {
        let page = match part {
            Part::Families => session.query(FAMILIES, &[&after_text, &PAGE]).await?,
            Part::Subjects => session.query(SUBJECTS, &[&after_text, &PAGE]).await?,
            Part::Clients => session.query(CLIENTS, &[&after_text, &after_subject, &PAGE]).await?,
            Part::Revocations => session.query(REVOCATIONS, &[&after_number, &PAGE]).await?,
            Part::Endings => session.query(ENDINGS, &[&after_number, &PAGE]).await?,
            Part::Marks => session.query(MARKS, &[&after_bytes, &PAGE]).await?,
            Part::ProviderLogins => session.query(LOGINS, &[&after_text, &PAGE]).await?,
            Part::Acme => session.query(acme::PAGE, &[&after_text, &PAGE]).await?,
            Part::Events | Part::SigningKeys => session.query(EVENTS, &[&after_number, &PAGE]).await?,
        };
        for row in &page {
            checksum.add(&record(part, row)?);
        }
        let Some(last) = page.last() else { return Ok(checksum) };
        each(checksum.count);
        match part {
            Part::Families => after_text = get(last, "id")?,
            Part::Subjects => after_text = get(last, "subject")?,
            Part::Clients => {
                after_text = get(last, "client_id")?;
                after_subject = get(last, "subject")?;
            }
            Part::Marks => after_bytes = get(last, "id")?,
            Part::ProviderLogins => after_text = get(last, "login_id")?,
            Part::Acme => after_text = get(last, "name")?,
            Part::Revocations | Part::Endings | Part::Events | Part::SigningKeys => {
                after_number = get(last, "sequence")?
            }
        }
    }
}

fn record(part: Part, row: &Row) -> Result<Record, StoreError> {
    Ok(match part {
        Part::Families => Record::Family(Box::new(rows::family(row)?)),
        Part::Revocations => Record::Revocation(rows::revocation(row)?),
        Part::Endings => Record::Ending(endings::read(row)?),
        Part::Marks => Record::Mark(mark_rows::read(row)?),
        Part::ProviderLogins => Record::ProviderLogin(Box::new(provider_logins::read(row)?)),
        Part::Acme => Record::Acme(acme::read(row)?),
        Part::Subjects => Record::Subject(SubjectMark {
            subject: read_text(row, "subject")?,
            not_after: read_time(row, "not_after")?,
            needed_until: read_time(row, "needed_until")?,
        }),
        Part::Clients => Record::Client(ClientMark {
            client_id: read_text(row, "client_id")?,
            subject: read_text(row, "subject")?,
            not_after: read_time(row, "not_after")?,
            needed_until: read_time(row, "needed_until")?,
        }),
        Part::Events | Part::SigningKeys => {
            Record::Event(Recorded { sequence: read_counter(row, "sequence")?, event: get(row, "event")? })
        }
    })
}
