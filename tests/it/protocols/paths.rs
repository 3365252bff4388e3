//! A path has one reading, and goes on byte for byte. What has two goes nowhere: `hostile/paths.rs`.

use crate::support::frames::{self, HEADERS};
use crate::support::{Gateway, Upstream, Wire};

/// What has one reading is nobody's business but the backend's.
const PLAIN: &[&str] = &[
    "/",
    "/a/b/",
    "/%7Euser/%61dmin",
    "/caf%C3%A9",
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
async fn what_passes_is_forwarded_byte_for_byte() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for path in PLAIN {
        let mut client = Wire::connect(gateway.address()).await;
        client.say(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(client.answer().await.status, 200, "{path}");
        assert_eq!(upstream.seen().pop().expect("it arrived").uri, *path);
    }
}

/// A target has no fragment. Over HTTP/2 it is cut off before anybody sees it: what is left is what is decided on, and all
/// that the backend gets.
#[tokio::test]
async fn a_fragment_reaches_nobody() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for (target, path) in [("/a#/../private", "/a"), ("/a?b#c", "/a?b")] {
        let mut client = Wire::connect(gateway.address()).await;
        client.say(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(client.answer().await.status, 400);
        assert!(upstream.seen().is_empty());
        let get = frames::get(1, target);
        let mut client = frames::connect(gateway.address(), &[frames::hello(), get]).await;
        assert_eq!(frames::next(&mut client, &[HEADERS]).await.payload[0], frames::OK);
        assert_eq!(upstream.only().uri, path);
        upstream.forget();
    }
}

/// A route matches the letters that an encoding stands for, so that no spelling is a way round it.
#[tokio::test]
async fn no_spelling_of_a_path_takes_another_route() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, "[[route]]\npath = \"/\"\npublic = true\n[[route]]\npath = \"/admin\"\n");
    for path in ["/admin", "/admin/x", "/%61dmin", "/a%64min/", "/%61%64%6D%69%6e"] {
        gateway.client().get(path).await.refused(401, "unauthorized");
    }
    for path in ["/administrator", "/ADMIN", "/x/admin", "/?/admin"] {
        assert_eq!(gateway.client().get(path).await.status, 200, "{path}");
    }
}

/// Rules by host hold for every spelling of the host.
#[tokio::test]
async fn no_spelling_of_a_host_takes_another_route() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(
        &upstream,
        "[[route]]\npath = \"/\"\npublic = true\n\
         [[route]]\nhost = \"admin.example\"\npath = \"/\"\n[[route]]\nhost = \"[::1]\"\npath = \"/\"\n",
    );
    for host in
        ["admin.example", "ADMIN.example", "admin.example:8443", "admin.example.", "admin.example.:1", "[::1]:80"]
    {
        gateway.client().header("host", host).get("/").await.refused(401, "unauthorized");
    }
    for host in ["admin.example:80:80", "x@admin.example", "admin.example,b", "admin.example:"] {
        gateway.client().header("host", host).get("/").await.refused(400, "invalid_request");
    }
    assert_eq!(gateway.client().header("host", "other.example").get("/").await.status, 200);
}
