//! Configurations of each release go on being valid: an upgrade needs no change of `gateway.toml`.

use std::fs;
use std::path::Path;

use bearward::config::{self, Probe};
use bearward::tokens::jwt::Algorithm;
use bearward::types::secret;
use tempfile::TempDir;

use crate::support::certificates::Authority;
use crate::support::files::{names, write_certificates};
use crate::support::source;
use crate::support::tokens::Mint;

const FOLDER: &str = "tests/it/config/releases";

/// The files that the configurations name.
fn write_files(folder: &Path) {
    let tls = folder.join("tls");
    write_certificates(&Authority::new(), &tls);
    for (from, to) in [("fullchain.pem", "tls.crt"), ("key.pem", "tls.key")] {
        fs::copy(tls.join(from), tls.join(to)).expect("copied");
    }
    for name in ["keys", "secrets"] {
        fs::create_dir(folder.join(name)).expect("created");
    }
    fs::write(folder.join("keys/partner.json"), Mint::new(Algorithm::ES256).jwks()).expect("written");
    for name in ["ca.pem", "fullchain.pem", "key.pem"] {
        fs::copy(tls.join(name), folder.join("secrets").join(name)).expect("copied");
    }
    let root = format!("1 0{}\n", "r".repeat(42));
    for (name, content) in [("bearward.secret", root.as_str()), ("admin.token", &root), ("postgres.password", "secret")]
    {
        secret::write_private(&folder.join("secrets").join(name), content.as_bytes()).expect("written");
    }
}

#[test]
fn a_configuration_of_an_earlier_release_is_valid() {
    let folder = TempDir::new().expect("a folder");
    write_files(folder.path());
    let releases = names(&source::root().join(FOLDER));
    assert!(releases.contains(&"0.1.0".to_owned()), "{releases:?}");
    for release in releases {
        let files = names(&source::root().join(FOLDER).join(&release));
        assert!(files.contains(&"gateway.toml".to_owned()) && files.len() > 5, "{release}: {files:?}");
        for file in files {
            let text = source::read(format!("{FOLDER}/{release}/{file}"));
            let text = ["/var/lib/bearward/", "/etc/bearward/", "/run/bearward/"]
                .iter()
                .fold(text, |text, place| text.replace(place, ""));
            if let Err(errors) = config::parse(&text, folder.path(), Probe::None) {
                panic!("{release}/{file} is no longer valid:\n{errors}");
            }
        }
    }
}
