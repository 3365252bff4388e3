//! `[[upstream]]`: servers, balancing, health checks, ejection and TLS.

use std::time::Duration;

use bearward::config::{self, Probe};
use bearward::types::secret;
use bearward::upstream::{Balance, ExpectedStatus, Key};

use super::{assert_only_error, check, parse};

const ONE: &str = "[[upstream]]\nservers = [\"http://a\"]\n";

#[test]
fn upstreams_are_checked() {
    check(&[
        ("# [[upstream]]", "upstream", (1, 1), "no upstream is defined"),
        ("[[upstream]]", "upstream[0].servers", (1, 1), "`servers` is missing"),
        ("[[upstream]]\nservers = []", "upstream[0].servers", (2, 11), "at least one server"),
        (
            "[[upstream]]\nservers = [\"http://a\"]\nprotocol = \"h2\"\nproxy_protocol = \"v2\"",
            "upstream[0].proxy_protocol",
            (4, 18),
            "does not work with HTTP/2",
        ),
        (
            "[[upstream]]\nservers = [\"127.0.0.1:3000\"]",
            "upstream[0].servers[0]",
            (2, 12),
            "\"http://127.0.0.1:3000\"",
        ),
        ("[[upstream]]\nservers = [\"ftp://a\"]", "upstream[0].servers[0]", (2, 12), "unknown scheme ftp://"),
        ("[[upstream]]\nservers = [\"h2c://a\"]", "upstream[0].servers[0]", (2, 12), "protocol = \"h2\""),
        ("[[upstream]]\nservers = [\"http://a/api\"]", "upstream[0].servers[0]", (2, 12), "the URL contains a path"),
        ("[[upstream]]\nservers = [\"http://a#b\"]", "upstream[0].servers[0]", (2, 12), "the URL contains a path"),
        (
            "[[upstream]]\n\
        servers = [\"http://me:pw@a\"]",
            "upstream[0].servers[0]",
            (2, 12),
            "secrets do not belong in this file",
        ),
        ("[[upstream]]\nservers = [\"http://a:99999\"]", "upstream[0].servers[0]", (2, 12), "port"),
        ("[[upstream]]\nservers = [\"http://a:0\"]", "upstream[0].servers[0]", (2, 12), "1 to 65535"),
        ("[[upstream]]\nservers = [\"http://a..\"]", "upstream[0].servers[0]", (2, 12), "not a host name"),
        ("[[upstream]]\nservers = [\"http://.\"]", "upstream[0].servers[0]", (2, 12), "not a host name"),
        ("[[upstream]]\nservers = [\"http://127.0.0.1.\"]", "upstream[0].servers[0]", (2, 12), "not a host name"),
        ("[[upstream]]\nservers = [\"http://127.0.0.256\"]", "upstream[0].servers[0]", (2, 12), "not an IPv4 address"),
        ("[[upstream]]\nservers = [\"http://bücher.example\"]", "upstream[0].servers[0]", (2, 12), "URL"),
        ("[[upstream]]\nservers = [\"http://\"]", "upstream[0].servers[0]", (2, 12), "URL"),
        ("[[upstream]]\nservers = [\"http://a:80\", \"http://A\"]", "upstream[0].servers[1]", (2, 27), "twice"),
        ("[[upstream]]\nservers = [\"http://a\"]\nname = \"a b\"", "upstream[0].name", (3, 8), "letters, digits"),
        (
            "[[upstream]]\nservers = [\"http://a\"]\nprotocol = \"http2\"",
            "upstream[0].protocol",
            (3, 12),
            "did you mean \"http1\"?",
        ),
        (
            "[[upstream]]\nservers = [\"http://a\"]\n[[upstream]]\nservers = [\"http://b\"]\n[[route]]\n\
             path = \"/\"\nupstream = \"backend\"",
            "upstream[1].name",
            (3, 1),
            "two upstreams have the name `backend`",
        ),
        (
            "[[upstream]]\nname = \"a\"\nservers = [\"http://a\"]\n[[upstream]]\nname = \"b\"\n\
             servers = [\"http://b\"]",
            "route",
            (1, 1),
            "several upstreams but no route",
        ),
    ]);
}

#[test]
fn balance_ejection_and_health_checks_are_checked() {
    let rows = [
        ("balance = \"random\"", "balance", (3, 11), "round_robin"),
        ("balance = \"least_request\"", "balance", (3, 11), "did you mean \"least_requests\"?"),
        ("balance = \"hash\"", "hash", (1, 1), "`hash` is missing"),
        ("hash = \"subject\"", "hash", (3, 8), "balance = \"hash\""),
        ("balance = \"hash\"\nhash = \"X-Tenant\"", "hash", (4, 8), "\"header:\""),
        ("balance = \"hash\"\nhash = \"header:\"", "hash", (4, 8), "no valid header name"),
        ("balance = \"hash\"\nhash = \"header:a b\"", "hash", (4, 8), "no valid header name"),
        ("balance = \"hash\"\nhash = \"header:CF-Connecting-IP\"", "hash", (4, 8), "removes cf-connecting-ip"),
        ("balance = \"hash\"\nhash = \"header:X-Real-IP\"", "hash", (4, 8), "`forwarding.keep`"),
        ("balance = \"hash\"\nhash = \"header:x_forwarded_for\"", "hash", (4, 8), "removes x_forwarded_for"),
        ("balance = \"hash\"\nhash = \"header:Connection\"", "hash", (4, 8), "removes connection"),
        ("retry_budget_percent = 101", "retry_budget_percent", (3, 24), "0 to 100"),
        ("max_connection_age = \"0s\"", "max_connection_age", (3, 22), "too small"),
        ("max_connection_age = 600", "max_connection_age", (3, 22), "unit"),
        ("dns_refresh_interval = \"100ms\"", "dns_refresh_interval", (3, 24), "expected 1s to"),
        ("[upstream.ejection]\nconsecutive_failures = 1001", "ejection.consecutive_failures", (4, 24), "0 to 1000"),
        ("[upstream.ejection]\nbase_time = \"10m\"", "ejection.base_time", (4, 13), "`max_time`"),
        ("[upstream.ejection]\nmax_time = \"1s\"", "ejection.max_time", (4, 12), "at least `base_time`"),
        ("[upstream.ejection]\nslow_start = \"2d\"", "ejection.slow_start", (4, 14), "too large"),
        (
            "[upstream.ejection]\nconsecutive_failure = 3",
            "ejection.consecutive_failure",
            (4, 1),
            "did you mean `consecutive_failures`?",
        ),
        ("[upstream.health_check]\ninterval = \"1s\"", "health_check.path", (3, 1), "`path = \"/healthz\"`"),
        ("[upstream.health_check]\npath = \"healthz\"", "health_check.path", (4, 8), "start it with a slash"),
        ("[upstream.health_check]\npath = \"/a b\"", "health_check.path", (4, 8), "percent-encode spaces"),
        ("[upstream.health_check]\npath = \"/a#b\"", "health_check.path", (4, 8), "not a valid path"),
        (
            "[upstream.health_check]\npath = \"/\"\ninterval = \"1ms\"",
            "health_check.interval",
            (5, 12),
            "expected 10ms",
        ),
        (
            "[upstream.health_check]\npath = \"/\"\nhealthy_threshold = 0",
            "health_check.healthy_threshold",
            (5, 21),
            "1 to 1000",
        ),
        (
            "[upstream.health_check]\npath = \"/\"\nunhealthy_threshold = 0",
            "health_check.unhealthy_threshold",
            (5, 23),
            "1 to 1000",
        ),
        ("[upstream.health_check]\npath = \"/\"\nstatus = []", "health_check.status", (5, 10), "at least one"),
        ("[upstream.health_check]\npath = \"/\"\nstatus = [\"ok\"]", "health_check.status[0]", (5, 11), "\"2xx\""),
        (
            "[upstream.health_check]\npath = \"/\"\nstatus = [\"6xx\"]",
            "health_check.status[0]",
            (5, 11),
            "not a status",
        ),
        ("[upstream.health_check]\npath = \"/\"\nstatus = [\"99\"]", "health_check.status[0]", (5, 11), "not a status"),
    ];
    for (text, key, position, says) in rows {
        assert_only_error(parse(&format!("{ONE}{text}")), &format!("upstream[0].{key}"), position, says);
    }
    check(&[(
        "[[upstream]]\nservers = [\"http://a\"]\nhealth_check = true",
        "upstream[0].health_check",
        (3, 16),
        "a table",
    )]);
}

#[test]
fn an_upstream_has_at_most_128_servers() {
    let text = |count: usize| {
        let servers: Vec<String> = (1..=count).map(|port| format!("\"http://a:{port}\"")).collect();
        format!("[[upstream]]\nservers = [{}]", servers.join(", "))
    };
    parse(&text(128)).expect("a server for each bit");
    assert_only_error(parse(&text(129)), "upstream[0].servers", (2, 11), "at most 128");
}

#[test]
fn valid_values_are_read() {
    let text = "[[upstream]]\nservers = [\"http://a\", \"http://b\"]\nbalance = \"hash\"\nhash = \"header:X-Tenant\"\n\
                [upstream.health_check]\npath = \"/healthz?deep=1\"\nstatus = [\"2xx\", \"304\"]\n\
                [upstream.ejection]\nslow_start = \"0s\"\n";
    let upstream = parse(text).expect("it is valid").upstreams.remove(0);
    assert_eq!(upstream.balance, Balance::Hash(Key::Header("x-tenant".parse().expect("a name"))));
    let health = upstream.health_check.expect("health checks are on");
    assert_eq!((health.path.as_str(), health.healthy_threshold, health.unhealthy_threshold), ("/healthz?deep=1", 2, 3));
    assert_eq!(health.status, [ExpectedStatus::Class(2), ExpectedStatus::One(304)]);
    assert_eq!((upstream.ejection.consecutive_failures, upstream.ejection.slow_start), (3, Duration::ZERO));
    assert!(parse(ONE).expect("it is valid").upstreams[0].health_check.is_none(), "no health checks by default");
}

/// A hash of a header that never arrives would be round robin.
#[test]
fn the_key_of_hash_is_a_header_that_backends_get() {
    let parsed = |key: &str, more: &str| parse(&format!("{ONE}balance = \"hash\"\nhash = \"header:{key}\"\n{more}"));
    for name in ["X-Forwarded-For", "Forwarded", "X-Auth-Subject", "Host", "Cookie"] {
        parsed(name, "").expect(name);
    }
    for (name, forwarding) in [
        ("X-Real-IP", "x_real_ip = true"),
        ("X-Real-IP", "keep = [\"X-Real-IP\"]"),
        ("X-Forwarded-Prefix", "keep = [\"X-Forwarded-*\"]"),
    ] {
        parsed(name, &format!("[forwarding]\n{forwarding}")).expect(name);
    }
    for (name, more) in [
        ("X-Tenant", "[forwarding]\nremove = [\"X-Tenant\"]"),
        ("x_real_ip", "[forwarding]\nx_real_ip = true"),
        ("X-Auth-Subject", "[identity]\nsubject = \"\"\n[forwarding]\nremove = [\"X-Auth-*\"]"),
        ("Host", "protocol = \"h2\""),
    ] {
        assert_only_error(parsed(name, more), "upstream[0].hash", (4, 8), "removes");
    }
}

#[test]
fn the_default_of_max_concurrent_requests_depends_on_http2() {
    let connections =
        |more: &str| parse(&format!("{ONE}{more}")).expect("it is valid").upstreams[0].max_concurrent_requests;
    assert_eq!(connections("protocol = \"http1\""), 256);
    assert_eq!(connections("protocol = \"h2\""), 100, "RFC 9113 section 6.5.2");
    assert_eq!(connections("protocol = \"h2\"\nmax_concurrent_requests = 250"), 250);
}

#[test]
fn a_client_certificate_needs_its_key_and_https() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a", "b"] {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        std::fs::write(folder.path().join(format!("{name}.pem")), made.cert.pem()).expect("written");
        secret::write_private(&folder.path().join(format!("{name}.key")), made.signing_key.serialize_pem().as_bytes())
            .expect("written");
    }
    let parse = |scheme: &str, more: &str| {
        let text = format!("[[upstream]]\nservers = [\"{scheme}://a\"]\n{more}");
        config::parse(&text, folder.path(), Probe::None)
    };
    let pair = "client_certificate = \"a.pem\"\nclient_key = \"a.key\"";
    let client = parse("https", pair)
        .expect("it is valid")
        .upstreams
        .remove(0)
        .tls
        .client
        .expect("there is a client certificate");
    assert!(client.certificate.ends_with("a.pem") && client.key.ends_with("a.key"));
    for (scheme, more, key, position, says) in [
        ("https", "client_certificate = \"a.pem\"", "client_certificate", (3, 22), "`client_key`"),
        ("https", "client_key = \"a.key\"", "client_key", (3, 14), "`client_certificate`"),
        ("https", "client_certificate = \"a.pem\"\nclient_key = \"b.key\"", "client_key", (4, 14), "does not match"),
        ("https", "client_certificate = \"c.pem\"\nclient_key = \"a.key\"", "client_certificate", (3, 22), "c.pem"),
        ("https", "tls_server_name = \"a b\"", "tls_server_name", (3, 19), "not a host name"),
        ("http", "tls_server_name = \"a.internal\"", "tls_server_name", (3, 19), "has no effect without TLS"),
        ("http", "ca_file = \"a.pem\"", "ca_file", (3, 11), "remove `ca_file`"),
    ] {
        assert_only_error(parse(scheme, more), &format!("upstream[0].{key}"), position, says);
    }
}
