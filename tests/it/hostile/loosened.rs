//! Routes with `paths`: real paths reach them, and no reading of any path reaches another route.

use std::collections::BTreeSet;

use bearward::gateway::route::{Access, Route};
use bearward::gateway::route_table::{Action, RouteTable};
use bearward::protocols::http::path::CanonicalPath;
use bearward::protocols::http::readings::PathForms;
use bearward::types::reject::Reason::BadPath;
use http::{Method, Request};

use super::assert_all_rejected;
use super::paths::{BYTES, DOT_SEGMENTS, ENCODINGS, ENDS, OVERLONG, PARAMETERS, SEPARATORS, attack};
use crate::support::connection::{HttpConnection, empty};
use crate::support::random::{Random, seed};
use crate::support::repetitions::repetitions;
use crate::support::{Gateway, Upstream, Wire};

const ALL: PathForms = PathForms { encoded_slash: true, semicolon: true, double_slash: true };

/// Paths of real clients, and the form that their route allows.
const REAL: &[(&str, &str, &str)] = &[
    ("/api/v4/", "encoded_slash", "/api/v4/projects/group%2Fproject"),
    ("/api/v4/", "encoded_slash", "/api/v4/projects/group%2Fsub%2Fproject/repository/files/src%2Fmain.rs/raw?ref=main"),
    ("/npm/", "encoded_slash", "/npm/@scope%2fname"),
    ("/npm/", "encoded_slash", "/npm/@scope%2Fname/-/name-1.0.0.tgz"),
    ("/api/queues", "encoded_slash", "/api/queues/%2F/q"),
    ("/api/queues", "encoded_slash", "/api/queues/%2f/q?columns=a"),
    ("/app", "semicolon", "/app;jsessionid=1"),
    ("/app", "semicolon", "/app/cart.do;jsessionid=0A1B.node-1?x=;y"),
    ("/app", "semicolon", "/app/map;x=1;y=2/tile;z=3"),
    ("/", "double_slash", "//bucket"),
    ("/", "double_slash", "/bucket//key///part"),
    ("/", "double_slash", "//"),
];

#[tokio::test]
async fn loosened_routes_forward_paths_of_real_clients() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        for (route, form, path) in REAL {
            let protocol = format!("protocol = \"{protocol}\"\n");
            let gateway = Gateway::with_config(
                &upstream,
                &format!("{protocol}[[route]]\npath = \"{route}\"\npaths = \"{form}\"\npublic = true\n"),
            );
            for client in gateway.clients() {
                assert_eq!(client.get(path).await.status, 200, "{path}");
                let seen = upstream.seen().pop().expect("the request arrived");
                assert!(seen.uri == *path || seen.uri.ends_with(&format!("://{}{path}", seen.host())), "{}", seen.uri);
            }
            let strict = Gateway::with_config(&upstream, &format!("{protocol}[[route]]\npath = \"{route}\"\n"));
            strict.client().get(path).await.assert_rejected(400, "invalid_request");
        }
    }
}

/// One form does not allow another.
#[tokio::test]
async fn a_loosened_route_rejects_other_forms() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(
        &upstream,
        "[[route]]\npath = \"/a/\"\npublic = true\npaths = \"encoded_slash\"\n\
         [[route]]\npath = \"/b/\"\npublic = true\npaths = [\"semicolon\", \"double_slash\"]\n\
         [[route]]\npath = \"/c/\"\npublic = true\n",
    );
    for (path, status) in [
        ("/a/x%2Fy", 200),
        ("/a/x;y", 400),
        ("/a/x//y", 400),
        ("/a/x%2Fy;z", 400),
        ("/b/x%2Fy", 400),
        ("/b/x;y//z", 200),
        ("/c/x%2Fy", 400),
        ("/d/x%2Fy", 400),
        // the gateway's own paths
        ("/user/refresh;x", 400),
        ("/user%2Frefresh", 400),
        ("//user/refresh", 400),
    ] {
        assert_eq!(gateway.client().get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn loosened_routes_reject_all_other_ambiguities() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &config("/", "/private"));
    let always = [DOT_SEGMENTS, ENDS, ENCODINGS, OVERLONG, BYTES].into_iter().flatten();
    let attacks: Vec<_> = always.map(|path| attack(path.as_bytes(), "gateway.test", BadPath)).collect();
    assert_all_rejected(&gateway, &upstream, &attacks).await;
}

/// The public route allows all forms. The backend sees a path only if no reading of it is private.
#[tokio::test]
async fn no_hostile_path_crosses_into_a_protected_route() {
    for (public, private) in [("/", "/private"), ("/public", "/"), ("/public", "/public/private")] {
        let upstream = Upstream::start();
        let gateway = Gateway::with_config(&upstream, &config(public, private));
        let mut http2 = HttpConnection::http2(gateway.address()).await;
        let paths: Vec<_> = hostile().chain(REAL.iter().map(|(.., path)| *path)).collect();
        for path in paths {
            let mut http1 = Wire::connect(gateway.address()).await;
            http1.send(format!("GET {path} HTTP/1.1\r\nHost: gateway.test\r\n\r\n")).await;
            let request = Request::get(path).body(empty()).expect("a request");
            let statuses = [http1.read_response().await.status, http2.send(request).await.status().as_u16()];
            let crosses = readings_of_backends(path).iter().any(|path| belongs_to(path, private, public));
            let expected: &[u16] = if crosses { &[400, 401] } else { &[200, 400] };
            assert!(statuses.iter().all(|status| expected.contains(status)), "{path} on {public}: {statuses:?}");
            assert_eq!(statuses[0], statuses[1], "{path}");
        }
        let seen = upstream.seen();
        assert!(seen.len() > 5, "only {} were forwarded", seen.len());
        for path in seen.iter().map(|request| request.target()) {
            let readings = readings_of_backends(&path);
            assert!(!readings.iter().any(|reading| belongs_to(reading, private, public)), "{path}: {readings:?}");
        }
    }
}

/// As above, for paths from random parts, without sockets. Each run has other paths; `BEARWARD_SEED` repeats those of
/// an earlier one.
#[test]
fn no_random_path_crosses_into_a_protected_route() {
    const PARTS: &[&str] = &[
        "/", "/", "//", "%2F", "%2f", ";", ";x=", "public", "private", "x", "..", ".", "%2e", "%252e", "%5c", "\\",
        "%00", "%3b", "%70", "%c0%af", "@", "user", "refresh",
    ];
    let route = |path: &str, forms, access| Route {
        path: path.into(),
        name: path.into(),
        forms,
        access,
        ..Route::everything()
    };
    let layouts = [("/", "/private"), ("/public", "/"), ("/public", "/public/private"), ("/public/", "/private/x")];
    let mut random = Random(seed("no_random_path_crosses_into_a_protected_route"));
    let mut forwarded = 0;
    for _ in 0..repetitions(5_000) {
        let (public, private) = layouts[random.below(layouts.len())];
        let protected_forms = if random.one_in(2) { ALL } else { PathForms::STRICT };
        let table = RouteTable::new(
            &[route(public, ALL, Access::Public), route(private, protected_forms, Route::everything().access)],
            1,
        );
        let parts = 1 + random.below(8);
        let path: String = (0..parts).map(|_| PARTS[random.below(PARTS.len())]).collect();
        let path = format!("/{path}");
        let canonical = CanonicalPath::parse(&path);
        let found = match &canonical {
            Ok(canonical) => match table.find("", &Method::GET, canonical) {
                Ok(Action::Forward(route)) => Some(route),
                _ => None,
            },
            Err(_) => table.find_loosened("", &Method::GET, &path),
        };
        let Some(route) = found else { continue };
        forwarded += 1;
        let is_public = route.access == Access::Public;
        for reading in readings_of_backends(&path) {
            assert!(!is_public || !belongs_to(&reading, private, public), "{path} as {reading}: {public} {private}");
            assert!(reading != "/user/refresh", "{path} is a path of the gateway");
        }
    }
    assert!(forwarded > repetitions(5_000) / 20, "only {forwarded} are forwarded");
}

fn config(public: &str, private: &str) -> String {
    format!(
        "[[route]]\npath = \"{public}\"\npublic = true\npaths = [\"encoded_slash\", \"semicolon\", \"double_slash\"]\n\
         [[route]]\npath = \"{private}\"\n"
    )
}

fn hostile() -> impl Iterator<Item = &'static str> {
    let all = [DOT_SEGMENTS, SEPARATORS, PARAMETERS, ENDS, ENCODINGS, OVERLONG].into_iter().flatten();
    all.copied()
}

/// Returns true if the gateway would select the route `private` for this path, and not `public`.
fn belongs_to(path: &str, private: &str, public: &str) -> bool {
    let length = |route: &str| match path.strip_prefix(route) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') || route.ends_with('/') => route.len(),
        _ => 0,
    };
    length(private) > length(public)
}

/// What any backend could make of a path, with every step in any order. Parameters that stay in a name do not make it
/// another name: see `paths` in `gateway.toml`.
fn readings_of_backends(path: &str) -> BTreeSet<String> {
    let path = path.split('?').next().unwrap_or_default().to_owned();
    let (mut readings, mut unread) = (BTreeSet::from([path.clone()]), vec![path]);
    while let Some(path) = unread.pop() {
        let authority = path.strip_prefix("//").map(|rest| rest.find('/').map_or("/", |slash| &rest[slash..]));
        let decoded = percent_decoded(&path);
        let steps = [
            decoded.clone(),
            path.replace("%2f", "/").replace("%2F", "/"),
            path.replace('\\', "/"),
            path.split(['\0', ';']).next().unwrap_or_default().to_owned(),
            path.split('/').map(|segment| segment.split(';').next().unwrap_or_default()).collect::<Vec<_>>().join("/"),
            path.replace("//", "/"),
            authority.unwrap_or(&path).to_owned(),
            without_dot_segments(&path),
        ];
        for step in steps {
            if readings.insert(step.clone()) {
                unread.push(step);
            }
        }
    }
    readings.retain(|reading| !reading.contains(';'));
    readings
}

/// Each byte becomes a character, so that no path grows.
fn percent_decoded(path: &str) -> String {
    let (mut decoded, mut rest) = (String::new(), path);
    while let Some(first) = rest.chars().next() {
        let byte = rest.get(1..3).and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| first == '%');
        decoded.push(byte.map_or(first, char::from));
        rest = &rest[byte.map_or(first.len_utf8(), |_| 3)..];
    }
    // The overlong slash, as a lenient decoder reads it.
    decoded.replace("\u{c0}\u{af}", "/")
}

fn without_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}
