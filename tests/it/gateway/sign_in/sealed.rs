//! The tokens of a provider in the store: a reader of the store sees none of them, and they outlive a new root secret.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bearward::admin::SecretSource;
use bearward::app;
use rusqlite::Connection;

use super::refresh::{KEYS, is_refreshed, provider};
use super::{APP, everything, folder, is_ready};
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, OidcProvider, Upstream};

/// Where the sessions are.
enum Stored {
    Sqlite(std::path::PathBuf),
    /// Its schema.
    Postgres(String),
}

impl Stored {
    /// What a reader of the file, or of a dump of the database, sees.
    fn content(&self) -> String {
        match self {
            Stored::Sqlite(path) => {
                let files = [path.clone(), path.with_extension("db-wal")];
                let bytes = files.map(|file| std::fs::read(file).expect("read")).concat();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Stored::Postgres(schema) => PostgresServer::shared().sql(
                "bearward",
                &format!(
                    "select (select string_agg(f::text, ' ') from {schema}.families f) \
                     || (select string_agg(encode(l.sealed, 'escape') || l::text, ' ') from {schema}.provider_logins l)"
                ),
            ),
        }
    }

    /// The root secret that seals the tokens of the newest login.
    fn root(&self) -> String {
        let sql = |table: &str| format!("select root from {table} order by began_at desc limit 1");
        match self {
            Stored::Sqlite(path) => {
                let database = Connection::open(path).expect("opened");
                let root: i64 =
                    database.query_row(&sql("provider_logins"), [], |row| row.get(0)).expect("the row of a login");
                root.to_string()
            }
            Stored::Postgres(schema) => {
                PostgresServer::shared().sql("bearward", &sql(&format!("{schema}.provider_logins")))
            }
        }
    }

    /// Asserts that no token of the provider, and no handle of a browser, is in the store.
    async fn assert_sealed(&self, provider: &OidcProvider, alice: &Visitor) {
        let content = self.content();
        assert!(content.contains("main|alice"), "the search finds what is there");
        let issued = provider.log("token").await;
        let tokens = issued.iter().flat_map(|call| {
            ["access_token", "refresh_token", "id_token"].map(|name| call["body"][name].as_str().map(str::to_owned))
        });
        let handle = alice.session().and_then(|handle| handle.rsplit('_').next()).map(str::to_owned);
        let secrets: Vec<_> = tokens.flatten().chain(handle).collect();
        assert!(secrets.len() >= 4, "three tokens and a handle: {issued:?}");
        for secret in secrets {
            assert!(!content.contains(&secret), "{secret} is in the store");
        }
    }
}

fn secret_of(folder: &Path) -> std::path::PathBuf {
    folder.join("bearward.secret")
}

/// The steps of `deploy/keys.md`.
async fn a_login_outlives_a_new_root_secret(store: Option<String>) {
    let (provider, upstream, folder) = (provider(), Upstream::start(), folder());
    let section = store.as_ref().map(|keys| format!("[store]\n{keys}\n")).unwrap_or_default();
    let text = format!("{section}{}", everything(&provider.issuer, KEYS));
    let text = Gateway::config_text(&upstream.address.to_string(), &text);
    let stored = match &store {
        // The last key is the schema.
        Some(keys) => Stored::Postgres(keys.rsplit('"').nth(1).expect("a schema").to_owned()),
        None => Stored::Sqlite(folder.path().join("bearward.db")),
    };
    let mut gateway = Gateway::in_folder(text, folder.clone(), Arc::new(ManualClock::new()));
    is_ready(gateway.address()).await;
    let mut alice = Visitor::of(&gateway);
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
    stored.assert_sealed(&provider, &alice).await;
    assert_eq!(stored.root(), "1");

    app::add_root(&SecretSource::File(secret_of(folder.path()))).expect("added");
    // With PostgreSQL, the second start uses it.
    for _ in 0..2 {
        gateway = gateway.restart();
    }
    is_ready(gateway.address()).await;
    alice.move_to(&gateway);
    gateway.advance(Duration::from_secs(700));
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    is_refreshed(&provider, 1).await;
    eventually_ok("the new tokens are sealed with the new root secret", async || match &*stored.root() {
        "2" => Ok(()),
        root => Err(root.to_owned()),
    })
    .await;
    stored.assert_sealed(&provider, &alice).await;
    let handle = alice.session().expect("a session").to_owned();

    // The old one has leaked, and the operator removes it at once. The user signs in again, and sees nothing of it.
    let secrets = std::fs::read_to_string(secret_of(folder.path())).expect("read");
    std::fs::write(secret_of(folder.path()), secrets.lines().last().expect("the newest")).expect("written");
    let gateway = gateway.restart();
    is_ready(gateway.address()).await;
    alice.move_to(&gateway);
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
    assert_ne!(alice.session(), Some(&*handle));
    stored.assert_sealed(&provider, &alice).await;
}

#[tokio::test]
async fn a_login_in_sqlite_outlives_a_new_root_secret() {
    a_login_outlives_a_new_root_secret(None).await;
}

#[tokio::test]
async fn a_login_in_postgresql_outlives_a_new_root_secret() {
    a_login_outlives_a_new_root_secret(Some(PostgresServer::shared().store_keys())).await;
}
