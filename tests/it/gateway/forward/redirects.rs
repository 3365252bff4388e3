//! Redirects of a backend that names itself lead to the gateway.

use std::convert::Infallible;
use std::net::SocketAddr;

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tempfile::NamedTempFile;
use tokio::net::TcpListener;

use crate::support::certificates::Authority;
use crate::support::connection;
use crate::support::{Backend, Client, Gateway, TestResponse};

const FIELDS: [&str; 3] = ["location", "content-location", "refresh"];

/// Responds with the query of the request in each of the fields.
async fn moved(request: Request<Incoming>) -> Response<connection::Body> {
    let wanted = request.uri().query().unwrap_or_default().to_owned();
    let mut response = Response::new(connection::full("moved"));
    *response.status_mut() = http::StatusCode::FOUND;
    if !wanted.is_empty() {
        for name in FIELDS {
            let value = if name == "refresh" { format!("1; url={wanted}") } else { wanted.clone() };
            response.headers_mut().insert(name, value.parse().expect("a value"));
        }
    }
    response
}

async fn backend(version: Version) -> Backend {
    Backend::start(version, moved).await
}

/// As [`backend`], over TLS as `localhost`. Returns the file of its authority, too.
async fn tls_backend() -> (SocketAddr, NamedTempFile) {
    let authority = Authority::new();
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), authority.pem()).expect("written");
    let acceptor = authority.server("localhost");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(async |request| Ok::<_, Infallible>(moved(request).await));
                // Until the gateway closes the connection.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, file)
}

/// The three fields of a response, without the `1; url=` of `Refresh`.
fn fields(response: &TestResponse) -> [&str; 3] {
    FIELDS.map(|name| response.header(name).map_or("-", |value| value.trim_start_matches("1; url=")))
}

async fn redirected(client: &Client, address: SocketAddr, to: &str) -> String {
    let to = to.replace("PORT", &address.port().to_string());
    let response = client.get(&format!("/?{to}")).await;
    let [location, content_location, refresh] = fields(&response);
    assert_eq!([location, location], [content_location, refresh]);
    location.replace(&address.port().to_string(), "PORT")
}

#[tokio::test]
async fn a_redirect_of_the_backend_to_itself_names_the_gateway() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let backend = backend(version).await;
        let gateway = Gateway::public(backend.address, backend.protocol());
        for (client, number) in gateway.clients().iter().zip(0..) {
            let scheme = if number < 2 { "http" } else { "https" };
            let client = client.clone().host("shop.example:8443");
            for (to, expected) in [
                ("http://127.0.0.1:PORT/a?b=c/../d", "SCHEME://shop.example:8443/a?b=c/../d"),
                ("HTTP://127.0.0.1:PORT", "SCHEME://shop.example:8443"),
                ("//127.0.0.1:PORT/a", "//shop.example:8443/a"),
                // nginx joins the host that it was asked for and its own port.
                ("http://shop.example:PORT/a/", "SCHEME://shop.example:8443/a/"),
                // A backend that does not know of TLS.
                ("http://shop.example:8443/a", "SCHEME://shop.example:8443/a"),
            ] {
                let expected = expected.replace("SCHEME", scheme);
                assert_eq!(redirected(&client, backend.address, to).await, expected, "{scheme} {to}");
            }
            for untouched in [
                "/a",
                "a?b=http://127.0.0.1:PORT/",
                "http://127.0.0.1:1/a",
                "https://127.0.0.1:PORT/a",
                "http://127.0.0.1/a",
                "http://127.0.0.10:PORT/a",
                "http://other.example:PORT/a",
                "http://127.0.0.1:PORT@other.example/",
                "https://shop.example:8443/a",
                "https://shop.example/a",
                "https://login.example/?back=http://127.0.0.1:PORT/",
            ] {
                assert_eq!(redirected(&client, backend.address, untouched).await, untouched, "{scheme}");
            }
            assert_eq!(fields(&client.get("/").await), ["-"; 3], "no field is added");
        }
    }
}

#[tokio::test]
async fn all_servers_of_the_upstream_are_known_by_name_and_address() {
    let backend = backend(Version::HTTP_11).await;
    let servers = format!("localhost:{port}\", \"http://localhost:1", port = backend.address.port());
    for preserve_host in [true, false] {
        let more = format!("preserve_host = {preserve_host}\n[[route]]\npath = \"/\"\npublic = true\n");
        let gateway = Gateway::from_text(Gateway::config_text(&servers, &more));
        let client = gateway.client().host("shop.example");
        for (to, expected) in [
            ("http://LocalHost:PORT/a", "http://shop.example/a"),
            ("http://127.0.0.1:PORT/a", "http://shop.example/a"),
            ("http://127.0.0.1:1/a", "http://shop.example/a"),
            ("http://127.0.0.1:2/a", "http://127.0.0.1:2/a"),
            (
                "http://shop.example:PORT/a",
                if preserve_host { "http://shop.example/a" } else { "http://shop.example:PORT/a" },
            ),
        ] {
            assert_eq!(
                redirected(&client, backend.address, to).await,
                expected,
                "preserve_host = {preserve_host}: {to}"
            );
        }
    }
}

/// Such a redirect asks the client to use TLS. Rewritten, it would lead to itself for ever.
#[tokio::test]
async fn an_upgrade_to_https_is_not_rewritten() {
    let backend = backend(Version::HTTP_11).await;
    let text = Gateway::public_config(backend.address, "");
    let gateway = Gateway::from_text(text.replace("[[upstream]]", "[[upstream]]\nrewrite_redirects = true"));
    let client = gateway.client().host("shop.example");
    for to in ["https://shop.example/a", "https://shop.example:8443/a"] {
        assert_eq!(redirected(&client, backend.address, to).await, to);
    }
}

/// A client that uses TLS already is not asked to.
#[tokio::test]
async fn a_redirect_to_a_backend_with_tls_names_the_gateway() {
    let (address, authority) = tls_backend().await;
    let options = format!("ca_file = \"{}\"\npreserve_host = true", authority.path().display());
    let text = Gateway::public_config(address, &options).replace("http://127.0.0.1", "https://localhost");
    let gateway = Gateway::from_text(text);
    let [cleartext, _, tls, _] = gateway.clients().map(|client| client.host("shop.example:8443"));
    for (to, in_cleartext, over_tls) in [
        ("https://localhost:PORT/a", "http://shop.example:8443/a", "https://shop.example:8443/a"),
        ("https://shop.example:PORT/a", "https://shop.example:PORT/a", "https://shop.example:8443/a"),
        ("//shop.example:PORT/a", "//shop.example:8443/a", "//shop.example:8443/a"),
        ("http://shop.example:8443/a", "http://shop.example:8443/a", "http://shop.example:8443/a"),
    ] {
        let found = [redirected(&cleartext, address, to).await, redirected(&tls, address, to).await];
        assert_eq!(found, [in_cleartext, over_tls], "{to}");
    }
}

#[tokio::test]
async fn rewrite_redirects_can_be_turned_off() {
    let backend = backend(Version::HTTP_11).await;
    let gateway = Gateway::public(backend.address, "rewrite_redirects = false\n");
    let to = "http://127.0.0.1:PORT/a";
    assert_eq!(redirected(&gateway.client(), backend.address, to).await, to);
}
