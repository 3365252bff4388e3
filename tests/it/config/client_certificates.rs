//! `client_certificate` of listeners, routes and `[forwarding]`.

use bearward::config::{self, Probe};
use bearward::types::clock::{Clock, SystemClock};
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;

use super::check;
use crate::support::certificates::Authority;

/// A listener with these keys, which begin at line 3.
macro_rules! listener {
    ($rest:literal) => {
        concat!("[[listener]]\naddress = \"0.0.0.0:1\"\n", $rest)
    };
}

#[test]
fn a_listener_has_what_its_policy_needs() {
    let (policy, ca, lists) = ("listener[0].client_certificate", "listener[0].client_ca", "listener[0].client_crl");
    check(&[
        (
            listener!("client_certificate = \"on\""),
            policy,
            (3, 22),
            "expected \"off\", \"any\", \"optional\", \"required\"",
        ),
        (listener!("client_certificate = \"required\""), policy, (3, 22), "`client_ca` is missing"),
        (listener!("client_certificate = \"optional\""), policy, (3, 22), "`client_ca` is missing"),
        (listener!("tls = \"off\"\nclient_certificate = \"any\""), policy, (4, 22), "without TLS gets no certificates"),
        (listener!("client_certificate = \"required\"\nclient_ca = \"no.pem\""), ca, (4, 13), "does not exist"),
        (listener!("client_certificate = \"required\"\nclient_ca = \"Cargo.toml\""), ca, (4, 13), "no certificate"),
        (
            listener!("client_certificate = \"any\"\nclient_crl = [\"no.crl\"]"),
            lists,
            (4, 14),
            "`client_crl` has no effect here",
        ),
        (listener!("client_ca = \"Cargo.toml\""), ca, (3, 13), "`client_ca` has no effect here"),
    ]);
}

#[test]
fn a_route_asks_only_for_what_a_request_can_have() {
    let needed = "[[route]]\npath = \"/\"\nclient_certificate = \"required\"";
    let names = "[[route]]\npath = \"/\"\nclient_names = [\"dns:a\"]";
    check(&[
        (needed, "route[0].client_certificate", (3, 22), "no request would have a verified certificate"),
        (names, "route[0].client_names", (3, 16), "no effect without a certificate"),
        (
            "[[route]]\npath = \"/\"\nclient_names = [\"orders.internal\"]",
            "route[0].client_names[0]",
            (3, 17),
            "write dns:, uri:, ip: or email: before the name",
        ),
        ("[[route]]\npath = \"/\"\nclient_names = [\"dns:*.a\"]", "route[0].client_names[0]", (3, 17), "no wildcard"),
        (
            "[forwarding]\nclient_certificate = \"verified\"",
            "forwarding.client_certificate",
            (2, 22),
            "no proxy is trusted",
        ),
        (
            "[forwarding]\ntrusted = [\"10.0.0.1\"]\nclient_certificate = \"any\"\nkeep = [\"Client-Cert\"]",
            "forwarding.keep[0]",
            (4, 9),
            "a client must not set Client-Cert",
        ),
        (
            "[identity]\ncertificate_dns = \"X-Auth-Scope\"",
            "identity.certificate_dns",
            (2, 19),
            "`certificate_dns` and `scope` have the same header",
        ),
    ]);
}

#[test]
fn a_revocation_list_says_when_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).expect("written");
    write("clients.pem", authority.pem().as_bytes());
    let now = SystemClock.now().as_secs();
    let text = "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n[[listener]]\naddress = \"0.0.0.0:1\"\n\
                client_certificate = \"optional\"\nclient_ca = \"clients.pem\"\nclient_crl = [\"clients.crl\"]\n";
    let parse = || config::parse_with_warnings(text, folder.path(), Probe::None);
    let says = |part: &str| {
        let errors = parse().map(|_| ()).expect_err("an invalid list").to_string();
        assert!(errors.contains(part), "{errors}");
    };
    let warned = || {
        let (_, warnings) = parse().expect("a valid list");
        warnings.all().iter().filter(|warning| warning.place.key == "listener[0].client_crl").count()
    };
    says("clients.crl");
    write("clients.crl", b"");
    says("there is no revocation list (CRL) with nextUpdate in this file");
    write("clients.crl", b"0\x03\x02\x01\x01");
    says("there is no revocation list (CRL) with nextUpdate in this file");
    let pem = authority.revocation_list(&[1], now + 60);
    write("clients.crl", pem.as_bytes());
    assert_eq!(warned(), 0);
    let der = CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    write("clients.crl", &der);
    assert_eq!(warned(), 0);
    write("clients.crl", authority.revocation_list(&[1], now - 60).as_bytes());
    assert_eq!(warned(), 1);
}

/// No client of that authority could connect.
#[test]
fn a_check_names_the_authorities_without_a_revocation_list() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Authority::new();
    let [one, other] = [1, 2].map(|serial| root.authority(serial));
    let write = |name: &str, content: String| std::fs::write(folder.path().join(name), content).expect("written");
    let tomorrow = SystemClock.now().as_secs() + 86_400;
    let text = "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n[[listener]]\naddress = \"0.0.0.0:1\"\n\
                client_certificate = \"required\"\nclient_ca = \"clients.pem\"\nclient_crl = [\"clients.crl\"]\n";
    let unlisted = |authorities: &[&Authority], lists: &[&Authority]| -> Vec<u32> {
        write("clients.pem", authorities.iter().map(|authority| authority.pem()).collect());
        write("clients.crl", lists.iter().map(|authority| authority.revocation_list(&[], tomorrow)).collect());
        let (_, warnings) = config::parse_with_warnings(text, folder.path(), Probe::None).expect("a valid file");
        let messages = warnings.all().iter().filter(|warning| warning.place.key == "listener[0].client_crl");
        let names =
            messages.filter_map(|warning| warning.message.strip_prefix("no list is by the authority \"CN=authority "));
        names.map(|name| name.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)).collect()
    };
    for (authorities, lists, expected) in [
        (&[&one, &other][..], &[&one, &other][..], &[][..]),
        (&[&one, &other], &[&one], &[2]),
        (&[&one], &[&other], &[1]),
        (&[&root], &[&one], &[0]),
        (&[&root, &one], &[&one], &[]),
        (&[&root, &one], &[&root], &[1]),
    ] {
        assert_eq!(unlisted(authorities, lists), expected);
    }
}

/// An authority with a new key keeps its name, and a handshake accepts no list of the old key.
#[test]
fn a_check_tells_the_keys_of_an_authority_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let [old, new] = [Authority::new(), Authority::new()];
    let root = Authority::new();
    let write = |name: &str, content: String| std::fs::write(folder.path().join(name), content).expect("written");
    let now = SystemClock.now().as_secs();
    let (yesterday, tomorrow) = (now - 86_400, now + 86_400);
    let text = "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n[[listener]]\naddress = \"0.0.0.0:1\"\n\
                client_certificate = \"required\"\nclient_ca = \"clients.pem\"\nclient_crl = [\"clients.crl\"]\n";
    let warned = |authorities: &[&Authority], lists: &[(&Authority, u64)]| -> Vec<String> {
        write("clients.pem", authorities.iter().map(|authority| authority.pem()).collect());
        write("clients.crl", lists.iter().map(|(authority, end)| authority.revocation_list(&[], *end)).collect());
        let (_, warnings) = config::parse_with_warnings(text, folder.path(), Probe::None).expect("a valid file");
        let of_lists = warnings.all().iter().filter(|warning| warning.place.key == "listener[0].client_crl");
        of_lists.map(|warning| warning.message.clone()).collect()
    };
    let unlisted = "no list is by the authority \"CN=authority of the tests\" of client_ca: another key signed";
    let ended = "clients.crl ended at ";
    for (authorities, lists, expected) in [
        (&[&new][..], &[(&old, tomorrow)][..], &[unlisted][..]),
        (&[&old, &new], &[(&old, tomorrow)], &[unlisted]),
        (&[&old, &new], &[(&old, tomorrow), (&new, yesterday)], &[ended]),
        (&[&old, &new], &[(&old, tomorrow), (&new, tomorrow)], &[]),
        (&[&old, &new], &[(&old, tomorrow), (&new, yesterday), (&new, tomorrow)], &[]),
        (&[&new], &[(&new, tomorrow)], &[]),
        (&[&root], &[(&root, tomorrow), (&old, tomorrow), (&new, yesterday)], &[ended]),
    ] {
        let found = warned(authorities, lists);
        let is_expected = found.len() == expected.len()
            && found.iter().zip(expected).all(|(message, expected)| message.contains(expected));
        assert!(is_expected, "{found:?} instead of {expected:?}");
    }
}
