//! Files with secrets that other users can read or replace.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bearward::config::{self, Probe};
use bearward::tokens::jwt::Algorithm;
use bearward::types::secret;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

use super::{assert_only_error, with_upstream};
use crate::support::program::bearward;
use crate::support::tokens::Mint;

pub(super) fn folder() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, content: &str| {
        secret::write_private(&folder.path().join(name), content.as_bytes()).expect("written");
    };
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["a.example".to_owned()]).expect("made");
    write("a.pem", &cert.pem());
    write("keys.json", &Mint::new(Algorithm::ES256).jwks());
    write("a.key", &signing_key.serialize_pem());
    write("hmac.secret", &"s".repeat(64));
    write("authorization", &format!("Bearer {}", "x".repeat(32)));
    write("root.secret", &format!("1 {}", "0".repeat(43)));
    write("admin.token", &"0".repeat(43));
    write("client.secret", "secret");
    write("store.db", "");
    folder
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// Each key that names a secret, and the secret.
const SECRETS: [(&str, &str, &str); 16] = [
    (
        "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = { certificate = \"a.pem\", key = \"a.key\" }",
        "listener[0].tls.key",
        "a.key",
    ),
    ("[admin]\ntls = { certificate = \"a.pem\", key = \"a.key\" }", "admin.tls.key", "a.key"),
    (
        "[[upstream]]\nservers = [\"https://a\"]\nclient_certificate = \"a.pem\"\nclient_key = \"a.key\"",
        "upstream[0].client_key",
        "a.key",
    ),
    ("[tokens]\nsigning_key_file = \"a.key\"", "tokens.signing_key_file", "a.key"),
    (
        "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\nalgorithms = [\"HS256\"]\nsecret_file = \"hmac.secret\"",
        "issuer[0].secret_file",
        "hmac.secret",
    ),
    (
        "[oauth]\nintrospection_endpoint = \"/i\"\n[[oauth.resource_server]]\nclient_id = \"a\"\n\
         secret_file = \"hmac.secret\"",
        "oauth.resource_server[0].secret_file",
        "hmac.secret",
    ),
    (
        "[audit]\nwebhook = \"https://a\"\nwebhook_authorization_file = \"authorization\"",
        "audit.webhook_authorization_file",
        "authorization",
    ),
    (
        "[store]\npostgres = \"postgres://a@h/d\"\npostgres_password_file = \"hmac.secret\"",
        "store.postgres_password_file",
        "hmac.secret",
    ),
    ("[store]\nsecret_file = \"root.secret\"", "store.secret_file", "root.secret"),
    ("[store]\nsqlite = \"store.db\"", "store.sqlite", "store.db"),
    (
        "[[provider]]\nname = \"a\"\nissuer = \"https://a.example\"\nclient_id = \"b\"\nclient_secret_file = \"client.secret\"",
        "provider[0].client_secret_file",
        "client.secret",
    ),
    (
        "[[provider]]\nname = \"a\"\nissuer = \"https://a.example\"\nclient_id = \"b\"\nclient_auth = \"private_key_jwt\"\nassertion_key_file = \"a.key\"",
        "provider[0].assertion_key_file",
        "a.key",
    ),
    (
        "[[provider]]\nname = \"a\"\nissuer = \"https://a.example\"\nclient_id = \"b\"\nclient_auth = \"tls_client_auth\"\nclient_certificate = \"a.pem\"\nclient_key = \"a.key\"",
        "provider[0].client_key",
        "a.key",
    ),
    (
        "[[event_stream]]\nname = \"a\"\nissuer = \"https://a.example\"\naudience = \"b\"\npath = \"/events\"\nauthorization_file = \"authorization\"",
        "event_stream[0].authorization_file",
        "authorization",
    ),
    (
        "[[event_stream]]\nname = \"a\"\nissuer = \"https://a.example\"\naudience = \"b\"\npoll_url = \"https://a.example/p\"\n[event_stream.client]\ntoken_endpoint = \"https://a.example/t\"\nclient_id = \"c\"\nclient_secret_file = \"client.secret\"",
        "event_stream[0].client.client_secret_file",
        "client.secret",
    ),
    ("[admin]\ntoken_file = \"admin.token\"", "admin.token_file", "admin.token"),
];

#[test]
fn every_secret_that_others_can_read_is_rejected() {
    let folder = folder();
    let parse = |text: &str| config::parse(&with_upstream(text), folder.path(), Probe::None);
    for (text, key, file) in SECRETS {
        parse(text).unwrap_or_else(|errors| panic!("{key}: {errors}"));
        let path = folder.path().join(file);
        for mode in [0o644, 0o604, 0o602] {
            set_mode(&path, mode);
            let errors = parse(text).err().unwrap_or_else(|| panic!("{key}: {mode:o}"));
            let place = errors.line_and_column(&errors.all()[0].place);
            assert_only_error(parse(text), key, place, &format!("run: chmod 600 {}", path.display()));
        }
        set_mode(&path, 0o400);
        parse(text).unwrap_or_else(|errors| panic!("{key}: {errors}"));
        set_mode(&path, 0o600);
    }
}

/// A secret of Kubernetes is a link to a link.
#[test]
fn the_mode_of_a_linked_secret_counts() {
    let folder = folder();
    fs::create_dir(folder.path().join("..data")).expect("created");
    let file = folder.path().join("..data/tls.key");
    fs::rename(folder.path().join("a.key"), &file).expect("moved");
    std::os::unix::fs::symlink("..data/tls.key", folder.path().join("a.key")).expect("linked");
    let (text, key, _) = SECRETS[0];
    let parse = || config::parse(&with_upstream(text), folder.path(), Probe::None);
    parse().expect("it is private");
    set_mode(&file, 0o644);
    assert_only_error(parse(), key, (3, 38), "every user of this machine can use");
}

#[test]
fn a_folder_in_which_others_can_replace_secrets_is_rejected() {
    let folder = folder();
    for (text, key) in [
        ("[store]\nsqlite = \"f/store.db\"", "store.sqlite"),
        ("[store]\nsecret_file = \"f/root.secret\"", "store.secret_file"),
        ("[admin]\ntoken_file = \"f/admin.token\"", "admin.token_file"),
        ("[admin]\nsocket = \"f/admin\"", "admin.socket"),
    ] {
        let inner = folder.path().join("f");
        fs::create_dir_all(&inner).expect("created");
        let parse = || config::parse(&with_upstream(text), folder.path(), Probe::None);
        for accepted in [0o700, 0o755, 0o775, 0o1777] {
            set_mode(&inner, accepted);
            parse().unwrap_or_else(|errors| panic!("{key}: {accepted:o}: {errors}"));
        }
        set_mode(&inner, 0o777);
        let errors = parse().expect_err("others can write");
        let place = errors.line_and_column(&errors.all()[0].place);
        assert_only_error(parse(), key, place, &format!("run: chmod o-w {}", inner.display()));
    }
}

/// Each secret, in a folder for all users and behind a link into it.
#[test]
fn every_secret_that_others_can_replace_is_rejected() {
    let folder = folder();
    let open = folder.path().join("open");
    fs::create_dir(&open).expect("created");
    for (text, key, file) in SECRETS {
        let parse = |text: &str| config::parse(&with_upstream(text), folder.path(), Probe::None);
        let inside = text.replace(&format!("\"{file}\""), &format!("\"open/{file}\""));
        assert_ne!(text, inside, "{key}");
        fs::rename(folder.path().join(file), open.join(file)).expect("moved");
        std::os::unix::fs::symlink(open.join(file), folder.path().join(file)).expect("linked");
        for text in [text, &inside] {
            set_mode(&open, 0o755);
            parse(text).unwrap_or_else(|errors| panic!("{key}: {errors}"));
            set_mode(&open, 0o777);
            let errors = parse(text).err().unwrap_or_else(|| panic!("{key} in an open folder:\n{text}"));
            let place = errors.line_and_column(&errors.all()[0].place);
            assert_only_error(parse(text), key, place, &format!("run: chmod o-w {}", open.display()));
        }
        fs::rename(open.join(file), folder.path().join(file)).expect("moved back");
    }
}

#[test]
fn files_that_decide_about_tokens_are_not_for_all_to_write() {
    let folder = folder();
    let issuer = "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\nalgorithms = [\"ES256\"]\n";
    for (text, key, file) in [
        (format!("{issuer}pem_file = \"a.pem\""), "issuer[0].pem_file", "a.pem"),
        (format!("{issuer}jwks_file = \"keys.json\""), "issuer[0].jwks_file", "keys.json"),
        (format!("{issuer}jwks_url = \"https://a/k\"\nca_file = \"a.pem\""), "issuer[0].ca_file", "a.pem"),
        (SECRETS[0].0.to_owned(), "listener[0].tls.certificate", "a.pem"),
        (
            "[[listener]]\naddress = \"127.0.0.1:0\"\nclient_certificate = \"any\"\n[oauth]\ntoken_endpoint = \"/t\"\n\
             [[oauth.client]]\nclient_id = \"ci\"\nclient_auth = \"self_signed_tls_client_auth\"\n\
             certificate_file = \"a.pem\"\n"
                .to_owned(),
            "oauth.client[0].certificate_file",
            "a.pem",
        ),
    ] {
        let parse = || config::parse(&with_upstream(&text), folder.path(), Probe::None);
        let path = folder.path().join(file);
        for (mode, is_accepted) in [(0o644, true), (0o664, true), (0o666, false), (0o602, false)] {
            set_mode(&path, mode);
            let errors = parse().err();
            assert_eq!(errors.is_none(), is_accepted, "{key} {mode:o}: {errors:?}");
            if let Some(errors) = errors {
                let place = errors.line_and_column(&errors.all()[0].place);
                assert_only_error(parse(), key, place, &format!("run: chmod o-w {}", path.display()));
            }
        }
        set_mode(&path, 0o600);
    }
}

#[test]
fn check_and_serve_reject_a_configuration_that_all_can_write() {
    let folder = folder();
    let file = folder.path().join("gateway.toml");
    let text = "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n";
    fs::write(&file, with_upstream(text)).expect("written");
    let run = |command: &str| {
        let output = bearward(folder.path(), &[command]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    set_mode(&file, 0o644);
    assert_eq!(run("check").0, Some(0));
    for (mode, path) in [(0o666, file.as_path()), (0o777, folder.path())] {
        set_mode(path, mode);
        for command in ["check", "serve"] {
            let (status, errors) = run(command);
            assert_eq!(status, Some(2), "{command} {mode:o}: {errors}");
            assert!(errors.contains("run: chmod o-w"), "{errors}");
        }
        set_mode(path, 0o700);
    }
}

/// A secret of another form, as `openssl rand -hex 32` writes it, would stop the start.
#[test]
fn check_reads_the_root_secret_and_the_admin_token() {
    let folder = folder();
    let text = with_upstream("[store]\nsecret_file = \"root.secret\"\n[admin]\ntoken_file = \"admin.token\"\n");
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let check = || {
        let output = bearward(folder.path(), &["check", "--offline"]);
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8"))
    };
    assert_eq!(check().0, Some(0));
    for (file, content, says) in [
        ("root.secret", "0".repeat(64), ["store.secret_file: ", "line 1: expected a number and a root secret"]),
        ("admin.token", "short".to_owned(), ["admin.token_file: ", "the admin token must have"]),
    ] {
        let before = fs::read(folder.path().join(file)).expect("read");
        fs::write(folder.path().join(file), &content).expect("written");
        let (status, shown) = check();
        assert!(status == Some(2) && says.iter().all(|part| shown.contains(part)), "{shown}");
        assert!(!shown.contains(&content), "{shown}");
        fs::write(folder.path().join(file), before).expect("written");
    }
}
