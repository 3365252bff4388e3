//! The database that a gateway uses.

use crate::store::postgres::settings::PostgresSettings;
use crate::store::postgres::tls::Tls;

/// Where the database is, and which gateway uses it.
pub struct Database {
    pub settings: PostgresSettings,
    /// May only be `None` if the URL says `sslmode=disable`.
    pub tls: Option<Tls>,
    /// The name of this gateway, which no other one has.
    pub replica: String,
}
