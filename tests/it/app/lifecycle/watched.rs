//! Files that change on disk.

use std::fs;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{metric, served, soon, write};
use crate::support::program::Served;
use crate::support::{Client, Gateway, Upstream};

async fn status(served: &Served, path: &str) -> StatusCode {
    served.client().get(path).await.status
}

fn all(text: String) -> String {
    format!("watch = \"all\"\n{text}")
}

#[tokio::test]
async fn a_file_that_changes_is_put_in_force_and_one_that_is_torn_changes_nothing() {
    let upstream = Upstream::start();
    let (served, folder, text) = served(&upstream, all);
    let closed = text.replace("public = true", "public = false");
    write(folder.path(), &closed);
    soon("it is in force", async || status(&served, "/").await == 401).await;

    // Half of it is written, and stays so.
    write(folder.path(), &format!("{}\n[[route", &text[..text.len() / 2]));
    soon("it is said", async || metric(&served, "bearward_reload_succeeded").await == 0.0).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(metric(&served, "bearward_reloads_total{outcome=\"failed\"}").await, 1.0, "once");
    assert_eq!(status(&served, "/").await, 401, "nothing has changed");

    write(folder.path(), &text);
    soon("it is in force", async || status(&served, "/").await == 200).await;
    assert_eq!(metric(&served, "bearward_reload_succeeded").await, 1.0);
}

#[tokio::test]
async fn nothing_is_watched_that_shall_not_be() {
    let upstream = Upstream::start();
    let (served, folder, text) = served(&upstream, |text| format!("watch = \"off\"\n{text}"));
    write(folder.path(), &text.replace("public = true", "public = false"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(status(&served, "/").await, 200);
    assert_eq!(metric(&served, "bearward_reloads_total{outcome=\"succeeded\"}").await, 0.0);
    assert_eq!(served.admin_client().post("/admin/v1/reload", &serde_json::json!({})).await.status, 200);
    assert_eq!(status(&served, "/").await, 401, "it waits to be asked for");
}

fn make_pair(folder: &Path) -> String {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    // No file is there half: both are swapped.
    for (name, content) in [("a.pem", cert.pem()), ("a.key", signing_key.serialize_pem())] {
        fs::write(folder.join("new"), content).expect("written");
        fs::rename(folder.join("new"), folder.join(name)).expect("renamed");
    }
    cert.pem()
}

/// From then on other files are watched, which is no change of theirs.
#[tokio::test]
async fn a_change_that_names_other_files_is_taken_once() {
    let upstream = Upstream::start();
    let (served, folder, text) = served(&upstream, all);
    make_pair(folder.path());
    let tls = "tls = { certificate = \"a.pem\", key = \"a.key\" }";
    for (times, text) in [(1.0, text.replace("tls = \"self-signed\"", tls)), (2.0, text)] {
        write(folder.path(), &text);
        let reloads = async || metric(&served, "bearward_reloads_total{outcome=\"succeeded\"}").await;
        soon("it is in force", async || reloads().await >= times).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(reloads().await, times);
    }
}

/// The default: a renewed certificate needs nobody, and the configuration waits to be asked for.
#[tokio::test]
async fn a_renewed_certificate_is_shown_without_being_asked_for() {
    let upstream = Upstream::start();
    let folder = tempfile::TempDir::new().expect("a folder");
    let first = make_pair(folder.path());
    let tls = "tls = { certificate = \"a.pem\", key = \"a.key\" }";
    let text = Gateway::open_text(upstream.address, "").replace("tls = \"self-signed\"", tls);
    let text =
        text.replace("[admin]\naddress = \"127.0.0.1:0\"", &format!("[admin]\naddress = \"127.0.0.1:0\"\n{tls}"));
    write(folder.path(), &text);
    let served = Served::start(folder.path());
    let shows = async |address: std::net::SocketAddr, pem: &str| {
        let expected = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        crate::support::client::tls_connect(stream, expected, "http/1.1").await.is_ok()
    };
    for address in [served.addresses[1], served.admin] {
        assert!(shows(address, &first).await);
    }

    write(folder.path(), &text.replace("public = true", "public = false"));
    let second = make_pair(folder.path());
    soon("it is shown", async || shows(served.addresses[1], &second).await).await;
    assert!(shows(served.admin, &second).await, "by the admin listener, too");
    assert_eq!(Client::http1(served.addresses[0]).get("/").await.status, 200, "nobody asked for a reload");

    // A key of another certificate.
    let odd = generate_simple_self_signed(["localhost".to_owned()]).expect("made").signing_key.serialize_pem();
    assert!(PrivateKeyDer::from_pem_slice(odd.as_bytes()).is_ok());
    fs::write(folder.path().join("a.key"), odd).expect("written");
    let said = served.program.stderr_with("the old certificates stay active");
    assert!(said.contains("a.key"), "{said}");
    assert!(shows(served.addresses[1], &second).await);
}
