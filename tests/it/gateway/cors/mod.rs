//! CORS: preflights, and the fields of every response.

mod malformed;
mod pages;

use bearward::app::explain::Explainer;
use bearward::config::{self, Probe};
use bearward::gateway::explanation::Outcome;
use bearward::types::reject::Reason;
use bytes::Bytes;
use http::{Method, Request, Version};
use serde_json::json;

use crate::support::{Client, Gateway, ScriptedBackend, TestResponse, Upstream};

const APP: &str = "https://app.example";
const EVIL: &str = "https://evil.example";

const CORS: &str = r#"
[cors]
origins = ["https://app.example"]
[oauth]
token_endpoint = "/oauth/token"
revocation_endpoint = "/oauth/revoke"
resource = "https://api.example"
"#;

async fn preflight(client: Client, origin: &str, method: &str, path: &str) -> TestResponse {
    let client = client.header("origin", origin).header("access-control-request-method", method);
    client.header("access-control-request-headers", "authorization").send(Method::OPTIONS, path, Bytes::new()).await
}

#[track_caller]
fn assert_no_fields(response: &TestResponse) {
    let fields: Vec<_> = response.headers.keys().filter(|name| name.as_str().starts_with("access-control-")).collect();
    assert!(fields.is_empty(), "{response:?}");
}

#[track_caller]
fn assert_readable(response: &TestResponse) {
    let origins: Vec<_> = response.headers.get_all("access-control-allow-origin").iter().collect();
    assert_eq!(origins, [APP], "{response:?}");
    assert!(varies_by_origin(response), "{response:?}");
    let exposed = response.header("access-control-expose-headers").expect("exposed fields");
    for field in ["WWW-Authenticate", "Retry-After", "RateLimit"] {
        assert!(exposed.contains(field), "{exposed}");
    }
}

fn varies_by_origin(response: &TestResponse) -> bool {
    let mut values = response.headers.get_all("vary").iter().map(|value| value.to_str().expect("text"));
    values.any(|value| value.split(',').any(|name| name.trim().eq_ignore_ascii_case("origin")))
}

#[tokio::test]
async fn own_calls_and_routes_answer_preflights_without_a_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, CORS);
    for client in gateway.clients() {
        let client = if client.version() == Version::HTTP_2 { client.host("localhost") } else { client };
        for (method, path) in [
            ("POST", "/user/refresh"),
            ("DELETE", "/token/3LFloTWoCnFkYUkBEdR6VE"),
            ("POST", "/oauth/token"),
            ("POST", "/oauth/revoke"),
            ("PATCH", "/orders/1"),
        ] {
            let granted = preflight(client.clone(), APP, method, path).await;
            assert_eq!((granted.status.as_u16(), granted.body.len()), (204, 0), "{path}: {granted:?}");
            assert_eq!(granted.header("access-control-allow-origin"), Some(APP));
            assert_eq!(granted.header("access-control-allow-methods"), Some(method));
            assert_eq!(granted.header("access-control-allow-headers"), Some("Authorization, Content-Type, DPoP"));
            assert_eq!(granted.header("access-control-max-age"), Some("600"));
            assert!(!granted.headers.contains_key("access-control-allow-credentials"));
            assert!(varies_by_origin(&granted));
            for origin in [EVIL, "null", "http://app.example", "https://app.example.evil.example"] {
                let rejected = preflight(client.clone(), origin, method, path).await;
                rejected.assert_rejected(403, "forbidden");
                assert_no_fields(&rejected);
            }
        }
    }
    assert!(upstream.seen().is_empty(), "no preflight reaches the backend");
    let line = gateway.log_line(|line| line["reason"] == "cors_origin").await;
    assert_eq!(line["status"], 403);
}

#[tokio::test]
async fn without_origins_nothing_changes() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for (path, status) in [("/user/refresh", 405), ("/token/x", 405), ("/orders", 401)] {
        let response = preflight(gateway.client(), APP, "POST", path).await;
        assert_eq!(response.status.as_u16(), status, "{path}");
        assert_no_fields(&response);
        assert!(!varies_by_origin(&response));
    }
    let pair = gateway.issue("alice", "").await;
    let response = gateway.client().bearer(&pair.access).header("origin", APP).get("/").await;
    assert_no_fields(&response);
    assert!(!varies_by_origin(&response));
}

#[tokio::test]
async fn every_response_of_the_gateway_can_be_read() {
    let upstream = Upstream::start();
    let routes = r#"
[limits]
request_header_count = 20
[[route]]
path = "/"
[[route]]
path = "/admin"
scopes = ["admin"]
[[route]]
path = "/none"
methods = ["GET"]
host = "other.example"
[[route]]
path = "/few"
public = true
[[route.rate]]
per = "route"
requests = 1
"#;
    let gateway = Gateway::with_config(&upstream, &format!("{CORS}{routes}"));
    let pair = gateway.issue("alice", "").await;
    let page = gateway.client().header("origin", APP);
    let user = page.clone().bearer(&pair.access);
    let mut many = page.clone();
    for field in 0..30 {
        many = many.header(&format!("x-{field}"), "1");
    }
    assert_eq!(page.get("/few").await.status, 200);
    let bad = json!({ "refreshToken": "bwr1_no" });
    for (status, response) in [
        (401, page.get("/orders").await),
        (401, page.clone().bearer("forged").get("/orders").await),
        (403, user.get("/admin").await),
        (400, page.get("/a//b").await),
        (405, user.clone().host("other.example").delete("/none").await),
        (429, page.get("/few").await),
        (400, user.post("/user/refresh", &bad).await),
        (401, page.post("/user/refresh", &bad).await),
        (405, user.get("/user/refresh").await),
        (404, user.delete("/token/3LFloTWoCnFkYUkBEdR6VE").await),
        (400, page.post("/oauth/token", &json!({})).await),
        (502, user.get("/close").await),
        (200, user.get("/orders").await),
        (503, user.get("/status/503").await),
    ] {
        assert_eq!(response.status.as_u16(), status, "{response:?}");
        assert_readable(&response);
    }
    for (status, response) in [
        (431, many.get("/orders").await),
        (414, page.get(&format!("/{}", "x".repeat(9_000))).await),
        (400, page.clone().host("a b").get("/orders").await),
        (400, page.get("/%c0%af").await),
    ] {
        assert_eq!(response.status.as_u16(), status, "{response:?}");
        assert_readable(&response);
    }
    assert_eq!(user.delete(&format!("/token/{}", pair.token_id)).await.status, 200);
    assert_readable(&user.get("/orders").await);
}

#[tokio::test]
async fn a_page_of_another_origin_reads_nothing() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, CORS);
    let pair = gateway.issue("alice", "").await;
    for origin in [EVIL, "null", "https://app.example:8443"] {
        let page = gateway.client().header("origin", origin);
        for response in [page.get("/orders").await, page.bearer(&pair.access).get("/orders").await] {
            assert_no_fields(&response);
            assert!(varies_by_origin(&response), "a cache must not show it to another page");
        }
    }
    let several = gateway.client().header("origin", APP).header("origin", EVIL).bearer(&pair.access);
    assert_no_fields(&several.get("/orders").await);
    let without = gateway.client().bearer(&pair.access).get("/orders").await;
    assert_no_fields(&without);
    assert!(varies_by_origin(&without));
}

#[tokio::test]
async fn published_documents_are_readable_by_any_origin() {
    let upstream = Upstream::start();
    let oauth = CORS.replace("origins = [\"https://app.example\"]", "origins = []");
    for config in [CORS, &oauth] {
        let gateway = Gateway::with_config(&upstream, config);
        for path in [
            "/.well-known/jwks.json",
            "/.well-known/oauth-authorization-server",
            "/.well-known/oauth-protected-resource",
        ] {
            for client in [gateway.client(), gateway.client().header("origin", EVIL)] {
                let response = client.get(path).await;
                let origins: Vec<_> = response.headers.get_all("access-control-allow-origin").iter().collect();
                assert_eq!((response.status.as_u16(), origins.len()), (200, 1), "{path}");
                assert_eq!(origins[0], "*");
                assert!(!response.headers.contains_key("access-control-allow-credentials"));
            }
            let granted = preflight(gateway.client(), EVIL, "GET", path).await;
            assert_eq!((granted.status.as_u16(), granted.header("access-control-allow-origin")), (204, Some("*")));
            let rejected = preflight(gateway.client(), EVIL, "POST", path).await;
            assert_eq!(rejected.status, 405);
            assert_no_fields(&rejected);
        }
    }
}

#[tokio::test]
async fn fields_of_the_backend_are_replaced() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        while wire.try_read_until("\r\n\r\n").await.is_some() {
            wire.send(
                b"HTTP/1.1 200 OK\r\nVary: Accept-Encoding\r\nAccess-Control-Allow-Origin: *\r\n\
                Access-Control-Allow-Origin: https://evil.example\r\nAccess-Control-Allow-Credentials: true\r\n\
                Access-Control-Expose-Headers: X-Own\r\nContent-Length: 0\r\n\r\n",
            )
            .await;
        }
    });
    let routes = r#"
[[route]]
path = "/"
public = true
[[route]]
path = "/own"
public = true
preflight = true
[[route]]
path = "/off"
public = true
[route.cors]
origins = []
"#;
    let text = Gateway::config_text(&backend.address.to_string(), &format!("{CORS}{routes}"));
    let gateway = Gateway::from_text(text);
    let response = gateway.client().header("origin", APP).get("/").await;
    assert_readable(&response);
    assert!(!response.headers.contains_key("access-control-allow-credentials"));
    assert_eq!(response.headers.get_all("access-control-expose-headers").iter().count(), 1);
    assert_eq!(response.headers.get_all("vary").iter().collect::<Vec<_>>(), ["Accept-Encoding", "Origin"]);
    let response = gateway.client().header("origin", EVIL).get("/").await;
    for field in ["access-control-allow-origin", "access-control-allow-credentials"] {
        assert!(!response.headers.contains_key(field), "{response:?}");
    }
    // The backend does CORS here, or the gateway does none.
    for path in ["/own", "/off"] {
        let response = gateway.client().header("origin", APP).get(path).await;
        assert_eq!(response.headers.get_all("access-control-allow-origin").iter().count(), 2, "{path}");
        assert_eq!(response.header("access-control-expose-headers"), Some("X-Own"));
        assert_eq!(response.headers.get_all("vary").iter().collect::<Vec<_>>(), ["Accept-Encoding"]);
    }
}

#[tokio::test]
async fn a_route_overrides_the_origins_or_leaves_cors_to_its_backend() {
    let upstream = Upstream::start();
    let routes = r#"
[[route]]
path = "/"
[[route]]
path = "/partner"
[route.cors]
origins = ["https://partner.example"]
credentials = true
headers = ["X-Partner"]
max_age = "1m"
[[route]]
path = "/own"
preflight = true
[[route]]
path = "/off"
[route.cors]
origins = []
[[route]]
path = "/read"
methods = ["GET"]
"#;
    let gateway = Gateway::with_config(&upstream, &format!("{CORS}{routes}"));
    let granted = preflight(gateway.client(), "https://partner.example", "PUT", "/partner").await;
    for (field, value) in [
        ("access-control-allow-origin", "https://partner.example"),
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-headers", "Authorization, Content-Type, DPoP, x-partner"),
        ("access-control-max-age", "60"),
    ] {
        assert_eq!(granted.header(field), Some(value));
    }
    let rejected = preflight(gateway.client(), APP, "PUT", "/partner").await;
    rejected.assert_rejected(403, "forbidden");
    assert_no_fields(&rejected);
    assert_no_fields(&gateway.client().header("origin", APP).get("/partner").await);
    // Elsewhere the origin of the route means nothing.
    assert_no_fields(&gateway.client().header("origin", "https://partner.example").get("/").await);

    let rejected = preflight(gateway.client(), APP, "DELETE", "/read").await;
    rejected.assert_rejected(405, "invalid_request");
    assert_eq!(preflight(gateway.client(), APP, "GET", "/read").await.status, 204);
    preflight(gateway.client(), APP, "GET", "/off").await.assert_rejected(401, "unauthorized");
    assert!(upstream.seen().is_empty());

    let forwarded = preflight(gateway.client(), EVIL, "GET", "/own").await;
    assert_eq!(forwarded.status, 200);
    assert_no_fields(&forwarded);
    assert_eq!(upstream.only_request().method, Method::OPTIONS);
    // The backend does not see this request, so the gateway itself tells the page why.
    let rejected = gateway.client().header("origin", APP).get("/own").await;
    assert_eq!(rejected.status, 401);
    assert_readable(&rejected);
}

#[tokio::test]
async fn an_origin_with_credentials_may_use_the_cookie() {
    let upstream = Upstream::start();
    for (credentials, statuses) in [(true, [200, 403, 200]), (false, [403, 403, 200])] {
        let config = format!(
            "[cors]\norigins = [\"{APP}\"]\ncredentials = {credentials}\n\
             [[route]]\npath = \"/\"\ntoken_from = [\"header\", \"cookie:session\"]\n"
        );
        let gateway = Gateway::with_config(&upstream, &config);
        let pair = gateway.issue("alice", "").await;
        let post = async |origin: &str, field: &str, value: String| {
            let client = gateway.client().header("origin", origin).header(field, &value);
            client.send(Method::POST, "/orders", Bytes::new()).await
        };
        let cookie = || format!("session={}", pair.access);
        let responses = [
            post(APP, "cookie", cookie()).await,
            post(EVIL, "cookie", cookie()).await,
            post(APP, "authorization", format!("Bearer {}", pair.access)).await,
        ];
        assert_eq!(responses.each_ref().map(|response| response.status.as_u16()), statuses);
        let field = responses[2].header("access-control-allow-credentials");
        assert_eq!(field, credentials.then_some("true"));
        assert_readable(&responses[0]);
    }
}

#[tokio::test]
async fn any_origin_may_read_but_gets_no_credentials() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "[cors]\norigins = [\"*\"]\n");
    for client in [gateway.client(), gateway.client().header("origin", EVIL)] {
        let response = client.get("/orders").await;
        assert_eq!((response.status.as_u16(), response.header("access-control-allow-origin")), (401, Some("*")));
        assert!(!response.headers.contains_key("access-control-allow-credentials") && !varies_by_origin(&response));
    }
    assert_eq!(preflight(gateway.client(), EVIL, "DELETE", "/orders").await.status, 204);
}

#[tokio::test]
async fn a_granted_preflight_uses_up_no_rate_limit() {
    let upstream = Upstream::start();
    let rate = "[[rate]]\nper = \"address\"\nrequests = 2\nwindow = \"1h\"\n";
    let gateway = Gateway::with_config(&upstream, &format!("{rate}{CORS}"));
    for _ in 0..5 {
        assert_eq!(preflight(gateway.client(), APP, "GET", "/orders").await.status, 204);
    }
    let page = gateway.client().header("origin", APP);
    for status in [401, 401, 429] {
        let response = page.get("/orders").await;
        assert_eq!(response.status.as_u16(), status);
        assert_readable(&response);
    }
    assert_eq!(preflight(gateway.client(), EVIL, "GET", "/orders").await.status, 429, "rejections count");
}

#[tokio::test]
async fn no_grant_for_private_networks_is_sent() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, CORS);
    let client = gateway.client().header("access-control-request-private-network", "true");
    let granted = preflight(client, APP, "GET", "/orders").await;
    assert_eq!(granted.status, 204);
    assert!(!granted.headers.contains_key("access-control-allow-private-network"));
}

#[tokio::test]
async fn explain_reports_who_responds_to_a_preflight() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, CORS);
    let explainer = Explainer::prepare(&gateway.config(), gateway.clock.clone()).await.expect("it can explain");
    for (origin, path, granted) in [(APP, "/user/refresh", true), (APP, "/orders", true), (EVIL, "/orders", false)] {
        let request = Request::options(path).header("host", "gateway.test").header("origin", origin);
        let request = request.header("access-control-request-method", "POST").body(()).expect("a request");
        match explainer.explain(&request, false).await.outcome {
            Outcome::Local(what) => assert!(granted && what.contains("preflight"), "{what}"),
            Outcome::Rejected(reject) => assert!(!granted && reject.reason == Reason::CorsOrigin, "{reject:?}"),
            _ => panic!("{path}: forwarded"),
        }
    }
}

#[tokio::test]
async fn a_reload_changes_the_origins() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, CORS);
    let text = gateway.configuration().replace(APP, "https://new.example");
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a valid configuration");
    let reloaded = gateway.running().reload(config).expect("a reload");
    assert_eq!(preflight(gateway.client(), APP, "POST", "/user/refresh").await.status, 403);
    assert_eq!(preflight(gateway.client(), "https://new.example", "POST", "/user/refresh").await.status, 204);
    assert!(reloaded.active.contains(&"cors"));
}

/// The token endpoint serves a single-page application that the operator has registered, and no route does.
#[tokio::test]
async fn an_application_gets_its_tokens_without_a_cors_table() {
    const APPLICATION: &str = "https://spa.example";
    const OAUTH: &str = r#"
[oauth]
login_page = "/login"
resource = "https://gateway.example/api"
[[oauth.client]]
client_id = "spa"
client_auth = "none"
redirect_uris = ["https://spa.example/callback", "http://127.0.0.1/callback"]
[[route]]
path = "/login"
public = true
login = "cookie"
[[route]]
path = "/"
"#;
    let upstream = Upstream::start();
    for (cors, credentials) in [("", None), ("[cors]\norigins = [\"https://app.example\"]\ncredentials = true\n", None)]
    {
        let gateway = Gateway::with_config(&upstream, &format!("{cors}{OAUTH}"));
        for path in ["/oauth/token", "/oauth/revoke", "/oauth/par"] {
            let granted = preflight(gateway.client(), APPLICATION, "POST", path).await;
            assert_eq!(granted.header("access-control-allow-origin"), Some(APPLICATION), "{path}: {granted:?}");
            assert_eq!(granted.header("access-control-allow-credentials"), credentials, "{path}");
            let rejected = gateway.client().header("origin", APPLICATION).send(Method::POST, path, Bytes::new()).await;
            assert_eq!(rejected.status, 400);
            assert_eq!(rejected.header("access-control-allow-origin"), Some(APPLICATION), "{path}");
            for other in [EVIL, "http://127.0.0.1", "https://spa.example:8443"] {
                assert_no_fields(&preflight(gateway.client(), other, "POST", path).await);
            }
        }
        for page in ["/oauth/authorize", "/oauth/consent", "/oauth/grants", "/orders"] {
            assert_no_fields(&preflight(gateway.client(), APPLICATION, "GET", page).await);
        }
    }
}

#[tokio::test]
async fn a_page_uses_an_mcp_server() {
    let config = format!("{CORS}[[route]]\npath = \"/mcp\"\n[route.cors]\nmcp = true\n[[route]]\npath = \"/\"\n");
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &config);
    let asked = |path: &'static str, headers: &'static str| {
        let client = gateway.client().header("origin", APP).header("access-control-request-method", "POST");
        async move {
            client.header("access-control-request-headers", headers).send(Method::OPTIONS, path, Bytes::new()).await
        }
    };
    let known = "Authorization, Content-Type, DPoP, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, \
                 last-event-id";
    for (path, headers, allowed) in [
        ("/mcp", "authorization", known.to_owned()),
        ("/mcp", "mcp-param-region, mcp-param-, x-other", format!("{known}, mcp-param-region")),
        ("/orders", "mcp-param-region", "Authorization, Content-Type, DPoP".to_owned()),
    ] {
        let granted = asked(path, headers).await;
        assert_eq!(granted.header("access-control-allow-headers"), Some(&*allowed), "{path} {headers}");
    }
    let response = gateway.client().header("origin", APP).get("/mcp").await;
    assert!(response.header("access-control-expose-headers").is_some_and(|names| names.contains("mcp-session-id")));
}
