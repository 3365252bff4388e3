//! Headers in which a backend would read the word of a proxy: the client's address, user or certificate.

use bearward::protocols::http::removed_fields::CLIENT_CLAIMS;

use crate::support::{Client, Gateway, Upstream, Wire};

/// What the gateway removes by default, with an example for each beginning.
const CLAIMS: &[&str] = &[
    "True-Client-IP",
    "Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "Proxy-Client-IP",
    "WL-Proxy-Client-IP",
    "X-ProxyUser-Ip",
    "X-Originating-IP",
    "CF-Connecting-IP",
    "CF-Connecting-IPv6",
    "CF-Pseudo-IPv4",
    "DO-Connecting-IP",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Incap-Client-IP",
    "X-Azure-ClientIP",
    "X-Azure-SocketIP",
    "X-Envoy-External-Address",
    "X-Envoy-Internal",
    "X-Real-IP",
    "X-Rewrite-URL",
    "X-Forwarded",
    "X-Forwarded-Prefix",
    "X-Forwarded-Client-Cert",
    "X-Original-URL",
    "X-Original-Forwarded-For",
    "Forwarded-For",
    "Remote-User",
    "Remote-Addr",
    "X-Remote-User",
    "X-Remote-Groups",
    "X-WebAuth-User",
    "X-Auth-Request-User",
    "X-Auth-Request-Email",
    "X-Authenticated-Userid",
    "X-Authentik-Username",
    "X-Goog-Authenticated-User-Email",
    "X-MS-Client-Principal",
    "X-MS-Client-Principal-Name",
    "Tailscale-User-Login",
    "Client-Cert",
    "Client-Cert-Chain",
    "X-Client-Cert",
    "X-Client-Cert-DN",
    "SSL-Client-Cert",
    "SSL-Client-S-DN",
    "X-SSL-Client-CN",
    "X-SSL-Cert",
    "X-Amzn-Mtls-Clientcert",
    "X-ARR-ClientCert",
    "DPoP",
];

/// Names that only look similar.
const OTHERS: &[&str] =
    &["X-Client-Version", "CF-Ray", "X-Originals", "Remote", "X-Real", "Client", "X-Envoy-Retry-On"];

fn spellings(name: &str) -> [String; 5] {
    let all = [name.to_owned(), name.to_uppercase(), name.replace('-', "_"), name.replace('-', ".")];
    let [as_is, upper, underscores, dots] = all;
    [as_is, upper, underscores, dots, name.replacen('-', "_", 1)]
}

/// Sends these names over each protocol. Returns the names that the backend got, folded, for each.
async fn arrived(gateway: &Gateway, upstream: &Upstream, names: &[&str]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for client in gateway.clients() {
        let spoofed = names.iter().flat_map(|name| spellings(name));
        let send = |client: Client, name: String| client.header(&name, "forged").header(&name, "forged again");
        assert_eq!(spoofed.fold(client, send).get("/").await.status, 200);
        let seen = upstream.seen().pop().expect("the request arrived");
        let forged = seen.headers.iter().filter(|(_, value)| value.as_bytes().starts_with(b"forged"));
        let mut found: Vec<_> = forged.map(|(name, _)| name.as_str().replace(['_', '.'], "-")).collect();
        found.sort();
        found.dedup();
        all.push(found);
    }
    all
}

fn lower(names: &[&str]) -> Vec<String> {
    let mut names: Vec<_> = names.iter().map(|name| name.to_lowercase()).collect();
    names.sort();
    names
}

const MANY: &str = "[limits]\nrequest_header_count = 1000\nrequest_header_size = \"64KiB\"\n";

#[tokio::test]
async fn claims_about_the_client_reach_no_backend() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\"\n{MANY}"));
        for found in arrived(&gateway, &upstream, CLAIMS).await {
            assert!(found.is_empty(), "{protocol}: {found:?}");
        }
        for found in arrived(&gateway, &upstream, OTHERS).await {
            assert_eq!(found, lower(OTHERS), "{protocol}");
        }
    }
}

/// CGI reads `X-Exp-` and `X_EXP_` as one variable, which a backend may take for a field without a name.
#[tokio::test]
async fn the_beginning_of_a_family_reaches_no_backend() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, &format!("[forwarding]\nremove = [\"X-Exp-*\"]\n{MANY}"));
    let beginnings = CLIENT_CLAIMS.iter().filter_map(|name| name.strip_suffix('*')).chain(["X-Exp-"]);
    let beginnings: Vec<&str> = beginnings.collect();
    assert!(beginnings.len() > 15, "{beginnings:?}");
    for found in arrived(&gateway, &upstream, &beginnings).await {
        assert!(found.is_empty(), "{found:?}");
    }
    let all = Gateway::public(upstream.address, &format!("[forwarding]\nremove = [\"X-*\"]\n{MANY}"));
    for found in arrived(&all, &upstream, &["X-", "X-A", "X-Exp-"]).await {
        assert!(found.is_empty(), "{found:?}");
    }
}

/// Some backends merge trailers into the headers.
#[tokio::test]
async fn claims_in_trailers_reach_no_backend() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    let trailers = "Remote-User: forged\r\nX_SSL_Client_CN: forged\r\nX-Sum: 7\r\n";
    let announced = "Trailer: X-Sum, Remote-User, X_SSL_Client_CN\r\n";
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n{announced}\r\n");
    client.send(format!("{head}1\r\na\r\n0\r\n{trailers}\r\n")).await;
    assert_eq!(client.read_response().await.status, 200);
    let trailers = upstream.only_request().trailers.expect("trailers");
    assert_eq!(trailers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-sum"]);
}

#[tokio::test]
async fn remove_and_keep_change_the_list() {
    let rules = "remove = [\"X-Tenant\", \"X-Internal-*\"]\n\
                 keep = [\"CF-Connecting-IP\", \"x_ssl-*\", \"X-Forwarded-*\", \"X-Auth-Request-*\"]\n";
    let identity = "[identity]\nsubject = \"X-Auth-Request-User\"\n";
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, &format!("[forwarding]\n{rules}{identity}{MANY}"));
    let removed = ["X-Tenant", "X-Internal-User", "CF-Connecting-IPv6", "X-Auth-Request-User", "X-Forwarded-For"];
    for found in arrived(&gateway, &upstream, &removed).await {
        assert!(found.is_empty(), "{found:?}");
    }
    let kept = ["CF-Connecting-IP", "X-SSL-Cert", "X-Forwarded-Prefix", "X-Auth-Request-Email", "X-Tenants"];
    for found in arrived(&gateway, &upstream, &kept).await {
        assert_eq!(found, lower(&kept));
    }
    let seen = upstream.seen().pop().expect("a request");
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"), "set by the gateway");
}

#[tokio::test]
async fn x_real_ip_is_set_only_if_configured() {
    for (key, expected) in [("", None), ("x_real_ip = true\n", Some("198.51.100.7"))] {
        let upstream = Upstream::start();
        let gateway = Gateway::public(upstream.address, &format!("[forwarding]\ntrusted = [\"127.0.0.1\"]\n{key}"));
        for client in gateway.clients() {
            let client = client.header("x-real-ip", "6.6.6.6").header("x_real_ip", "6.6.6.6");
            assert_eq!(client.header("x-forwarded-for", "6.6.6.6, 198.51.100.7").get("/").await.status, 200);
            let seen = upstream.seen().pop().expect("the request arrived");
            let values: Vec<_> = seen.headers.get_all("x-real-ip").iter().collect();
            assert_eq!(values, expected.into_iter().collect::<Vec<_>>());
            assert_eq!(seen.header("x-forwarded-for"), Some("198.51.100.7"));
            assert!(seen.headers.values().all(|value| value != "6.6.6.6"), "{seen:?}");
        }
    }
}

#[test]
fn the_reference_lists_every_removed_header() {
    let reference = crate::support::source::read("gateway.toml");
    let listed = reference.split([',', ' ', '\n']).collect::<Vec<_>>();
    let missing = CLIENT_CLAIMS.iter().filter(|name| !listed.contains(name)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A backend may trust a name also after the operator has renamed the header, or turned it off.
#[tokio::test]
async fn default_identity_names_reach_no_backend_once_renamed() {
    let upstream = Upstream::start();
    let identity = "[identity]\nsubject = \"\"\nscope = \"X-My-Scope\"\n";
    let gateway = Gateway::public(upstream.address, &format!("{identity}{MANY}"));
    let names = ["X-Auth-Subject", "X-Auth-Scope", "X-My-Scope", "X-Auth-Token-Id", "X-Auth-Issuer"];
    for found in arrived(&gateway, &upstream, &names).await {
        assert!(found.is_empty(), "{found:?}");
    }
    for found in arrived(&gateway, &upstream, &["X-Auth-Name"]).await {
        assert_eq!(found, lower(&["X-Auth-Name"]));
    }
}
