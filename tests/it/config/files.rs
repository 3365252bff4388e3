//! Errors outside the file: other files, environment variables, addresses.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use bearward::admin::SecretSource;
use bearward::config::{self, Config, ConfigErrors, Database, Probe};
use bearward::protocols::tls::ServerTlsSettings;
use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::{Clock, SystemClock};
use bearward::types::secret;
use rcgen::{CertifiedKey, KeyPair, PKCS_ECDSA_P384_SHA384, generate_simple_self_signed};
use tempfile::TempDir;

use super::{assert_only_error, with_upstream};
use crate::support::certificates::{Authority, set_validity};
use crate::support::tokens::Mint;

/// A folder with two certificates and their keys.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a", "b"] {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([format!("{name}.example")]).expect("a certificate");
        write(&folder, &format!("{name}.pem"), cert.pem());
        write(&folder, &format!("{name}.key"), signing_key.serialize_pem());
    }
    folder
}

fn write(folder: &TempDir, name: &str, contents: impl AsRef<[u8]>) {
    secret::write_private(&folder.path().join(name), contents.as_ref()).expect("a file");
}

fn read(folder: &TempDir, name: &str) -> String {
    fs::read_to_string(folder.path().join(name)).expect("a file")
}

fn parse(folder: &TempDir, text: &str) -> Result<Config, ConfigErrors> {
    config::parse(&with_upstream(text), folder.path(), Probe::None)
}

fn listener(certificate: &str, key: &str) -> String {
    format!("[[listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificate = \"{certificate}\", key = \"{key}\" }}\n")
}

#[test]
fn several_certificates_with_their_keys_are_accepted() {
    let folder = folder();
    let text = "[[listener]]\naddress = \"127.0.0.1:0\"\n\
                tls = [{ certificate = \"a.pem\", key = \"a.key\" }, { certificate = \"b.pem\", key = \"b.key\" }]\n";
    let config = parse(&folder, text).expect("both pairs fit");
    let pairs: Vec<_> = config.listeners[0].tls.files().collect();
    assert_eq!(pairs[1].certificate, folder.path().join("b.pem"));
    assert_eq!(pairs.len(), 2);
}

#[test]
fn invalid_certificates_and_keys_are_rejected() {
    let folder = folder();
    write(&folder, "empty.pem", "");
    write(&folder, "broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    write(&folder, "torn.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    write(&folder, "torn.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n");
    write(&folder, "dashes.key", "-----BEGIN PRIVATE KEY---\nAAAA\n-----END PRIVATE KEY-----\n");
    write(&folder, "binary.pem", [0x30, 0x82, 0x01, 0x0a]);
    write(&folder, "chain.pem", read(&folder, "b.pem") + &read(&folder, "a.pem"));
    write(&folder, "two.key", read(&folder, "a.key") + &read(&folder, "b.key"));
    write(&folder, "locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    write(&folder, "odd.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let (certificate, key) = ("listener[0].tls.certificate", "listener[0].tls.key");
    let rows = [
        ("no.pem", "a.key", certificate, "no.pem does not exist"),
        ("empty.pem", "a.key", certificate, "contains no certificate"),
        ("b.key", "a.key", certificate, "exchange the paths of certificate and key"),
        ("broken.pem", "a.key", certificate, "certificate 1 of"),
        ("torn.pem", "a.key", certificate, "is not PEM: the last section has no END line: the file is cut off"),
        ("a.pem", "torn.key", key, "is not PEM: the last section has no END line: the file is cut off"),
        ("a.pem", "dashes.key", key, "is not PEM: a BEGIN line has no five dashes at its end"),
        ("binary.pem", "a.key", certificate, "openssl x509 -inform der"),
        (".", "a.key", certificate, "is a folder"),
        ("a.pem", "no.key", key, "no.key does not exist"),
        ("a.pem", "b.pem", key, "exchange the paths of certificate and key"),
        ("a.pem", "b.key", key, "does not match the certificate"),
        ("chain.pem", "a.key", certificate, "in the wrong order"),
        ("a.pem", "two.key", key, "several private keys"),
        ("a.pem", "locked.key", key, "is encrypted"),
        ("a.pem", "odd.key", key, "unsupported type"),
    ];
    for (certificate, private_key, key, says) in rows {
        let text = listener(certificate, private_key);
        let value = if key.ends_with("key") { private_key } else { certificate };
        let column = text.lines().nth(2).and_then(|line| line.find(&format!("\"{value}\""))).expect("it is there") + 1;
        assert_only_error(parse(&folder, &text), key, (3, column), says);
    }
}

/// Each names the fault, and not another one.
#[test]
fn private_keys_that_tls_cannot_use_are_named() {
    let folder = folder();
    for (name, arguments, says) in [
        ("pkcs1.key", "genrsa -traditional -aes256 -passout pass:secret 2048", "is encrypted"),
        ("pkcs8.key", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024", "the RSA key in"),
        ("small.key", "genrsa -traditional 1024", "has 1024 bits"),
        ("brainpool.key", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:brainpoolP256r1", "unsupported type"),
        ("sec1.key", "ecparam -name prime256v1 -genkey -noout", "does not match the certificate"),
        ("locked.key", "ec -in sec1.key -aes256 -passout pass:secret", "openssl pkey -in"),
    ] {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(folder.path()).output();
        write(&folder, name, made.expect("openssl is there").stdout);
        let text = listener("a.pem", name);
        let column = text.lines().nth(2).and_then(|line| line.find(&format!("\"{name}\""))).expect("it is there") + 1;
        assert_only_error(parse(&folder, &text), "listener[0].tls.key", (3, column), says);
    }
}

/// Root can read all files, so the program runs as another user then.
#[test]
fn a_file_without_read_permission_is_an_error() {
    let folder = folder();
    fs::write(folder.path().join("gateway.toml"), with_upstream(&listener("a.pem", "a.key"))).expect("written");
    fs::set_permissions(folder.path().join("a.key"), fs::Permissions::from_mode(0o000)).expect("permissions");
    fs::copy(env!("CARGO_BIN_EXE_bearward"), folder.path().join("bearward")).expect("copied");
    let line = "if ((EUID != 0)); then exec ./bearward check; fi; chown -R 65534:65534 . && \
                exec setpriv --reuid 65534 --regid 65534 --clear-groups ./bearward check";
    let output = Command::new("bash").args(["-c", line]).current_dir(folder.path()).output().expect("bash is there");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(errors.contains("listener[0].tls.key: no permission to read"), "{errors}");
}

#[test]
fn a_signing_key_must_match_its_algorithm() {
    let folder = folder();
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).expect("a key");
    write(&folder, "p384.key", p384.serialize_pem());
    let tokens = |file: &str, algorithm: &str| {
        parse(&folder, &format!("[tokens]\nsigning_key_file = \"{file}\"\nalgorithm = \"{algorithm}\"\n"))
    };
    tokens("a.key", "ES256").expect("P-256 signs ES256");
    tokens("p384.key", "ES384").expect("P-384 signs ES384");
    for (file, algorithm) in [("a.key", "ES384"), ("p384.key", "ES256"), ("a.key", "EdDSA"), ("a.key", "RS256")] {
        let says = format!("cannot sign {algorithm}");
        assert_only_error(tokens(file, algorithm), "tokens.signing_key_file", (2, 20), &says);
    }
    assert_only_error(tokens("a.pem", "ES256"), "tokens.signing_key_file", (2, 20), "contains no private key");
}

/// `serve` rejects it as well. The primes of this key have the form that ROCA (CVE-2017-15361) factors.
#[test]
fn a_signing_key_that_can_be_factored_is_rejected() {
    let folder = folder();
    write(&folder, "weak.key", include_str!("weak_signing_key.pem"));
    let text = "[tokens]\nsigning_key_file = \"weak.key\"\nalgorithm = \"RS256\"\n";
    assert_only_error(parse(&folder, text), "tokens.signing_key_file", (2, 20), "ROCA");
}

#[test]
fn a_ca_file_needs_an_https_server() {
    let folder = folder();
    let upstream = |scheme: &str, file: &str| {
        parse(&folder, &format!("[[upstream]]\nservers = [\"{scheme}://a\"]\nca_file = \"{file}\"\n"))
    };
    upstream("https", "a.pem").expect("an authority");
    assert_only_error(upstream("http", "a.pem"), "upstream[0].ca_file", (3, 11), "expected servers with https://");
    assert_only_error(upstream("https", "no.pem"), "upstream[0].ca_file", (3, 11), "does not exist");
}

#[test]
fn the_keys_of_an_issuer_must_exist() {
    let folder = folder();
    write(&folder, "good.json", Mint::new(Algorithm::ES256).jwks());
    write(&folder, "32.secret", "s".repeat(32));
    write(&folder, "31.secret", "s".repeat(31));
    write(&folder, "empty.json", r#"{"keys":[]}"#);
    write(&folder, "other.json", r#"{"issuer":"x"}"#);
    write(&folder, "empty.secret", "\n");
    let issuer = |key: &str, file: &str, algorithm: &str| {
        let keys = format!("{key} = \"{file}\"\nalgorithms = [\"{algorithm}\"]\n");
        parse(&folder, &format!("[[issuer]]\nissuer = \"x\"\naudience = [\"y\"]\n{keys}"))
    };
    issuer("jwks_file", "good.json", "ES256").expect("a JWKS");
    issuer("pem_file", "a.pem", "ES256").expect("the key of a certificate");
    issuer("secret_file", "32.secret", "HS256").expect("a secret as long as the hash");
    assert_only_error(issuer("jwks_file", "empty.json", "ES256"), "issuer[0].jwks_file", (4, 13), "no key can be used");
    assert_only_error(issuer("jwks_file", "good.json", "ES384"), "issuer[0].jwks_file", (4, 13), "no key can be used");
    assert_only_error(issuer("jwks_file", "other.json", "ES256"), "issuer[0].jwks_file", (4, 13), "the array \"keys\"");
    assert_only_error(issuer("pem_file", "a.key", "ES256"), "issuer[0].pem_file", (4, 12), "a private key");
    assert_only_error(
        issuer("pem_file", "a.pem", "HS256"),
        "issuer[0].algorithms",
        (5, 14),
        "does not use public keys",
    );
    assert_only_error(
        issuer("secret_file", "empty.secret", "HS256"),
        "issuer[0].secret_file",
        (4, 15),
        "0 bytes is too short",
    );
    assert_only_error(
        issuer("secret_file", "31.secret", "HS256"),
        "issuer[0].secret_file",
        (4, 15),
        "31 bytes is too short",
    );
}

#[test]
fn secrets_come_from_a_file_or_from_the_environment() {
    let folder = folder();
    write(&folder, "empty.secret", "");
    let config = parse(&folder, "[store]\nsecret_env = \"PATH\"\n").expect("PATH is set");
    assert_eq!(config.store.secret, SecretSource::Environment("PATH".to_owned()));
    assert_eq!(config.admin.token, SecretSource::File(folder.path().join("admin.token")));
    assert_only_error(
        parse(&folder, "[store]\nsecret_file = \"empty.secret\"\n"),
        "store.secret_file",
        (2, 15),
        "creates a new secret",
    );
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let folder = folder();
    write(
        &folder,
        "gateway.toml",
        with_upstream("[store]\nsqlite = \"./b.db\"\n[access_log]\nfile = \"/tmp/a.log\"\n"),
    );
    let config = config::load(&folder.path().join("gateway.toml"), Probe::None).expect("it is valid");
    assert_eq!(config.store.database, Database::Sqlite(folder.path().join("b.db")));
    assert_eq!(config.access_log.target, bearward::telemetry::access_log::AccessLogTarget::File("/tmp/a.log".into()));
    assert_eq!(config.listeners[0].tls, ServerTlsSettings::SelfSigned { folder: folder.path().join("tls") });
}

#[test]
fn addresses_are_probed_only_before_a_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let text = with_upstream(&format!("[[listener]]\naddress = \"{address}\"\n[admin]\naddress = \"127.0.0.1:0\"\n"));
    let check = |probe| config::parse(&text, Path::new(env!("CARGO_MANIFEST_DIR")), probe);

    check(Probe::None).expect("no address is probed");
    assert_only_error(check(Probe::Addresses), "listener[0].address", (2, 11), "is in use");
    drop(taken);
    check(Probe::Addresses).expect("the address is free");
    TcpListener::bind(address).expect("the probe released the address");
}

#[test]
fn an_address_of_another_machine_is_an_error() {
    // 192.0.2.0/24 is for documentation (RFC 5737): no machine has it.
    let text = with_upstream("[[listener]]\naddress = \"192.0.2.1:8443\"\n[admin]\naddress = \"127.0.0.1:0\"\n");
    let result = config::parse(&text, Path::new(env!("CARGO_MANIFEST_DIR")), Probe::Addresses);
    assert_only_error(result, "listener[0].address", (2, 11), "not an address of this machine");
}

/// Every client would reject it, also after a reload that replaces a good one.
#[test]
fn a_certificate_that_is_not_valid_now_is_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let now = SystemClock.now().as_secs();
    for (name, from, until, says) in [
        ("good", now - 60, now + 60, None),
        ("old", now - 60, now - 1, Some("old.pem ended at ")),
        ("new", now + 60, now + 120, Some("new.pem begins at ")),
    ] {
        authority.client(|params| set_validity(params, from, until)).write(folder.path(), name);
        let keys = format!("client_certificate = \"{name}.pem\"\nclient_key = \"{name}.key\"\n");
        let listener = listener(&format!("{name}.pem"), &format!("{name}.key"));
        let text = format!("[[upstream]]\nservers = [\"https://a.example\"]\n{keys}{listener}");
        let (_, warnings) = config::parse_with_warnings(&text, folder.path(), Probe::None).expect("a valid file");
        let about = warnings.all().iter().filter(|warning| says.is_some_and(|says| warning.message.contains(says)));
        let found: Vec<_> = about.map(|warning| warning.place.key.as_str()).collect();
        let expected = ["upstream[0].client_certificate", "listener[0].tls.certificate"];
        assert_eq!(found, if says.is_some() { &expected[..] } else { &[] }, "{name}");
        let of_good = warnings.all().iter().filter(|warning| warning.message.contains("good.pem")).count();
        assert_eq!(of_good, 0);
    }
}
