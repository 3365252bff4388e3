//! `[[upstream]]` with several servers, health, ejection and TLS.

use std::time::Duration;

use bearward::config::{self, Probe};
use bearward::upstream::health::Statuses;
use bearward::upstream::{Balance, Key};

use super::{assert_only_fault, check, parse};

const ONE: &str = "[[upstream]]\nservers = [\"http://a\"]\n";

#[test]
fn balance_ejection_and_health_are_checked() {
    let rows = [
        ("balance = \"random\"", "balance", (3, 11), "round_robin"),
        ("balance = \"least_request\"", "balance", (3, 11), "did you mean \"least_requests\"?"),
        ("balance = \"hash\"", "hash", (1, 1), "`hash` is missing"),
        ("hash = \"subject\"", "hash", (3, 8), "balance = \"hash\""),
        ("balance = \"hash\"\nhash = \"X-Tenant\"", "hash", (4, 8), "\"header:\""),
        ("balance = \"hash\"\nhash = \"header:\"", "hash", (4, 8), "names no header"),
        ("balance = \"hash\"\nhash = \"header:a b\"", "hash", (4, 8), "names no header"),
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
        ("[upstream.health_check]\npath = \"healthz\"", "health_check.path", (4, 8), "begins with a slash"),
        ("[upstream.health_check]\npath = \"/a b\"", "health_check.path", (4, 8), "percent-encoded"),
        ("[upstream.health_check]\npath = \"/a#b\"", "health_check.path", (4, 8), "cannot be asked for"),
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
        assert_only_fault(parse(&format!("{ONE}{text}")), &format!("upstream[0].{key}"), position, says);
    }
    check(&[(
        "[[upstream]]\nservers = [\"http://a\"]\nhealth_check = true",
        "upstream[0].health_check",
        (3, 16),
        "a table",
    )]);
}

#[test]
fn so_many_servers_and_no_more() {
    let text = |count: usize| {
        let servers: Vec<String> = (1..=count).map(|port| format!("\"http://a:{port}\"")).collect();
        format!("[[upstream]]\nservers = [{}]", servers.join(", "))
    };
    parse(&text(128)).expect("a server for each bit");
    assert_only_fault(parse(&text(129)), "upstream[0].servers", (2, 11), "at most 128");
}

#[test]
fn what_is_said_is_understood() {
    let text = "[[upstream]]\nservers = [\"http://a\", \"http://b\"]\nbalance = \"hash\"\nhash = \"header:X-Tenant\"\n\
                [upstream.health_check]\npath = \"/healthz?deep=1\"\nstatus = [\"2xx\", \"304\"]\n\
                [upstream.ejection]\nslow_start = \"0s\"\n";
    let upstream = parse(text).expect("it is right").upstreams.remove(0);
    assert_eq!(upstream.balance, Balance::Hash(Key::Header("x-tenant".parse().expect("a name"))));
    let health = upstream.health_check.expect("it is asked");
    assert_eq!((health.path.as_str(), health.healthy_threshold, health.unhealthy_threshold), ("/healthz?deep=1", 2, 3));
    assert_eq!(health.status, [Statuses::Class(2), Statuses::One(304)]);
    assert_eq!((upstream.ejection.consecutive_failures, upstream.ejection.slow_start), (3, Duration::ZERO));
    assert!(parse(ONE).expect("it is right").upstreams[0].health_check.is_none(), "nobody asks unless it is said");
}

#[test]
fn a_connection_of_http2_carries_what_every_backend_should_allow() {
    let connections =
        |more: &str| parse(&format!("{ONE}{more}")).expect("it is right").upstreams[0].max_concurrent_requests;
    assert_eq!(connections("protocol = \"http1\""), 256);
    assert_eq!(connections("protocol = \"h2\""), 100, "RFC 9113 section 6.5.2");
    assert_eq!(connections("protocol = \"h2\"\nmax_concurrent_requests = 250"), 250);
}

#[test]
fn a_client_certificate_needs_its_key_and_servers_that_are_reached_by_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a", "b"] {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        std::fs::write(folder.path().join(format!("{name}.pem")), made.cert.pem()).expect("written");
        std::fs::write(folder.path().join(format!("{name}.key")), made.signing_key.serialize_pem()).expect("written");
    }
    let parse = |scheme: &str, more: &str| {
        let text = format!("[[upstream]]\nservers = [\"{scheme}://a\"]\n{more}");
        config::parse(&text, folder.path(), Probe::None)
    };
    let pair = "client_certificate = \"a.pem\"\nclient_key = \"a.key\"";
    let client = parse("https", pair).expect("it is right").upstreams.remove(0).tls.client.expect("it is shown");
    assert!(client.certificate.ends_with("a.pem") && client.key.ends_with("a.key"));
    for (scheme, more, key, position, says) in [
        ("https", "client_certificate = \"a.pem\"", "client_certificate", (3, 22), "`client_key`"),
        ("https", "client_key = \"a.key\"", "client_key", (3, 14), "`client_certificate`"),
        ("https", "client_certificate = \"a.pem\"\nclient_key = \"b.key\"", "client_key", (4, 14), "does not fit"),
        ("https", "client_certificate = \"c.pem\"\nclient_key = \"a.key\"", "client_certificate", (3, 22), "c.pem"),
        ("https", "tls_server_name = \"a b\"", "tls_server_name", (3, 19), "not the name of a host"),
        ("http", "tls_server_name = \"a.internal\"", "tls_server_name", (3, 19), "reached by TLS"),
        ("http", "ca_file = \"a.pem\"", "ca_file", (3, 11), "remove `ca_file`"),
    ] {
        assert_only_fault(parse(scheme, more), &format!("upstream[0].{key}"), position, says);
    }
}
