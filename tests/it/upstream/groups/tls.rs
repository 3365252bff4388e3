//! TLS to a backend with a client certificate and another server name.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::certificates::Authority;
use crate::support::{Gateway, dns};

/// A backend named `orders.internal` that requires a client certificate of its authority. It supports one HTTP version,
/// and responds with the requested server name.
async fn backend(folder: &Path, version: Version) -> SocketAddr {
    let authority = Authority::new();
    std::fs::write(folder.join("ca.pem"), authority.pem()).expect("written");
    authority.sign("gateway").write(folder, "client");
    Authority::new().sign("gateway").write(folder, "stranger");
    let mut config = (**authority.server_requiring_client_certificate("orders.internal").config()).clone();
    config.alpn_protocols = vec![if version == Version::HTTP_2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let name = stream.get_ref().1.server_name().unwrap_or("-").to_owned();
                let answer = service_fn(move |_: Request<Incoming>| {
                    let answer = Response::new(name.clone());
                    async move { Ok::<_, Infallible>(answer) }
                });
                // Until the gateway closes the connection.
                let _ = if version == Version::HTTP_2 {
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    builder.serve_connection(TokioIo::new(stream), answer).await
                } else {
                    let builder = hyper::server::conn::http1::Builder::new();
                    builder.serve_connection(TokioIo::new(stream), answer).await
                };
            });
        }
    });
    address
}

fn text(address: SocketAddr, folder: &Path, more: &str) -> String {
    let options = format!("ca_file = \"{}\"\n{more}", folder.join("ca.pem").display());
    Gateway::public_config(address, &options).replace("http://127.0.0.1", "https://localhost")
}

/// The files of a client certificate that `backend` has written.
fn client_certificate(folder: &Path, name: &str) -> String {
    let file = |end: &str| folder.join(format!("{name}.{end}")).display().to_string();
    format!("client_certificate = \"{}\"\nclient_key = \"{}\"\n", file("pem"), file("key"))
}

/// Asserts that a request succeeds only with the right certificate and server name.
async fn assert_certificate_and_name(version: Version, protocol: &str) {
    let files = tempfile::tempdir().expect("a folder");
    let address = backend(files.path(), version).await;
    let shown = |name: &str| client_certificate(files.path(), name);
    let name = "tls_server_name = \"orders.internal\"\n";
    for (more, is_good) in [
        (format!("{}{name}", shown("client")), true),
        (name.to_owned(), false),
        (shown("client"), false),
        (format!("{}{name}", shown("stranger")), false),
    ] {
        let more = format!("protocol = \"{protocol}\"\n{more}");
        let gateway = Gateway::from_text(text(address, files.path(), &more));
        let answer = gateway.client().get("/").await;
        if is_good {
            assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, "orders.internal"), "{more}")
        } else {
            answer.assert_rejected(502, "bad_gateway")
        }
    }
}

#[tokio::test]
async fn the_gateway_sends_its_certificate_and_server_name() {
    assert_certificate_and_name(Version::HTTP_11, "http1").await;
}

#[tokio::test]
async fn the_certificate_and_server_name_are_sent_over_http2() {
    assert_certificate_and_name(Version::HTTP_2, "h2").await;
}

/// The resolver gets the name as it is in `servers`. TLS has no final dot (RFC 6066 section 3), and no certificate has.
#[tokio::test]
async fn a_final_dot_in_servers_is_no_part_of_the_name_in_tls() {
    const ABSOLUTE: &str = "orders.internal.";
    for (version, protocol) in [(Version::HTTP_11, "http1"), (Version::HTTP_2, "h2")] {
        let folder = tempfile::tempdir().expect("a folder");
        let address = backend(folder.path(), version).await;
        let more = format!("protocol = \"{protocol}\"\n{}", client_certificate(folder.path(), "client"));
        let text = text(address, folder.path(), &more).replace("//localhost", &format!("//{ABSOLUTE}"));
        std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
        let (served, _names) = dns::serve(folder.path(), ABSOLUTE, "127.0.0.1");
        let response = served.client().get("/").await;
        assert_eq!((response.status.as_u16(), response.text().as_str()), (200, "orders.internal"), "{protocol}");
    }
}

#[tokio::test]
async fn a_reload_reads_the_tls_files_again() {
    let files = tempfile::tempdir().expect("a folder");
    let address = backend(files.path(), Version::HTTP_11).await;
    let copy = |from: &str| {
        for end in ["pem", "key"] {
            std::fs::copy(files.path().join(format!("{from}.{end}")), files.path().join(format!("own.{end}")))
                .expect("copied");
        }
    };
    let more = format!("{}tls_server_name = \"orders.internal\"\n", client_certificate(files.path(), "own"));
    copy("stranger");
    let gateway = Gateway::from_text(text(address, files.path(), &more));
    gateway.client().get("/").await.assert_rejected(502, "bad_gateway");
    copy("client");
    gateway.running().reload(gateway.config()).expect("it reloads");
    assert_eq!(gateway.client().get("/").await.text(), "orders.internal");
}
