//! `deploy/admin-api.md` describes every call, member and error of the admin API. The commands in it run in
//! `deploy::commands`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bearward::types::reject::Reason;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::{GatewayProcess, bearward};
use crate::support::source;
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, Upstream};

const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

fn page() -> String {
    source::read("deploy/admin-api.md")
}

/// The sections of the calls: method and path, and the text.
fn calls(page: &str) -> BTreeMap<(String, String), String> {
    let sections = page.split("\n### `").skip(1).map(|section| {
        let (heading, text) = section.split_once("`\n").expect("a heading");
        let (method, path) = heading.split_once(' ').expect("a method and a path");
        let text = text.split("\n## ").next().unwrap_or_default();
        ((method.to_owned(), path.to_owned()), text.to_owned())
    });
    sections.collect()
}

/// The names in the first column of the table that has this heading.
fn members(text: &str, heading: &str) -> BTreeSet<String> {
    let rows = text.lines().skip_while(|line| !line.starts_with(&format!("| {heading} |"))).skip(2);
    let names = rows.take_while(|line| line.starts_with('|')).flat_map(|row| {
        let column = row.split('|').nth(1).expect("a column").to_owned();
        column.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    });
    names.collect()
}

fn names_of(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap_or_else(|| panic!("{object}")).keys().cloned().collect()
}

/// A running gateway with a `gateway.toml`, which a reload reads.
async fn served(upstream: &Upstream) -> (GatewayProcess, TempDir) {
    let folder = TempDir::new().expect("a folder");
    let issuer = "[[issuer]]\nissuer = \"https://login.example\"\naudience = [\"a\"]\nalgorithms = [\"ES256\"]\n\
        jwks_url = \"http://127.0.0.1:9/keys\"\nstartup = \"continue\"\n";
    let text = Gateway::config_text(&upstream.address.to_string(), issuer);
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
    (served, folder)
}

/// The tables at the top of the files in `src/admin/calls` name the calls that they handle.
#[test]
fn the_page_has_every_call_of_the_source() {
    let mut handled = BTreeSet::new();
    for entry in fs::read_dir(source::root().join("src/admin/calls")).expect("a folder") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("read");
        for line in text.lines().filter(|line| line.starts_with("//!")) {
            let spans = line.split('`').skip(1).step_by(2);
            let named = spans.filter_map(|span| span.split_once(' ')).filter(|(_, path)| path.starts_with("/admin/v1"));
            handled.extend(named.map(|(method, path)| (method.to_owned(), path.to_owned())));
        }
    }
    let documented: BTreeSet<_> = calls(&page()).into_keys().collect();
    assert_eq!(documented, handled);
    assert!(documented.len() >= 10);
    for (method, path) in &documented {
        let fixed = path.split('{').next().expect("a path");
        let commands = calls(&page())[&(method.clone(), path.clone())].clone();
        let shown = commands.contains(&format!("http://bearward{fixed}"));
        assert!(shown && (commands.contains("-X DELETE") == (method == "DELETE")), "{method} {path} has no command");
    }
}

#[tokio::test]
async fn every_call_has_the_methods_of_the_page() {
    let upstream = Upstream::start();
    // Without event streams, which do not end.
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.replace("[admin]\n", "[admin]\nstreams = 0\n"));
    let mut by_path: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (method, path) in calls(&page()).into_keys() {
        by_path.entry(path).or_default().insert(method);
    }
    for (path, documented) in by_path {
        let path = path.replace(['{', '}'], "");
        for method in METHODS {
            let answer = gateway.admin_client().send(method.clone(), &path, Bytes::new()).await;
            if documented.contains(method.as_str()) {
                assert_ne!(answer.status, 405, "{method} {path}");
                assert!(
                    !answer.text().contains(Reason::NoRoute.message()) || path.contains("reload"),
                    "{method} {path}"
                );
            } else {
                let allowed = answer.header("allow").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
                let allowed: BTreeSet<String> = allowed.split(", ").map(str::to_owned).collect();
                // Each call that is read by GET is read by HEAD as well.
                let head = documented.contains("GET").then(|| "HEAD".to_owned());
                let expected: BTreeSet<String> = documented.iter().cloned().chain(head).collect();
                assert_eq!((answer.status.as_u16(), allowed), (405, expected), "{method} {path}");
            }
        }
    }
}

/// The gateway lists the members that it knows in the error about one that it does not know.
#[tokio::test]
async fn every_request_has_the_members_of_the_page() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let mut checked = 0;
    for ((method, path), text) in calls(&page()) {
        let documented = members(&text, "request");
        if documented.is_empty() {
            continue;
        }
        assert_eq!(method, "POST", "{path}");
        let path = path.replace(['{', '}'], "");
        let answer = gateway.admin_client().post(&path, &json!({ "no_such_member": 1 })).await;
        answer.assert_rejected(400, "invalid_request");
        let error = answer.json()["error_description"].as_str().expect("text").to_owned();
        let mut known: BTreeSet<String> = error.split('`').skip(3).step_by(2).map(str::to_owned).collect();
        assert_eq!(known.remove("sub"), text.contains("`sub` is the same member"), "{error}");
        assert_eq!(documented, known, "{path}: {error}");
        checked += 1;
    }
    assert_eq!(checked, 6);
}

#[tokio::test]
async fn every_response_has_the_members_of_the_page() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream).await;
    let (admin, calls) = (served.admin_client(), calls(&page()));
    let documented = |method: &str, path: &str| members(&calls[&(method.to_owned(), path.to_owned())], "response");
    for _ in 0..2 {
        let login = json!({ "subject": "alice", "address": "198.51.100.7" });
        let issued = admin.post("/admin/v1/tokens", &login).await.json();
        assert_eq!(names_of(&issued), documented("POST", "/admin/v1/tokens"));
        let path = format!("/admin/v1/tokens/{}", issued["tokenId"].as_str().expect("text"));
        assert_eq!(admin.delete(&path).await.json(), json!({ "success": true }));
    }
    let sessions = admin.get("/admin/v1/subjects/alice/tokens").await.json();
    let list = documented("GET", "/admin/v1/subjects/{subject}/tokens");
    // No other caller and no provider has ended them, and they began at no other issuer.
    let others = ["caller", "provider", "issuer"].map(str::to_owned);
    let with_caller = |entry: &Value| names_of(entry).into_iter().chain(others.clone()).collect::<BTreeSet<_>>();
    assert_eq!(with_caller(&sessions["tokens"][0]), list);
    let page = admin.get("/admin/v1/tokens?state=all&limit=1").await.json();
    assert_eq!(with_caller(&page["tokens"][0]), list);
    assert_eq!(names_of(&page), documented("GET", "/admin/v1/tokens"));
    assert_eq!(admin.post("/admin/v1/revocations", &json!({ "jti": "1" })).await.status, 200);
    assert_eq!(admin.delete("/admin/v1/subjects/bob/tokens").await.status, 200);
    let session = json!({ "session": "1", "issuer": "https://login.example" });
    assert_eq!(admin.post("/admin/v1/revocations", &session).await.status, 200);
    let page = admin.get("/admin/v1/tokens/ended?limit=4").await.json();
    let text = &calls[&("GET".to_owned(), "/admin/v1/tokens/ended".to_owned())];
    let entries = page["ended"].as_array().expect("a list");
    let of_entries = entries.iter().flat_map(with_caller).collect::<BTreeSet<_>>();
    assert_eq!((names_of(&page), of_entries), (members(text, "response"), members(text, "entry")));

    let key = json!({ "subject": "ci", "rate": "100/min" });
    let issued = admin.post("/admin/v1/api-keys", &key).await.json();
    assert_eq!(names_of(&issued), documented("POST", "/admin/v1/api-keys"));
    let path = format!("/admin/v1/api-keys/{}", issued["keyId"].as_str().expect("text"));
    assert_eq!(admin.delete(&path).await.json(), json!({ "success": true }));
    let listed = admin.get("/admin/v1/api-keys").await.json();
    let mut of_key = names_of(&listed["apiKeys"][0]);
    // This key was never used.
    of_key.insert("lastUsedAt".to_owned());
    assert_eq!(of_key, documented("GET", "/admin/v1/api-keys"));

    assert_eq!(admin.post("/admin/v1/keys/rotate", &json!({ "now": true })).await.status, 200);
    let keys = admin.get("/admin/v1/keys").await.json();
    let retired = keys["keys"].as_array().expect("a list").iter().find(|key| key["state"] == "retired").expect("one");
    let path = format!("/admin/v1/keys/{}/revoke", retired["kid"].as_str().expect("text"));
    let keys = admin.post(&path, &json!({})).await.json();
    assert_eq!(names_of(&keys), BTreeSet::from(["keys".to_owned(), "nextRotation".to_owned()]));
    let all = keys["keys"].as_array().expect("a list").iter().flat_map(names_of).collect::<BTreeSet<_>>();
    assert_eq!(all, documented("GET", "/admin/v1/keys"));

    let explained = admin.post("/admin/v1/explain", &json!({})).await.json();
    let mut of_explained = names_of(&explained);
    // Only for requests at the authorization endpoint.
    of_explained.insert("change".to_owned());
    assert_eq!(of_explained, documented("POST", "/admin/v1/explain"));
    served.client().get("/rejected").await.assert_rejected(401, "unauthorized");
    let rejections = eventually_ok("it is recorded", async || {
        let list = admin.get("/admin/v1/rejections").await.json();
        if list["rejections"][0].is_object() { Ok(list) } else { Err(list.to_string()) }
    })
    .await;
    let documented_rejection = documented("GET", "/admin/v1/rejections");
    assert!(names_of(&rejections["rejections"][0]).is_subset(&documented_rejection), "{rejections}");

    let upstreams = admin.get("/admin/v1/upstreams").await.json();
    assert_eq!(names_of(&upstreams["upstreams"][0]["servers"][0]), documented("GET", "/admin/v1/upstreams"));
    let certificates = admin.get("/admin/v1/certificates").await.json();
    let listener =
        certificates["listeners"].as_array().expect("a list").iter().find(|listener| listener["tls"] == true);
    let listener = listener.expect("one with TLS");
    assert_eq!(names_of(listener), documented("GET", "/admin/v1/certificates"));
    let text = &calls[&("GET".to_owned(), "/admin/v1/certificates".to_owned())];
    assert_eq!(names_of(&listener["certificates"][0]), members(text, "certificate"));
    let issuers = eventually_ok("the source of the issuer has failed", async || {
        let issuers = admin.get("/admin/v1/issuers").await.json();
        if issuers["issuers"][0]["lastError"].is_string() { Ok(issuers) } else { Err(issuers.to_string()) }
    })
    .await;
    let mut of_issuer = names_of(&issuers["issuers"][0]);
    // The source of this one never had keys.
    of_issuer.extend(["confirmedAt", "ageSeconds"].map(str::to_owned));
    let documented_issuer = members(&calls[&("GET".to_owned(), "/admin/v1/issuers".to_owned())], "response");
    assert_eq!(of_issuer, documented_issuer);

    assert_eq!(served.client().get("/").await.status, 401);
    let busy = eventually_ok("the request is in a second", async || {
        let stats = admin.get("/admin/v1/stats").await.json();
        let seconds = stats["seconds"].as_array().expect("a list");
        seconds.iter().find(|second| second["p50Seconds"].is_number()).cloned().ok_or(stats.to_string())
    })
    .await;
    assert_eq!(names_of(&busy), documented("GET", "/admin/v1/stats"));
    let reloaded = admin.post("/admin/v1/reload", &json!({})).await.json();
    assert_eq!(names_of(&reloaded), documented("POST", "/admin/v1/reload"));
    let file = folder.path().join("gateway.toml");
    let changed = format!("{}[timeouts]\nstore = \"7s\"\n", fs::read_to_string(&file).expect("read"));
    fs::write(&file, changed).expect("written");
    assert_eq!(admin.post("/admin/v1/reload", &json!({})).await.status, 200);
    let in_force = admin.get("/admin/v1/config").await.json();
    let settings = in_force["settings"].as_array().expect("a list");
    let waiting = settings.iter().find(|setting| setting["key"] == "timeouts.store").expect("a setting");
    assert_eq!(names_of(waiting), documented("GET", "/admin/v1/config"));
    for path in ["/admin/v1/revocations", "/admin/v1/revocations"] {
        assert_eq!(admin.post(path, &json!({ "all": true })).await.json(), json!({ "success": true }));
    }
    fs::write(folder.path().join("gateway.toml"), "[[route").expect("written");
    let failed = admin.post("/admin/v1/reload", &json!({})).await;
    assert_eq!((failed.status.as_u16(), &failed.json()["error"]), (422, &json!("invalid_configuration")));
    assert!(["errors", "report"].iter().all(|member| names_of(&failed.json()).contains(*member)), "{failed:?}");
}

/// The rows of the table of errors: status and code.
fn errors() -> BTreeSet<(u16, String)> {
    let page = page();
    let section = page.split("\n## Errors\n").nth(1).expect("a section");
    let rows = section.lines().filter(|line| line.starts_with("| 4") || line.starts_with("| 5"));
    let row = |row: &str| {
        let [_, status, code, when, _] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else { panic!("{row}") };
        assert!(!when.is_empty(), "{row}");
        (status.parse().expect("a status"), code.trim_matches('`').to_owned())
    };
    rows.map(row).collect()
}

#[tokio::test]
async fn every_error_has_the_status_and_code_of_the_page() {
    let upstream = Upstream::start();
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.replace("[admin]\n", "[admin]\nwrong_tokens = 1\n"));
    let (admin, stranger) = (gateway.admin_client(), Client::http1(gateway.admin_address()).bearer("x"));
    let large = Bytes::from(vec![b' '; 8 * 1024 + 1]);
    let keys = admin.get("/admin/v1/keys").await.json();
    let revoke = format!("/admin/v1/keys/{}/revoke", keys["keys"][0]["kid"].as_str().expect("text"));
    assert_eq!(admin.post(&revoke, &json!({})).await.status, 200);
    let mut seen = BTreeSet::new();
    for answer in [
        admin.post(&revoke, &json!({ "mayRefresh": true })).await,
        admin.post("/admin/v1/tokens", &json!({})).await,
        admin.get("/admin/v1/nothing").await,
        admin.delete("/admin/v1/tokens/x").await,
        admin.delete("/admin/v1/tokens").await,
        admin.send(Method::POST, "/admin/v1/tokens", large).await,
        stranger.clone().host("attacker.example").get("/admin/v1/keys").await,
        stranger.clone().host("localhost").get("/admin/v1/keys").await,
        stranger.host("localhost").get("/admin/v1/keys").await,
    ] {
        let body = answer.json();
        let names = ["success", "error", "error_description", "status", "requestId"].map(str::to_owned);
        assert_eq!(names_of(&body), BTreeSet::from(names));
        seen.insert((answer.status.as_u16(), body["error"].as_str().expect("text").to_owned()));
    }
    let documented = errors();
    assert!(seen.is_subset(&documented), "{seen:?}");
    // The others need another operator, a slow client, a broken disk or a file.
    let rest = [
        (403, "forbidden"),
        (408, "invalid_request"),
        (422, "invalid_configuration"),
        (503, "temporarily_unavailable"),
    ];
    let rest = rest.map(|(status, code)| (status, code.to_owned()));
    assert_eq!(documented.difference(&seen).cloned().collect::<BTreeSet<_>>(), BTreeSet::from(rest));
}

/// `--client-id` of a command is `clientId` of its call.
#[test]
fn every_option_of_a_command_is_a_member_of_its_call() {
    let (page, folder) = (page(), TempDir::new().expect("a folder"));
    let calls = calls(&page);
    let mut options = 0;
    for row in page.lines().filter(|line| line.starts_with("| `bearward ")) {
        let spans: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let words: Vec<&str> =
            spans[0].split(' ').skip(1).filter(|word| word.starts_with(|c: char| c.is_lowercase())).collect();
        let (method, path) = spans[spans.len() - 1].split_once(' ').expect("a call");
        let text = calls.get(&(method.to_owned(), path.to_owned())).unwrap_or_else(|| panic!("{row}"));
        let mut known = members(text, "request");
        known.extend(members(text, "parameter"));
        known.extend(path.split(['{', '}']).skip(1).step_by(2).map(str::to_owned));
        // One command for two calls: each names only its own options.
        let is_shared = spans[0].starts_with("bearward token revoke") && method == "DELETE"
            || spans[0].starts_with("bearward token list --subject");
        // `explain` decides about any request, and with this option about one that was.
        let is_other = spans[0].starts_with("bearward explain --request-id");
        let help = bearward(folder.path(), &[&words[..], &["--help"]].concat());
        for option in
            String::from_utf8(help.stdout).expect("UTF-8").lines().filter_map(|line| line.trim().strip_prefix("--"))
        {
            let name = option.split([' ', '=', '<']).next().expect("a name");
            // Of the command itself; `--root` works on a file, and `--dry-run` is a parameter of the call.
            if ["config", "dry-run", "json", "once", "root"].contains(&name)
                || is_shared
                || (is_other && name != "request-id")
                // The command reads a file, and the member is its hash, `x5t#S256`.
                || (name == "certificate" && spans[0].starts_with("bearward token issue"))
            {
                continue;
            }
            let mut parts = name.split('-');
            let first = parts.next().unwrap_or_default().to_owned();
            let member = parts.fold(first, |member, part| member + &part[..1].to_uppercase() + &part[1..]);
            assert!(known.contains(&member), "{row}: --{name}");
            options += 1;
        }
    }
    assert!(options >= 10, "only {options} options were found");
}
