//! `[[admin.operator]]`

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use bearward::config::{self, Probe};
use bearward::types::secret;

use super::with_upstream;

#[test]
fn an_operator_has_a_name_and_a_long_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        secret::write_private(&folder.path().join(name), text.as_bytes()).expect("written");
    };
    write("good", "0123456789abcdef0123456789abcdef\n");
    write("short", "0123456789abcdef0123456789abcde\n");
    write("braces", "{0123456789abcdef0123456789abcdef}\n");
    std::fs::write(folder.path().join("lax"), "0123456789abcdef0123456789abcdef").expect("written");
    std::fs::set_permissions(folder.path().join("lax"), Permissions::from_mode(0o644)).expect("changed");
    let operator = |keys: &str| with_upstream(&format!("[[admin.operator]]\n{keys}\n"));
    let good = "name = \"alice\"\ntoken_file = \"good\"\nrole = \"operate\"";
    let long = format!("name = \"{}\"\ntoken_file = \"good\"", "a".repeat(65));
    for (keys, key, says) in [
        ("token_file = \"good\"", "admin.operator[0].name", "is missing"),
        ("name = \"alice\"", "admin.operator[0].token_file", "is missing"),
        ("name = \"\"\ntoken_file = \"good\"", "admin.operator[0].name", "not a name"),
        ("name = \"a b\"\ntoken_file = \"good\"", "admin.operator[0].name", "not a name"),
        (&long, "admin.operator[0].name", "not a name"),
        ("name = \"admin\"\ntoken_file = \"good\"", "admin.operator[0].name", "uses this name itself"),
        ("name = \"local\"\ntoken_file = \"good\"", "admin.operator[0].name", "uses this name itself"),
        ("name = \"a\"\ntoken_file = \"no\"", "admin.operator[0].token_file", "does not exist"),
        ("name = \"a\"\ntoken_file = \"short\"", "admin.operator[0].token_file", "32 or more"),
        ("name = \"a\"\ntoken_file = \"braces\"", "admin.operator[0].token_file", "has no token"),
        ("name = \"a\"\ntoken_file = \"lax\"", "admin.operator[0].token_file", "lax"),
        ("name = \"a\"\ntoken_file = \"good\"\nrole = \"root\"", "admin.operator[0].role", "unknown value"),
        (&format!("{good}\n[[admin.operator]]\n{good}"), "admin.operator[1].name", "the same name"),
    ] {
        let errors = config::parse(&operator(keys), folder.path(), Probe::None).expect_err(keys);
        let error = &errors.all()[0];
        assert_eq!(error.place.key, key, "{keys}");
        assert!(error.message.contains(says), "{}", error.message);
    }
    let config = config::parse(&operator(good), folder.path(), Probe::None).expect("valid");
    let shown = format!("{:?}", config.admin.operators);
    assert!(shown.contains("alice") && shown.contains("Operate") && !shown.contains("0123456789"), "{shown}");
}
