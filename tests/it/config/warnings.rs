//! Warnings of `bearward check`, with place, danger and advice. The gateway starts in spite of them.

use std::path::Path;

use bearward::config::{self, Probe};

use crate::support::program::bearward;
use crate::support::source;

/// Text of the configuration, and for each warning its key, line and a part of the message.
pub(super) type Row = (&'static str, &'static [(&'static str, usize, &'static str)]);

const UPSTREAM: &str = "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n";

fn warnings(text: &str, base: &Path) -> Vec<(String, usize, String)> {
    let (_, warnings) = config::parse_with_warnings(text, base, Probe::None).expect("a valid configuration");
    let found = warnings.all().iter().map(|warning| {
        assert!(!warning.expected.is_empty() && !warning.help.is_empty(), "{warning:?}");
        let text = [&*warning.message, &warning.expected, &warning.help].join("; ");
        (warning.place.key.clone(), warnings.line_and_column(&warning.place).0, text)
    });
    found.collect()
}

/// `rows`: each text follows the two lines of [`UPSTREAM`].
pub(super) fn check(rows: &[Row]) {
    let folder = tempfile::tempdir().expect("a folder");
    for (text, expected) in rows {
        let found = warnings(&format!("{UPSTREAM}{text}"), folder.path());
        let matches = found.len() == expected.len()
            && found
                .iter()
                .zip(*expected)
                .all(|(found, (key, line, says))| found.0 == *key && found.1 == *line && found.2.contains(says));
        assert!(matches, "{text}\nexpected {expected:?}\nfound {found:?}");
    }
}

#[test]
fn routes_that_seem_protected_are_reported() {
    check(&[
        // The bare path of a route.
        (
            "[[route]]\npath = \"/\"\n[[route]]\npath = \"/admin/\"\nscopes = [\"admin\"]",
            &[("route[1].path", 6, "/admin is not protected by this route")],
        ),
        ("[[route]]\npath = \"/\"\n[[route]]\npath = \"/admin\"\nscopes = [\"admin\"]", &[]),
        ("[[route]]\npath = \"/admin/\"\nscopes = [\"admin\"]", &[]),
        ("[[route]]\npath = \"/\"\nscopes = [\"admin\"]\n[[route]]\npath = \"/a/\"\nscopes = [\"admin\"]", &[]),
        (
            "[[route]]\npath = \"/\"\nmethods = [\"GET\"]\n[[route]]\npath = \"/a/\"\nscopes = [\"a\"]\n\
             methods = [\"POST\"]",
            &[],
        ),
        (
            "[[route]]\npath = \"/\"\n[[route]]\npath = \"/a\"\nscopes = [\"a\"]\n[[route]]\npath = \"/a/\"\n\
             scopes = [\"a\"]",
            &[],
        ),
        (
            "[[route]]\npath = \"/\"\nenforce = false\n[[route]]\npath = \"/a/\"",
            &[("route[1].path", 7, "/a is not protected")],
        ),
        // A host without a route for the bare path has those of all hosts.
        (
            "[[route]]\npath = \"/\"\n[[route]]\npath = \"/a/\"\nhost = \"h\"\nscopes = [\"a\"]",
            &[("route[1].path", 6, "/a is not protected by this route")],
        ),
        (
            "[[route]]\npath = \"/\"\n[[route]]\npath = \"/a\"\nhost = \"h\"\nscopes = [\"a\"]\n[[route]]\n\
             path = \"/a/\"\nhost = \"h\"\nscopes = [\"a\"]",
            &[],
        ),
        // A public route above protected ones.
        (
            "[[route]]\npath = \"/\"\npublic = true\n[[route]]\npath = \"/api\"\n[[route]]\npath = \"/live\"",
            &[("route[0].path", 4, "all of / is public, in front of a backend with protected paths")],
        ),
        ("[[route]]\npath = \"/files\"\npublic = true\n[[route]]\npath = \"/api\"", &[]),
        (
            "[[route]]\npath = \"/\"\npublic = true\nmethods = [\"GET\"]\n[[route]]\npath = \"/api\"\n\
             methods = [\"POST\"]",
            &[],
        ),
        ("[[route]]\npath = \"/\"\npublic = true\nhost = \"a\"\n[[route]]\npath = \"/api\"\nhost = \"b\"", &[]),
        (
            "[[route]]\npath = \"/\"\npublic = true\nhost = \"a\"\n[[route]]\npath = \"/api\"",
            &[("route[0].path", 4, "all of / is public")],
        ),
        // Paths that differ by case.
        (
            "[[route]]\npath = \"/Admin\"\nscopes = [\"a\"]\n[[route]]\npath = \"/admin\"",
            &[("route[0].path", 4, "differs only by case")],
        ),
        (
            "[[route]]\npath = \"/admin/users\"\n[[route]]\npath = \"/Admin\"\nscopes = [\"a\"]",
            &[("route[1].path", 6, "differs only by case")],
        ),
        ("[[route]]\npath = \"/Admin\"\n[[route]]\npath = \"/admin\"", &[]),
        (
            "[[route]]\npath = \"/Admin\"\nscopes = [\"a\"]\nignore_case = true\n[[route]]\npath = \"/admin/x\"\n\
             ignore_case = true",
            &[],
        ),
    ]);
}

#[test]
fn a_route_that_checks_no_proofs_is_reported() {
    check(&[
        ("[[route]]\npath = \"/\"\nproof = \"off\"", &[("route[0].proof", 5, "a stolen one works, too")]),
        ("[[route]]\npath = \"/\"\nproof = \"required\"", &[]),
    ]);
}

/// The gateway cannot mix up paths of different backends.
#[test]
fn routes_to_different_backends_are_not_reported() {
    let routes = "[[route]]\npath = \"/\"\nupstream = \"site\"\npublic = true\n\
                  [[route]]\npath = \"/api/\"\nupstream = \"api\"\n";
    let upstreams = |api: &str| {
        format!(
            "[[upstream]]\nname = \"site\"\nservers = [\"http://10.0.0.1\"]\n\
             [[upstream]]\nname = \"api\"\nservers = [\"{api}\"]\n{routes}"
        )
    };
    assert_eq!(warnings(&upstreams("http://10.0.0.2"), Path::new("")), []);
    let keys: Vec<_> =
        warnings(&upstreams("http://10.0.0.1"), Path::new("")).into_iter().map(|(key, ..)| key).collect();
    assert_eq!(keys, ["route[0].path", "route[1].path"], "two names of one server");
}

#[test]
fn dangerous_values_are_reported() {
    check(&[
        ("[forwarding]\ntrusted = [\"10.0.0.0/8\", \"fd00::/8\", \"2001:db8::/32\"]", &[]),
        (
            "[forwarding]\ntrusted = [\"0.0.0.0/1\", \"128.0.0.0/1\"]",
            &[("forwarding.trusted", 4, "0.0.0.0/1 contains addresses of clients")],
        ),
        ("[forwarding]\ntrusted = [\"2000::/3\"]", &[("forwarding.trusted", 4, "list only the proxies")]),
        (
            "[[issuer]]\nissuer = \"https://a\"\njwks_url = \"https://a/keys\"\nalgorithms = [\"ES256\"]\naudience = \"any\"",
            &[("issuer[0].audience", 7, "tokens for every other service of this issuer")],
        ),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\ntls = \"off\"\n",
            &[("tokens.issuer", 1, "tokens name https://localhost:8443")],
        ),
        (
            "[tokens]\nissuer = \"https://127.0.0.1\"\n[[listener]]\naddress = \"10.0.0.1:1\"\ntls = \"off\"\n",
            &[("tokens.issuer", 4, "expected the URL at which clients reach this gateway")],
        ),
        ("[tokens]\nissuer = \"https://a.example\"\n[[listener]]\naddress = \"0.0.0.0:1\"\ntls = \"off\"\n", &[]),
        ("[[listener]]\naddress = \"127.0.0.1:1\"\ntls = \"off\"\n", &[]),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\ntls = \"self-signed\"\n",
            &[("tokens.issuer", 1, "tokens name https://localhost:8443")],
        ),
        (
            "[[listener]]\naddress = \"203.0.113.5:443\"\n",
            &[("tokens.issuer", 1, "tokens name https://localhost:8443")],
        ),
        // Clients may have tokens that are bound to a key, and no host is known for which they could make a proof.
        (
            "[[listener]]\naddress = \"127.0.0.1:1\"\ntls = \"off\"\n[[route]]\npath = \"/\"\nproof = \"required\"\n",
            &[("listener[0].address", 4, "no key names a host of the gateway")],
        ),
        // Its certificate is for localhost, and clients come from other machines.
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\ntls = \"self-signed\"\n[[route]]\npath = \"/\"\nproof = \"required\"\n",
            &[
                ("tokens.issuer", 1, "tokens name https://localhost:8443"),
                ("listener[0].address", 4, "no key names a host of the gateway"),
            ],
        ),
        (
            "[[listener]]\naddress = \"127.0.0.1:1\"\ntls = \"off\"\n[oauth]\ntoken_endpoint = \"/oauth/token\"\n",
            &[("listener[0].address", 4, "add its host to https.hosts")],
        ),
        (
            "[[issuer]]\nissuer = \"https://a\"\njwks_url = \"https://a/keys\"\nalgorithms = [\"ES256\"]\n\
             audience = [\"a\"]\n[[listener]]\naddress = \"127.0.0.1:1\"\n[[listener]]\naddress = \"127.0.0.1:2\"\n\
             tls = \"off\"\n",
            &[("listener[1].address", 11, "a proof for another server is not accepted")],
        ),
        (
            "[[listener]]\naddress = \"127.0.0.1:1\"\ntls = \"off\"\npublic_url = \"https://a.example\"\n\
             [[route]]\npath = \"/\"\nproof = \"required\"\n",
            &[],
        ),
        (
            "[[listener]]\naddress = \"127.0.0.1:1\"\ntls = \"off\"\n[https]\nhosts = [\"a.example\"]\n\
             [[route]]\npath = \"/\"\nproof = \"required\"\n",
            &[],
        ),
        (
            "[[listener]]\naddress = \"127.0.0.1:1\"\ntls = \"off\"\n\
             [[route]]\npath = \"/\"\nhost = \"a.example\"\nproof = \"required\"\n",
            &[],
        ),
        ("[[route]]\npath = \"/\"\nproof = \"required\"\n", &[]),
        // Without a listener, the certificate is for localhost only: a trial.
        ("[tokens]\nissuer = \"https://localhost:8443\"\n", &[]),
    ]);
    for (server, is_reported) in [
        ("http://10.0.0.1:1", false),
        ("http://100.64.0.1", false),
        ("http://169.254.1.1", false),
        ("http://[::1]", false),
        ("http://[fd00::1]", false),
        ("http://orders.internal", false),
        ("https://192.0.2.1", false),
        ("http://93.184.216.34", true),
        ("http://172.32.0.1:80", true),
        ("http://[2a00::1]", true),
        ("http://[::ffff:93.184.216.34]", true),
    ] {
        let found = warnings(&format!("[[upstream]]\nservers = [\"{server}\"]"), Path::new(""));
        assert_eq!(
            found.iter().map(|(key, ..)| &**key).collect::<Vec<_>>(),
            vec!["upstream[0].servers"; usize::from(is_reported)]
        );
    }
}

#[test]
fn the_reference_has_no_warnings() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(warnings(&source::read("gateway.toml"), folder.path()), []);
}

#[test]
fn check_prints_warnings_and_fails_only_if_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.toml");
    let routes = "[[route]]\npath = \"/\"\n[[route]]\npath = \"/admin/\"\nscopes = [\"admin\"]\n";
    std::fs::write(&file, format!("{UPSTREAM}{routes}")).expect("written");
    let run = |arguments: &[&str]| {
        let output = bearward(folder.path(), arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, output, errors) = run(&["check"]);
    assert_eq!((status, &*output), (Some(0), "gateway.toml: no errors, 1 warning to look at\n"), "{errors}");
    for part in [
        "warning: route[1].path: /admin is not protected by this route\n --> gateway.toml:6:8\n",
        "6 | path = \"/admin/\"\n",
        "^^^^^^^^^ matches only below /admin/\n",
        "help: write `path = \"/admin\"`, which also matches everything below it\n",
        "warning: 1 warning in gateway.toml\n",
    ] {
        assert!(errors.contains(part), "{part}\n{errors}");
    }
    assert_eq!(run(&["check", "--deny-warnings"]).0, Some(2));
    let (status, output, _) = run(&["check", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!((status, &found[0]["severity"], &found[0]["line"]), (Some(0), &"warning".into(), &6.into()));
    assert_eq!(run(&["check", "--json", "--deny-warnings"]).0, Some(2));

    std::fs::write(&file, UPSTREAM).expect("written");
    assert_eq!(run(&["check", "--deny-warnings"]), (Some(0), "gateway.toml: no errors\n".into(), String::new()));
    let tomorrow = std::time::SystemTime::now() + std::time::Duration::from_hours(24);
    std::fs::File::open(&file).and_then(|file| file.set_modified(tomorrow)).expect("a time");
    let (status, _, errors) = run(&["check", "--deny-warnings"]);
    assert!(status == Some(2) && errors.contains("warning: the clock is wrong: "), "{errors}");
}

#[test]
fn a_denied_client_of_the_same_file_is_reported() {
    let text = |denied: &str| {
        format!(
            "{UPSTREAM}[tokens]\nissuer = \"https://app.example\"\n[[provider]]\nname = \"main\"\n\
             issuer = \"https://login.example\"\nclient_id = \"a\"\nclient_auth = \"none\"\n[oauth]\n\
             sign_in = \"main\"\nresource = \"https://app.example/mcp\"\ndenied_clients = [{denied}]\n\
             [[oauth.client]]\nclient_id = \"spa\"\nclient_auth = \"none\"\n\
             redirect_uris = [\"https://a.example/cb\"]"
        )
    };
    let about_denied = |denied: &str| {
        let mut found = warnings(&text(denied), Path::new(""));
        found.retain(|(key, ..)| key.starts_with("oauth.denied_clients"));
        found
    };
    let found = about_denied("\"app.example\", \"spa\"");
    let [(key, line, says)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((key.as_str(), *line), ("oauth.denied_clients[1]", 13));
    assert!(says.contains("the [[oauth.client]] spa is denied"), "{says}");
    assert_eq!(about_denied("\"spa2\""), []);
}

/// What stops clients of the authorization endpoint, and what an operator sees first when a client fails.
#[test]
fn what_stops_clients_that_ask_users_is_reported() {
    const ROUTE: &str = "[[route]]\npath = \"/mcp\"\nresource = true\n";
    let found = |issuer: &str, oauth: &str, routes: &str| {
        let text = format!(
            "{UPSTREAM}[tokens]\nissuer = \"{issuer}\"\n{oauth}\n[[provider]]\nname = \"main\"\n\
             issuer = \"https://login.example\"\nclient_id = \"a\"\nclient_auth = \"none\"\n{routes}"
        );
        let found = warnings(&text, Path::new(""));
        found.into_iter().map(|(key, _, says)| format!("{key}: {says}")).collect::<Vec<_>>()
    };
    let front = "[oauth]\nsign_in = \"main\"\nregistration = [\"loopback\"]";
    assert_eq!(found("https://app.example", front, ROUTE), [] as [String; 0]);
    let shortest = "[oauth]\nsign_in = \"main\"";
    let public = format!("{ROUTE}[[route]]\npath = \"/mcp/health\"\npublic = true\n");
    let rows = [
        ("https://app.example", shortest, ROUTE, "oauth.sign_in: no client is known"),
        ("https://app.example/id", front, ROUTE, "oauth.sign_in: some clients look for the metadata of"),
        ("https://app.example", front, &public, "route[1].path: /mcp/health is public, inside the resource /mcp"),
    ];
    for (issuer, oauth, routes, says) in rows {
        let found = found(issuer, oauth, routes);
        assert!(matches!(&found[..], [only] if only.starts_with(says)), "expected {says}, found {found:?}");
    }
}
