//! Envoy with the gRPC service of `ext_authz`.

use super::*;

/// Tokens in cookies, and preflights that the backend answers or would have to.
const ROUTES: &str = "[[route]]\npath = \"/cookie\"\ntoken_from = [\"cookie:session\"]\ntoken = \"drop\"\n\
    [[route]]\npath = \"/dropped\"\ntoken = \"drop\"\n\
    [[route]]\npath = \"/pages\"\n[route.cors]\norigins = [\"https://app.example\"]\n\
    [[route]]\npath = \"/own\"\npreflight = true\n";

fn start(site: Site, edit: impl FnOnce(String) -> String) -> Site {
    let timeout = "timeout: 5s\n";
    let shows = format!("initial_metadata: [{{ key: x-forward-auth-secret, value: {SECRET} }}]");
    site.write("envoy-grpc.yaml", |text| edit(text.replace(timeout, &format!("{timeout}{:24}{shows}\n", ""))));
    let arguments = ["-c", "envoy-grpc.yaml", "--concurrency", "1", "--disable-hot-restart", "-l", "error"];
    let site = Site { replaces_forged: true, ..site };
    site.start(&installed("envoy/_bin/envoy"), &arguments)
}

fn with_routes() -> Site {
    Site::with_routes(&format!("{MORE}{ROUTES}"), "ext_authz_grpc", true, WITH_SECRET)
}

#[tokio::test]
async fn envoy_over_grpc_forwards_what_the_gateway_allows() {
    let mut site = start(Site::new("ext_authz_grpc", true, WITH_SECRET), |text| text);
    check(&mut site).await;
}

#[tokio::test]
async fn envoy_removes_the_tokens_that_the_gateway_removes() {
    for raw in ["encode_raw_headers: true", "encode_raw_headers: false"] {
        let site = start(with_routes(), |text| text.replace("encode_raw_headers: true", raw));
        let pair = site.gateway.issue("alice", "").await;
        let cookie = format!("Cookie: a=1; session={}; b=2\r\n", pair.access);
        for (path, fields, authorization, cookies) in [
            ("/cookie", cookie.clone(), None, Some("a=1; b=2")),
            ("/cookie", format!("Cookie: session={}\r\n", pair.access), None, None),
            ("/dropped", bearer(&pair.access), None, None),
            ("/dropped", format!("{}{cookie}", bearer(&pair.access)), None, cookie.strip_prefix("Cookie: ")),
        ] {
            let response = site.send(&format!("GET {path}"), &format!("{fields}{FORGED_IDENTITY}")).await;
            assert_eq!(response.status, 200, "{raw} {path}: {response:?}");
            let seen = site.backend.only_request();
            let found = (seen.header("authorization"), seen.header("cookie"), seen.header("x-auth-subject"));
            assert_eq!(found, (authorization, cookies.map(str::trim), Some("alice")), "{raw} {path}");
            site.backend.forget();
        }
        // In one form the gateway sees two fields, in the other one that is no token.
        let twice = format!("{}{}", bearer(&pair.access), bearer(&pair.access));
        assert!([400, 401].contains(&site.send("GET /dropped", &twice).await.status), "{raw}");
        site.assert_silent(raw);
    }
}

#[tokio::test]
async fn envoy_passes_a_preflight_only_to_a_backend_that_answers_it() {
    let site = start(with_routes(), |text| text);
    let fields = "Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n";
    for (line, status) in [("OPTIONS /pages", 501), ("OPTIONS /orders", 401), ("OPTIONS /own", 200)] {
        let response = site.send(line, fields).await;
        assert_eq!(response.status, status, "{line}: {response:?}");
        assert_eq!(site.backend.seen().len(), usize::from(status == 200), "{line}");
    }
    // A page can read why it was rejected.
    let response = site.send("GET /pages", fields).await;
    assert_eq!((response.status, response.header("access-control-allow-origin")), (401, Some("https://app.example")));
}

/// With `failure_mode_allow`, Envoy lets a request pass if the service fails. What a client can cause is no failure.
#[tokio::test]
async fn a_client_cannot_make_the_gateway_fail() {
    let site = start(with_routes(), |text| text.replace("failure_mode_allow: false", "failure_mode_allow: true"));
    for (fields, statuses) in [
        (format!("X: {}\r\n", "a".repeat(17_000)), &[431][..]),
        (format!("X: {}\r\n", "a".repeat(40_000)), &[431]),
        // Envoy may reject it by itself.
        (format!("X: {}\r\n", "é".repeat(100)), &[400, 401]),
        ("X: a\r\n".repeat(99), &[431]),
        (FORGED_IDENTITY.to_owned(), &[401]),
    ] {
        let response = site.send("GET /orders", &fields).await;
        assert!(statuses.contains(&response.status), "{} bytes: {response:?}", fields.len());
        site.assert_silent("rejected");
    }
    for line in ["GET /orders%00", "GET /a%2fb", "OPTIONS *", "GET //orders"] {
        let response = site.send(line, "").await;
        assert!(response.status >= 400, "{line}: {response:?}");
        site.assert_silent(line);
    }
}
