//! `acme` of listeners, and `[acme]`.

use bearward::protocols::tls::{CertificateSource, ServerTlsSettings};

use super::{check, parse, with_upstream};

/// A listener with this TLS, which begins at line 3 and column 7.
macro_rules! listener {
    ($tls:literal) => {
        concat!("[[listener]]\naddress = \"0.0.0.0:1\"\ntls = ", $tls)
    };
}

#[test]
fn names_are_those_of_hosts() {
    let names = "listener[0].tls.acme";
    check(&[
        (listener!("{ acme = [] }"), names, (3, 16), "the list is empty"),
        (listener!("{ acme = \"a.example\" }"), names, (3, 16), "this is a string"),
        (listener!("{ acme = [\"*.example\"] }"), "listener[0].tls.acme[0]", (3, 17), "is a wildcard"),
        (listener!("{ acme = [\"10.0.0.1\"] }"), "listener[0].tls.acme[0]", (3, 17), "is an IP address"),
        (listener!("{ acme = [\"a b\"] }"), "listener[0].tls.acme[0]", (3, 17), "is not a DNS name"),
        (listener!("{ acme = [\"a.b\", \"A.B\"] }"), "listener[0].tls.acme[1]", (3, 24), "in the list twice"),
        (
            listener!("{ acme = [\"a.b\"], key = \"Cargo.toml\" }"),
            "listener[0].tls.key",
            (3, 31),
            "`key` has no effect beside `acme`",
        ),
        (
            "[acme]\nnames_per_listener = 1\n[[listener]]\naddress = \"0.0.0.0:1\"\ntls = { acme = [\"a\", \"b\"] }",
            names,
            (5, 16),
            "expected at most 1, which is acme.names_per_listener",
        ),
    ]);
    let text = with_upstream(listener!("[{ acme = [\"API.example\", \"b.example\"] }, { acme = [\"c\"] }]"));
    let config = parse(&text).expect("valid");
    let names = |names: &[&str]| CertificateSource::Acme(names.iter().map(|name| (*name).to_owned()).collect());
    let expected = ServerTlsSettings::Certificates(vec![names(&["api.example", "b.example"]), names(&["c"])]);
    assert_eq!(config.listeners[0].tls, expected);
}

#[test]
fn the_authority_is_reached_over_tls() {
    check(&[
        ("[acme]\ndirectory = \"http://ca.example\"", "acme.directory", (2, 13), "cleartext"),
        ("[acme]\ndirectory = \"ca.example\"", "acme.directory", (2, 13), "expected \"letsencrypt\""),
        ("[acme]\ndirectory_ca = \"no.pem\"", "acme.directory_ca", (2, 16), "does not exist"),
        ("[acme]\ndirectory_ca = \"Cargo.toml\"", "acme.directory_ca", (2, 16), "no certificate"),
        ("[acme]\ncontact = [\"ops\"]", "acme.contact[0]", (2, 12), "no e-mail address"),
        ("[acme]\ncontact = \"a@b\"", "acme.contact", (2, 11), "this is a string"),
        ("[acme]\nnames_per_listener = 0", "acme.names_per_listener", (2, 22), "from 1 to 100"),
        ("[acme]\nnames_per_listener = 101", "acme.names_per_listener", (2, 22), "from 1 to 100"),
        ("[acme]\norders_per_hour = 0", "acme.orders_per_hour", (2, 19), "from 1 to 300"),
        ("[acme]\norders_per_hour = 301", "acme.orders_per_hour", (2, 19), "from 1 to 300"),
    ]);
    let text = with_upstream("[acme]\ndirectory = \"http://127.0.0.1:14000/dir\"\ncontact = [\"ops@example.com\"]");
    let config = parse(&text).expect("this machine needs no TLS");
    assert_eq!(config.acme.directory.text(), "http://127.0.0.1:14000/dir");
    assert_eq!(config.acme.contact, ["mailto:ops@example.com"]);
    let staging = parse(&with_upstream("[acme]\ndirectory = \"letsencrypt-staging\"")).expect("valid");
    assert!(staging.acme.directory.text().contains("staging"));
    assert_eq!(parse(&with_upstream("")).expect("valid").acme.directory.host, "acme-v02.api.letsencrypt.org");
}
