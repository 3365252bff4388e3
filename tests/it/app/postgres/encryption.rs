//! TLS to the database, and passwords.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;

use super::{folder, gateway, start_error, text};
use crate::support::Upstream;
use crate::support::certificates::Authority;
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::wait::eventually_ok;

const PASSWORD: &[u8] = b"secret\n";

/// A server that asks for passwords, with a certificate for `localhost` from this authority.
fn server(authority: &Authority, files: &Path) -> PostgresServer {
    authority.sign("localhost").write(files, "server");
    // The server reads its key as its own user.
    let server = PostgresServer::start_with(&["max_connections=40"], "scram-sha-256");
    for name in ["server.pem", "server.key"] {
        let to = server.folder.join(name);
        fs::copy(files.join(name), &to).expect("copied");
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("set");
        let own = fs::metadata(server.folder.join("data")).expect("there");
        let (user, group) = (std::os::unix::fs::MetadataExt::uid(&own), std::os::unix::fs::MetadataExt::gid(&own));
        chown(&to, Some(user), Some(group)).expect("owned");
    }
    let place = server.folder.display();
    server.sql("postgres", &format!("alter system set ssl_cert_file = '{place}/server.pem'"));
    server.sql("postgres", &format!("alter system set ssl_key_file = '{place}/server.key'"));
    server.sql("postgres", "alter system set ssl = on");
    server.sql("postgres", "select pg_reload_conf()");
    server
}

#[tokio::test]
async fn the_connection_is_encrypted_and_its_certificate_verified() {
    let (upstream, clock, files) = (Upstream::start(), Arc::new(ManualClock::new()), folder());
    let (authority, other) = (Authority::new(), Authority::new());
    let server = server(&authority, files.path());
    fs::write(files.path().join("ca.pem"), authority.pem()).expect("written");
    fs::write(files.path().join("other.pem"), other.pem()).expect("written");
    bearward::types::secret::write_private(&files.path().join("password"), PASSWORD).expect("written");
    bearward::types::secret::write_private(&files.path().join("wrong"), b"wrong\n").expect("written");
    let keys = |host: &str, query: &str, ca: &str, password: &str| {
        format!(
            "postgres = \"postgres://bearward@{host}:{}/bearward{query}\"\npostgres_ca_file = \"{ca}\"\n\
             postgres_password_file = \"{password}\"\n",
            server.port
        )
    };
    // The host name of the certificate, and a password over a channel that is bound to the certificate.
    let working = keys("localhost", "?channel_binding=require", "ca.pem", "password");
    let running = gateway(&upstream, &working, &files, &clock);
    let pair = running.issue("alice", "").await;
    assert_eq!(running.refresh(&pair.access, &pair.refresh).await.status, 200);
    let sessions = "select bool_and(s.ssl) from pg_stat_ssl s join pg_stat_activity a using (pid)
        where a.application_name like 'bearward/%'";
    assert_eq!(server.sql("postgres", sessions), "t");

    for (keys, says) in [
        (keys("localhost", "", "other.pem", "password"), "name the CA that signed it in store.postgres_ca_file"),
        (
            keys("127.0.0.1", "", "ca.pem", "password"),
            "the certificate of the server is not accepted; correct the host in store.postgres",
        ),
        (keys("localhost", "", "ca.pem", "wrong"), "the user or its password is wrong"),
    ] {
        let error = start_error(&text(&upstream, &keys), files.path());
        assert!(error.contains(says) && !error.contains("secret of"), "{says:?}: {error}");
    }
    let without = working.lines().filter(|line| !line.contains("password")).collect::<Vec<_>>().join("\n");
    let error = start_error(&text(&upstream, &without), files.path());
    assert!(error.contains("the server asks for a password"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_not_used_in_cleartext() {
    let (upstream, files) = (Upstream::start(), folder());
    let server = PostgresServer::shared();
    let keys = format!("postgres = \"postgres://bearward@127.0.0.1:{}/bearward\"", server.port);
    let error = start_error(&text(&upstream, &keys), files.path());
    assert!(error.contains("the server has no TLS"), "{error}");
}

/// An operator has changed the password in the server and in the file. Connections that are lost come back.
#[tokio::test]
async fn a_changed_password_needs_no_restart() {
    let (upstream, clock, files) = (Upstream::start(), Arc::new(ManualClock::new()), folder());
    let server = PostgresServer::start_with(&["fsync=off", "max_connections=40"], "scram-sha-256");
    bearward::types::secret::write_private(&files.path().join("password"), PASSWORD).expect("written");
    let keys = format!("postgres = \"{}\"\npostgres_password_file = \"password\"\n", server.url());
    let running = gateway(&upstream, &keys, &files, &clock);
    let pair = running.issue("alice", "").await;

    server.sql("postgres", "alter role bearward password 'another'");
    fs::write(files.path().join("password"), "another\n").expect("written");
    assert!(server.terminate_connections("bearward/") > 0);
    eventually_ok("it connects with the new password", async || {
        let response = running.refresh(&pair.access, &pair.refresh).await;
        (response.status == 200).then_some(()).ok_or(format!("{response:?}"))
    })
    .await;
}
