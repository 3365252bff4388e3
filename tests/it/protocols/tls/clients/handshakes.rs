//! Certificates that a listener accepts.

use std::sync::Arc;

use bearward::types::clock::{Clock, SystemClock};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, SerialNumber};
use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;

use super::super::{TLS12, TLS13};
use crate::support::certificates::{Authority, set_validity};
use crate::support::mutual_tls::MutualClient;
use crate::support::{Gateway, Upstream};

const DAY: u64 = 24 * 60 * 60;
const PUBLIC: &str = "[[route]]\npath = \"/\"\npublic = true\n";

fn now() -> u64 {
    SystemClock.now().as_secs()
}

#[tokio::test]
async fn a_handshake_needs_a_valid_certificate_of_the_authority_and_its_key() {
    let (authority, other, upstream) = (Authority::new(), Authority::new(), Upstream::start());
    let keys = "client_certificate = \"required\"";
    let gateway = Gateway::with_clients(&upstream, &authority, keys, PUBLIC);
    let good = authority.client(|_| {});
    let (below, second) = (authority.authority(7), authority.client(|_| {}));
    let at = |from: u64, until: u64| {
        authority.client(|params| {
            set_validity(params, from, until);
        })
    };
    let for_servers = authority.client(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let for_all = authority.client(|params| params.extended_key_usages = Vec::new());
    let (chain, _) = good.pair(&[]);
    let long: Vec<_> = std::iter::repeat_with(|| below.certificate()).take(8).collect();
    for (what, shown, expected) in [
        ("none", None, 0),
        ("good", Some(good.pair(&[])), 200),
        ("of an authority below", Some(below.client(|_| {}).pair(&[below.certificate()])), 200),
        ("without the authority below", Some(below.client(|_| {}).pair(&[])), 0),
        ("of another authority", Some(other.client(|_| {}).pair(&[])), 0),
        ("the right leaf second", Some(other.client(|_| {}).pair(&[good.certificate()])), 0),
        ("expired", Some(at(now() - 2 * DAY, now() - DAY).pair(&[])), 0),
        ("not yet", Some(at(now() + DAY, now() + 2 * DAY).pair(&[])), 0),
        ("for servers", Some(for_servers.pair(&[])), 0),
        // RFC 5280 section 4.2.1.12: without the extension, a certificate is for every purpose.
        ("without purposes", Some(for_all.pair(&[])), 200),
        ("with the key of another one", Some((chain, second.pair(&[]).1)), 0),
        ("with seven others", Some(good.pair(&long[..7])), 200),
        ("with eight others", Some(good.pair(&long)), 0),
    ] {
        for versions in [TLS13, TLS12] {
            let client = MutualClient::of(
                &gateway,
                versions,
                shown.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key())),
            );
            assert_eq!(client.status("/", "").await, expected, "{what} {versions:?}");
        }
    }
    assert_eq!(upstream.seen().len(), 8, "no other request reached the backend");
}

#[tokio::test]
async fn each_certificate_of_a_chain_must_be_on_a_list_that_is_good() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let below = authority.authority(7);
    let numbered =
        |serial: u64| authority.client(move |params| params.serial_number = Some(SerialNumber::from(serial)));
    let (ours, of_below) = (numbered(1), below.client(|params| params.serial_number = Some(SerialNumber::from(3))));
    let status = async |lists: &[String], shown: Option<_>| {
        let folder = Arc::new(TempDir::new().expect("a temporary folder"));
        std::fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
        std::fs::write(folder.path().join("clients.crl"), lists.concat()).expect("written");
        let keys = "client_certificate = \"required\"\nclient_ca = \"clients.pem\"\nclient_crl = [\"clients.crl\"]";
        let gateway = Gateway::with_clients_in(folder, &upstream, keys, PUBLIC);
        MutualClient::new(&gateway, shown).status("/", "").await
    };
    let tomorrow = now() + DAY;
    let list = |revoked: &[u64]| authority.revocation_list(revoked, tomorrow);
    let chain = || Some(of_below.pair(&[below.certificate()]));
    assert_eq!(status(&[list(&[2])], Some(ours.pair(&[]))).await, 200);
    assert_eq!(status(&[list(&[2, 1])], Some(ours.pair(&[]))).await, 0, "a revoked leaf");
    assert_eq!(status(&[list(&[])], chain()).await, 0, "the authority below has no list");
    assert_eq!(status(&[list(&[]), below.revocation_list(&[], tomorrow)], chain()).await, 200);
    assert_eq!(
        status(&[list(&[7]), below.revocation_list(&[], tomorrow)], chain()).await,
        0,
        "its authority is revoked"
    );
    assert_eq!(status(&[list(&[]), below.revocation_list(&[3], tomorrow)], chain()).await, 0);
    assert_eq!(
        status(&[authority.revocation_list(&[], now() - 1)], Some(ours.pair(&[]))).await,
        0,
        "the list has ended"
    );
}

/// RFC 8705 section 2.2: the key counts, not who signed it.
#[tokio::test]
async fn any_certificate_is_accepted_where_only_the_key_counts() {
    let upstream = Upstream::start();
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    let gateway = Gateway::with_clients_in(folder, &upstream, "client_certificate = \"any\"", PUBLIC);
    let own = |edit: fn(&mut CertificateParams)| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        edit(&mut params);
        let certificate = params.self_signed(&key).expect("a certificate");
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).expect("a key"))
    };
    let (chain, _) = own(|_| {});
    for (what, shown, expected) in [
        ("none", None, 200),
        ("self-signed", Some(own(|_| {})), 200),
        // `openssl req -x509` makes such certificates.
        ("as an authority", Some(own(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained))), 200),
        ("of an authority", Some(Authority::new().client(|_| {}).pair(&[])), 200),
        ("expired", Some(own(|params| set_validity(params, now() - 2 * DAY, now() - DAY))), 0),
        ("not yet", Some(own(|params| set_validity(params, now() + DAY, now() + 2 * DAY))), 0),
        ("with the key of another one", Some((chain, own(|_| {}).1)), 0),
    ] {
        assert_eq!(MutualClient::new(&gateway, shown).status("/", "").await, expected, "{what}");
    }
}

#[tokio::test]
async fn an_optional_certificate_must_be_valid_if_there_is_one() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"optional\"", PUBLIC);
    for (shown, expected) in [
        (None, 200),
        (Some(authority.client(|_| {}).pair(&[])), 200),
        (Some(Authority::new().client(|_| {}).pair(&[])), 0),
    ] {
        assert_eq!(MutualClient::new(&gateway, shown).status("/", "").await, expected);
    }
}
