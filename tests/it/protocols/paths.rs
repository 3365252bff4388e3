//! An unambiguous path is forwarded byte for byte. Ambiguous paths are rejected: see `hostile/paths.rs`.

use crate::support::frames::{self, HEADERS};
use crate::support::{Gateway, Upstream, Wire};

/// Unambiguous paths, which the gateway must not change.
const PLAIN: &[&str] = &[
    "/",
    "/a/b/",
    "/%7Euser/%61dmin",
    "/caf%C3%A9",
    "/%E6%97%A5%E6%9C%AC/%f0%9f%90%bb",
    "/100%25",
    "/a=b&c,d:e@f!$'()*+",
    "/...",
    "/.well-known/x",
    "/a..b/c.",
    "/?",
    "/?a=b?c=d&e=%2F..%2F;%00//..;[]",
    "/a?/../b",
    "/public?%23",
];

#[tokio::test]
async fn paths_are_forwarded_byte_for_byte() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for path in PLAIN {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(client.read_response().await.status, 200, "{path}");
        assert_eq!(upstream.seen().pop().expect("the request arrived").uri, *path);
    }
}

/// A request target has no fragment. Over HTTP/2 the library removes it, so the gateway decides on the rest and
/// forwards only that.
#[tokio::test]
async fn a_fragment_does_not_reach_the_backend() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for (target, path) in [("/a#/../private", "/a"), ("/a?b#c", "/a?b")] {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(client.read_response().await.status, 400);
        assert!(upstream.seen().is_empty());
        let get = frames::get(1, target);
        let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), get]).await;
        assert_eq!(frames::next(&mut client, &[HEADERS]).await.payload[0], frames::OK);
        assert_eq!(upstream.only_request().uri, path);
        upstream.forget();
    }
}

/// A route matches the decoded path, so that no encoding bypasses it.
#[tokio::test]
async fn no_encoding_of_a_path_selects_another_route() {
    let upstream = Upstream::start();
    let gateway =
        Gateway::with_config(&upstream, "[[route]]\npath = \"/\"\npublic = true\n[[route]]\npath = \"/admin\"\n");
    for path in ["/admin", "/admin/x", "/%61dmin", "/a%64min/", "/%61%64%6D%69%6e"] {
        gateway.client().get(path).await.assert_rejected(401, "unauthorized");
    }
    for path in ["/administrator", "/ADMIN", "/x/admin", "/?/admin"] {
        assert_eq!(gateway.client().get(path).await.status, 200, "{path}");
    }
}

/// With `ignore_case`, no case of a path selects a shorter route. Other routes keep their case.
#[tokio::test]
async fn a_route_that_ignores_case_matches_every_case() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(
        &upstream,
        "[[route]]\npath = \"/\"\npublic = true\n\
         [[route]]\npath = \"/Admin\"\nignore_case = true\npaths = [\"encoded_slash\", \"double_slash\"]\n\
         [[route]]\npath = \"/admin/Open\"\nignore_case = true\nmethods = [\"GET\"]\npublic = true\n\
         [[route]]\npath = \"/Case\"\n",
    );
    for path in ["/Admin", "/admin", "/ADMIN/", "/aDmIn/X", "/%41dmin", "/%61DMIN/x", "/ADMIN/a%2Fb"] {
        gateway.client().get(path).await.assert_rejected(401, "unauthorized");
    }
    for path in ["/administrator", "/ADMIN/open", "/admin/OPEN/x", "/case", "/x/admin"] {
        assert_eq!(gateway.client().get(path).await.status, 200, "{path}");
        assert_eq!(upstream.seen().pop().expect("the request arrived").uri, path, "the path keeps its case");
    }
    for path in ["/ADMIN/OPEN%2Fx", "//Admin", "/x%2Fadmin", "/ADMIN//Open", "/ADMIN%2FOPEN"] {
        gateway.client().get(path).await.assert_rejected(400, "invalid_request");
    }
    gateway.client().get("/Case").await.assert_rejected(401, "unauthorized");
    let post = gateway.client().send(http::Method::POST, "/ADMIN/OPEN", bytes::Bytes::new()).await;
    post.assert_rejected(405, "invalid_request");
}

/// Routes with a host match every spelling of the host.
#[tokio::test]
async fn no_spelling_of_a_host_selects_another_route() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(
        &upstream,
        "[[route]]\npath = \"/\"\npublic = true\n\
         [[route]]\nhost = \"admin.example\"\npath = \"/\"\n[[route]]\nhost = \"[::1]\"\npath = \"/\"\n",
    );
    for host in
        ["admin.example", "ADMIN.example", "admin.example:8443", "admin.example.", "admin.example.:1", "[::1]:80"]
    {
        gateway.client().header("host", host).get("/").await.assert_rejected(401, "unauthorized");
    }
    for host in ["admin.example:80:80", "x@admin.example", "admin.example,b", "admin.example:"] {
        gateway.client().header("host", host).get("/").await.assert_rejected(400, "invalid_request");
    }
    assert_eq!(gateway.client().header("host", "other.example").get("/").await.status, 200);
}
