//! The files of the page: who gets them, and with which headers.

use std::collections::BTreeSet;
use std::io::{self, Write};

use bytes::Bytes;
use http::Method;

use super::gateway;
use crate::support::{Client, Gateway, Upstream};

/// The whole page, in bytes.
const MAX_WEIGHT: usize = 100 * 1024;

/// Without a token.
fn stranger(gateway: &Gateway) -> Client {
    Client::http1(gateway.admin_address()).host("localhost")
}

/// The paths of all files: what `/` names, and what those import.
async fn files(gateway: &Gateway) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec!["/".to_owned()]);
    while let Some(path) = open.pop() {
        if found.insert(path.clone()) {
            let text = stranger(gateway).get(&path).await.text();
            let names = text.split('"').filter_map(|part| part.strip_prefix("./").or(part.strip_prefix("/page/")));
            let is_file = |name: &&str| name.ends_with(".js") || name.ends_with(".css") || name.ends_with(".svg");
            open.extend(names.filter(is_file).map(|name| format!("/page/{name}")));
        }
    }
    found
}

#[tokio::test]
async fn the_page_needs_no_token_and_has_strict_headers() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                  form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
    let mut weight = 0;
    for path in files(&gateway).await {
        let answer = stranger(&gateway).get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        for (name, value) in [
            ("content-security-policy", policy),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-cache"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        assert_eq!(answer.header("set-cookie"), None);
        let text = answer.text();
        let addresses = text.matches("://").count() - text.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(addresses, 0, "{path} names another site");
        for changes in [Method::POST, Method::DELETE] {
            let answer = stranger(&gateway).send(changes, &path, Bytes::new()).await;
            assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, Some("GET, HEAD")), "{path}");
        }
        weight += answer.body.len();
    }
    // Not `eprintln!`, which the test harness keeps to itself.
    writeln!(io::stderr(), "the page of operators has {weight} bytes").expect("standard error");
    assert!(weight > 20_000 && weight < MAX_WEIGHT, "{weight} bytes");
}

#[tokio::test]
async fn a_browser_gets_a_file_once_for_each_release() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    for path in files(&gateway).await {
        let first = stranger(&gateway).get(&path).await;
        let tag = first.header("etag").expect("an entity tag");
        let again = stranger(&gateway).header("if-none-match", tag).get(&path).await;
        assert_eq!((again.status.as_u16(), again.body.len(), again.header("etag")), (304, 0, Some(tag)), "{path}");
        assert_eq!(stranger(&gateway).header("if-none-match", "\"x\"").get(&path).await.body, first.body);
        let head = stranger(&gateway).send(Method::HEAD, &path, Bytes::new()).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0), "{path}");
    }
}

#[tokio::test]
async fn a_forged_host_gets_no_file() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    for path in files(&gateway).await {
        let forged = Client::http1(gateway.admin_address()).host("attacker.example").get(&path).await;
        forged.assert_rejected(421, "invalid_request");
    }
}

#[tokio::test]
async fn the_page_can_be_switched_off() {
    let upstream = Upstream::start();
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.replace("[admin]\n", "[admin]\npage = false\n"));
    for path in ["/", "/page/page.css"] {
        stranger(&gateway).get(path).await.assert_rejected(401, "unauthorized");
        assert_eq!(gateway.admin_client().get(path).await.status, 404, "{path}");
    }
    assert_eq!(gateway.admin_client().get("/admin/v1/keys").await.status, 200);
}
