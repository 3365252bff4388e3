//! The gateway reloads files that change on disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bearward::types::clock::{Clock, SystemClock};
use bearward::types::secret;
use http::StatusCode;
use rcgen::{CertifiedKey, SerialNumber, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use super::{soon, write};
use crate::support::certificates::Authority;
use crate::support::gateway::FILE_POLL;
use crate::support::mutual_tls::MutualClient;
use crate::support::program::GatewayProcess;
use crate::support::{Client, Gateway, Upstream};

async fn status(gateway: &Gateway, path: &str) -> StatusCode {
    gateway.client().get(path).await.status
}

/// A gateway that requires no token, with this value of `watch`.
fn gateway(upstream: &Upstream, watch: &str) -> Gateway {
    gateway_in(TempDir::new().expect("a folder"), upstream, watch, "")
}

/// `more`: keys before the first table.
fn gateway_in(folder: TempDir, upstream: &Upstream, watch: &str, more: &str) -> Gateway {
    let text = Gateway::public_config(upstream.address, "");
    Gateway::in_file(format!("watch = \"{watch}\"\n{more}{text}"), folder)
}

/// Lets the gateway look at its files a few times. What does not happen in this time has no condition to wait for.
async fn some_polls() {
    tokio::time::sleep(10 * FILE_POLL).await;
}

#[tokio::test]
async fn a_changed_file_is_loaded_and_a_truncated_one_is_ignored() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "all");
    let text = gateway.configuration();
    let closed = text.replace("public = true", "public = false");
    write(gateway.path(), &closed);
    soon("the settings are active", async || status(&gateway, "/").await == 401).await;

    // Only half of the file is written, and it stays so.
    write(gateway.path(), &format!("{}\n[[route", &text[..text.len() / 2]));
    soon("the failed reload is reported", async || gateway.metric("bearward_reload_succeeded").await == 0.0).await;
    some_polls().await;
    assert_eq!(
        gateway.metric("bearward_reloads_total{outcome=\"failed\"}").await,
        1.0,
        "the gateway reports the same fault once"
    );
    assert_eq!(status(&gateway, "/").await, 401, "the settings are unchanged");

    write(gateway.path(), text);
    soon("the settings are active", async || status(&gateway, "/").await == 200).await;
    assert_eq!(gateway.metric("bearward_reload_succeeded").await, 1.0);
}

#[tokio::test]
async fn watch_off_waits_for_a_reload_command() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "off");
    write(gateway.path(), &gateway.configuration().replace("public = true", "public = false"));
    some_polls().await;
    assert_eq!(status(&gateway, "/").await, 200);
    assert_eq!(gateway.metric("bearward_reloads_total{outcome=\"succeeded\"}").await, 0.0);
    assert_eq!(gateway.admin_client().post("/admin/v1/reload", &serde_json::json!({})).await.status, 200);
    assert_eq!(status(&gateway, "/").await, 401, "the reload command loads the file");
}

#[tokio::test]
async fn included_files_are_watched() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("conf.d")).expect("created");
    let gateway = gateway_in(folder, &upstream, "all", "include = [\"conf.d/*.toml\"]\n");
    let becomes = async |expected: u16, what: &str| soon(what, async || status(&gateway, "/a").await == expected).await;
    becomes(200, "it is public").await;
    let file = gateway.path().join("conf.d/a.toml");
    fs::write(&file, "[[route]]\npath = \"/a\"\n").expect("written");
    becomes(401, "a new file is read").await;
    fs::write(&file, "[[route]]\npath = \"/a\"\npublic = true\n").expect("written");
    becomes(200, "a changed file is read").await;
    fs::write(&file, "[[route]]\npath = \"/a\"\n").expect("written");
    becomes(401, "it needs a token").await;
    fs::remove_file(&file).expect("removed");
    becomes(200, "a removed file is noticed").await;
}

fn make_pair(folder: &Path) -> String {
    make_pair_with_mode(folder, 0o600)
}

fn make_pair_with_mode(folder: &Path, mode: u32) -> String {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    // Renames replace both files atomically, so that the gateway never reads half of one.
    for (name, content) in [("a.pem", cert.pem()), ("a.key", signing_key.serialize_pem())] {
        secret::write_private(&folder.join("new"), content.as_bytes()).expect("written");
        fs::set_permissions(folder.join("new"), fs::Permissions::from_mode(mode)).expect("set");
        fs::rename(folder.join("new"), folder.join(name)).expect("renamed");
    }
    cert.pem()
}

/// After the reload the gateway watches other files. That is no change of these files.
#[tokio::test]
async fn a_change_of_the_watched_files_reloads_once() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "all");
    make_pair(gateway.path());
    let tls = "tls = { certificate = \"a.pem\", key = \"a.key\" }";
    let text = gateway.configuration().to_owned();
    for (times, text) in [(1.0, text.replace("tls = \"self-signed\"", tls)), (2.0, text)] {
        write(gateway.path(), &text);
        let reloads = async || gateway.metric("bearward_reloads_total{outcome=\"succeeded\"}").await;
        soon("the settings are active", async || reloads().await >= times).await;
        some_polls().await;
        assert_eq!(reloads().await, times);
    }
}

/// A revocation list is a file that others write. No signal follows.
#[tokio::test]
async fn a_new_revocation_list_is_loaded_without_a_reload() {
    let (upstream, authority) = (Upstream::start(), Authority::new());
    let folder = TempDir::new().expect("a folder");
    let tomorrow = SystemClock.now().as_secs() + 24 * 60 * 60;
    let replace = |revoked: &[u64]| {
        fs::write(folder.path().join("new"), authority.revocation_list(revoked, tomorrow)).expect("written");
        fs::rename(folder.path().join("new"), folder.path().join("clients.crl")).expect("renamed");
    };
    fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
    replace(&[9]);
    let tls = "tls = \"self-signed\"";
    let asking = "client_certificate = \"required\"\nclient_ca = \"clients.pem\"\nclient_crl = [\"clients.crl\"]";
    let text = Gateway::public_config(upstream.address, "").replacen(tls, &format!("{tls}\n{asking}"), 1);
    write(folder.path(), &text);
    let served = GatewayProcess::start(folder.path());
    let numbered = |serial: u64| {
        let signed = authority.client(|params| params.serial_number = Some(SerialNumber::from(serial)));
        let certificate = folder.path().join("tls/self-signed.pem");
        MutualClient::to(served.addresses[1], &certificate, rustls::ALL_VERSIONS, Some(signed.pair(&[])))
    };
    let (revoked, other) = (numbered(1), numbered(2));
    assert_eq!((revoked.status("/", "").await, other.status("/", "").await), (200, 200));
    replace(&[9, 1]);
    soon("the list is active", async || revoked.status("/", "").await == 0).await;
    assert_eq!(other.status("/", "").await, 200);
    // A list that cannot be read leaves the last one active.
    fs::write(folder.path().join("clients.crl"), "").expect("written");
    served.program.wait_for_stderr("the old certificates stay active");
    assert_eq!((revoked.status("/", "").await, other.status("/", "").await), (0, 200));
}

/// By default the gateway loads renewed certificates by itself, and `gateway.toml` on request.
#[tokio::test]
async fn a_renewed_certificate_is_loaded_without_a_reload() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let first = make_pair(folder.path());
    let tls = "tls = { certificate = \"a.pem\", key = \"a.key\" }";
    let text = Gateway::public_config(upstream.address, "").replace("tls = \"self-signed\"", tls);
    let text =
        text.replace("[admin]\naddress = \"127.0.0.1:0\"", &format!("[admin]\naddress = \"127.0.0.1:0\"\n{tls}"));
    write(folder.path(), &text);
    let served = GatewayProcess::start(folder.path());
    let presents = async |address: std::net::SocketAddr, pem: &str| {
        let expected = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        crate::support::client::tls_connect(stream, expected, "http/1.1").await.is_ok()
    };
    for address in [served.addresses[1], served.admin] {
        assert!(presents(address, &first).await);
    }

    write(folder.path(), &text.replace("public = true", "public = false"));
    let second = make_pair(folder.path());
    soon("the new certificate is presented", async || presents(served.addresses[1], &second).await).await;
    assert!(presents(served.admin, &second).await, "the admin listener presents it too");
    assert_eq!(Client::http1(served.addresses[0]).get("/").await.status, 200, "gateway.toml was not reloaded");

    // A key that does not belong to the certificate.
    let other_key = generate_simple_self_signed(["localhost".to_owned()]).expect("made").signing_key.serialize_pem();
    assert!(PrivateKeyDer::from_pem_slice(other_key.as_bytes()).is_ok());
    fs::write(folder.path().join("a.key"), other_key).expect("written");
    let message = served.program.wait_for_stderr("the old certificates stay active");
    assert!(message.contains("a.key"), "{message}");
    assert!(presents(served.addresses[1], &second).await);

    // A key that other users can read.
    make_pair_with_mode(folder.path(), 0o644);
    served.program.wait_for_stderr("can use a.key (mode 0644); run: chmod 600 a.key");
    assert!(presents(served.addresses[1], &second).await);
}
