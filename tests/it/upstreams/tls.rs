//! TLS to a backend: a certificate of the gateway's own, and another name.

use std::net::SocketAddr;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::Gateway;
use crate::support::certificates::Authority;

/// A backend that talks only to those whose certificate is of its authority, and calls itself `orders.internal`. Answers the
/// name that was asked for.
async fn backend(folder: &Path) -> SocketAddr {
    let authority = Authority::new();
    std::fs::write(folder.join("ca.pem"), authority.pem()).expect("written");
    authority.sign("gateway").write(folder, "client");
    Authority::new().sign("gateway").write(folder, "stranger");
    let acceptor = authority.server_for_its_own("orders.internal");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let name = stream.get_ref().1.server_name().unwrap_or("-").to_owned();
                let mut read = [0; 4096];
                while stream.read(&mut read).await.is_ok_and(|len| len > 0) {
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
                    stream.write_all(answer.as_bytes()).await.expect("the gateway reads");
                }
            });
        }
    });
    address
}

fn text(address: SocketAddr, folder: &Path, more: &str) -> String {
    let options = format!("ca_file = \"{}\"\n{more}", folder.join("ca.pem").display());
    Gateway::open_text(address, &options).replace("http://127.0.0.1", "https://localhost")
}

#[tokio::test]
async fn the_gateway_shows_its_certificate_and_asks_for_the_name_it_is_told() {
    let files = tempfile::tempdir().expect("a folder");
    let address = backend(files.path()).await;
    let shown = |name: &str| {
        let file = |end: &str| files.path().join(format!("{name}.{end}")).display().to_string();
        format!("client_certificate = \"{}\"\nclient_key = \"{}\"\n", file("pem"), file("key"))
    };
    let name = "tls_name = \"orders.internal\"\n";
    for (more, is_good) in [
        (format!("{}{name}", shown("client")), true),
        (name.to_owned(), false),
        (shown("client"), false),
        (format!("{}{name}", shown("stranger")), false),
    ] {
        let gateway = Gateway::from_text(text(address, files.path(), &more));
        let answer = gateway.client().get("/").await;
        match is_good {
            true => assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, "orders.internal"), "{more}"),
            false => answer.refused(502, "bad_gateway"),
        }
    }
}

#[tokio::test]
async fn a_reload_reads_the_files_again() {
    let files = tempfile::tempdir().expect("a folder");
    let address = backend(files.path()).await;
    let copy = |from: &str| {
        for end in ["pem", "key"] {
            std::fs::copy(files.path().join(format!("{from}.{end}")), files.path().join(format!("own.{end}")))
                .expect("copied");
        }
    };
    let own = |end: &str| files.path().join(format!("own.{end}")).display().to_string();
    let more = format!(
        "client_certificate = \"{}\"\nclient_key = \"{}\"\ntls_name = \"orders.internal\"\n",
        own("pem"),
        own("key")
    );
    copy("stranger");
    let gateway = Gateway::from_text(text(address, files.path(), &more));
    gateway.client().get("/").await.refused(502, "bad_gateway");
    copy("client");
    gateway.running().reload(gateway.config()).expect("it reloads");
    assert_eq!(gateway.client().get("/").await.text(), "orders.internal");
}
