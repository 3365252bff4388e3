//! PEM files of which a parser would lose a section in silence: two files that were joined without a line break between
//! them, and a byte order mark before the first section.

use std::fs;
use std::path::Path;

use bearward::config::{self, Probe};
use bearward::types::clock::{Clock, SystemClock};
use bearward::types::secret;
use tempfile::TempDir;

use crate::support::certificates::Authority;

fn errors(folder: &Path, text: &str) -> String {
    match config::parse(text, folder, Probe::None) {
        Ok(_) => String::new(),
        Err(errors) => errors.render(false),
    }
}

/// `one` and `other` as they are, joined without a line break, and after a byte order mark.
fn joined(one: &str, other: &str) -> [(String, bool); 4] {
    [
        (format!("{one}{other}"), true),
        (format!("# comment with -----BEGIN CERTIFICATE-----\n{one}\r\ntext\r\n{other}"), true),
        (format!("{}{other}", one.trim_end()), false),
        (format!("\u{feff}{one}{other}"), false),
    ]
}

#[test]
fn every_section_of_a_pem_file_is_read_or_the_file_is_rejected() {
    let authority = Authority::new();
    let other = Authority::new();
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    let signed = authority.sign("localhost");
    signed.write(folder.path(), "good");
    write("clients.pem", &authority.pem());
    let tomorrow = SystemClock.now().as_secs() + 86_400;
    let lists = joined(&authority.revocation_list(&[], tomorrow), &other.revocation_list(&[], tomorrow));
    let chains = joined(&signed.pem(), &authority.pem());
    let authorities = joined(&authority.pem(), &other.pem());
    let upstream = "[[upstream]]\nservers = [\"https://a\"]\n";
    let listener =
        "[[listener]]\naddress = \"127.0.0.1:1\"\ntls = { certificate = \"good.pem\", key = \"good.key\" }\n";
    let issuer = "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\nalgorithms = [\"ES256\"]\n";
    let asking = "client_certificate = \"required\"\n";
    for (files, text) in [
        (&chains, format!("{upstream}{}", listener.replace("good.pem", "file"))),
        (&authorities, format!("{upstream}ca_file = \"file\"\n")),
        (&authorities, format!("{upstream}{listener}{asking}client_ca = \"file\"\n")),
        (&lists, format!("{upstream}{listener}{asking}client_ca = \"clients.pem\"\nclient_crl = [\"file\"]\n")),
        (&chains, format!("{upstream}{issuer}pem_file = \"file\"\n")),
    ] {
        for (content, is_good) in files {
            write("file", content);
            let found = errors(folder.path(), &text);
            assert_eq!(found.is_empty(), *is_good, "{text}{content}{found}");
            let says = "put each BEGIN and END line on a line of its own";
            assert!(*is_good || found.contains("2 sections") && found.contains(says), "{found}");
        }
    }
    // Of two keys, one would be lost.
    let key = fs::read_to_string(folder.path().join("good.key")).expect("a key");
    let text = format!("{upstream}{listener}");
    secret::write_private(&folder.path().join("good.key"), format!("{}{key}", key.trim_end()).as_bytes())
        .expect("written");
    assert!(errors(folder.path(), &text).contains("2 sections with the label PRIVATE KEY"));
}

/// Labels of other programs: nginx reads `X509 CERTIFICATE`, and OpenSSL adds its own data to `TRUSTED CERTIFICATE`.
#[test]
fn a_section_with_another_label_is_named() {
    let authority = Authority::new();
    let folder = TempDir::new().expect("a folder");
    authority.sign("localhost").write(folder.path(), "good");
    let tomorrow = SystemClock.now().as_secs() + 86_400;
    fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
    let tls = "[[upstream]]\nservers = [\"https://a\"]\n[[listener]]\naddress = \"127.0.0.1:1\"\n\
               tls = { certificate = \"good.pem\", key = \"good.key\" }\nclient_certificate = \"required\"\n";
    let certificates = format!("{tls}client_ca = \"file\"\n");
    let lists = format!("{tls}client_ca = \"clients.pem\"\nclient_crl = [\"file\"]\n");
    let certificate = authority.pem();
    let list = authority.revocation_list(&[], tomorrow);
    let other = certificate.replace(" CERTIFICATE-", " X509 CERTIFICATE-");
    for (content, text, found, expected) in [
        (format!("{certificate}{other}"), &certificates, "X509 CERTIFICATE", "expected CERTIFICATE"),
        (other, &certificates, "X509 CERTIFICATE", "expected CERTIFICATE"),
        (list.replace(" X509 CRL-", " CRL-"), &lists, "CRL", "expected X509 CRL"),
    ] {
        fs::write(folder.path().join("file"), content).expect("written");
        let found_errors = errors(folder.path(), text);
        let says = format!("a section in this file has the label {found}; {expected}");
        assert!(found_errors.contains(&says) && !found_errors.contains("on a line of its own"), "{says}{found_errors}");
    }
}

/// A file with a private key is a secret, whatever key of the configuration names it.
#[test]
fn a_certificate_file_with_a_private_key_is_a_secret() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().expect("a folder");
    let signed = Authority::new().sign("localhost");
    signed.write(folder.path(), "good");
    let key = fs::read_to_string(folder.path().join("good.key")).expect("a key");
    let bundle = folder.path().join("bundle.pem");
    secret::write_private(&bundle, format!("{}{key}", signed.pem()).as_bytes()).expect("written");
    let text = "[[upstream]]\nservers = [\"https://a\"]\n[[listener]]\naddress = \"127.0.0.1:1\"\n\
                tls = { certificate = \"bundle.pem\", key = \"good.key\" }\n";
    assert_eq!(errors(folder.path(), text), "");
    fs::set_permissions(&bundle, fs::Permissions::from_mode(0o644)).expect("set");
    let found = errors(folder.path(), text);
    assert!(found.contains("every user of this machine can use") && found.contains("chmod 600"), "{found}");
}
