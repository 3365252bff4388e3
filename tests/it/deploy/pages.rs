//! The pages as texts: links, configurations, reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bearward::types::clock::{Clock, SystemClock};
use bearward::types::reject::Reason;
use bearward::types::secret;

use crate::support::certificates::Authority;
use crate::support::files::{blocks, names, output_text, pages, write_certificates};
use crate::support::program::bearward_with_variables;
use crate::support::source;

/// Of a client in the pages.
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEpScOX4lPthsJYbEO2MQt56G95+TD
T1W+iHoQ4LodNWSjUEZHFplwJKViYr1fQXuOW9e9KMjcQpvjQhtfwXIbBQ==
-----END PUBLIC KEY-----
";

/// The text of a page without its code blocks and code spans.
fn prose(page: &str) -> String {
    let outside = page.split("```").step_by(2).collect::<String>();
    outside.split('`').step_by(2).collect()
}

/// The part of a link after `#`, as GitHub derives it from a heading.
fn anchor(heading: &str) -> String {
    let lower = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut links = 0;
    for (path, text) in pages() {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for link in prose(&text).split("](").skip(1).filter_map(|rest| rest.split(')').next().map(str::to_owned)) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = source::root().join(folder).join(file);
            assert!(file.is_empty() || target.exists(), "{path}: {link} leads nowhere");
            let headed = if file.is_empty() { text.clone() } else { fs::read_to_string(&target).unwrap_or_default() };
            let mut headings = headed.lines().filter(|line| line.starts_with('#'));
            assert!(
                heading.is_empty() || headings.any(|line| anchor(line) == heading),
                "{path}: {link}: no such heading"
            );
            links += 1;
        }
    }
    assert!(links > 50, "only {links} links were found");
}

/// `deploy/screenshots/make` makes them. They would be most of the package, and nothing in it shows them.
#[test]
fn each_part_of_the_page_has_two_small_pictures() {
    let index = source::read("src/admin/page/assets/index.html");
    let parts: Vec<&str> =
        index.split("data-part=\"").skip(1).filter_map(|rest| rest.split('"').next()).chain(["sign-in"]).collect();
    assert_eq!(parts.len(), 9, "{parts:?}");
    for picture in parts.iter().flat_map(|part| ["light", "dark"].map(|scheme| format!("{part}-{scheme}.png"))) {
        let content = fs::read(source::root().join("deploy/screenshots").join(&picture));
        let content = content.unwrap_or_else(|error| panic!("{picture}: {error}; run deploy/screenshots/make"));
        assert!(content.starts_with(b"\x89PNG") && content.len() < 150 * 1024, "{picture}: {} bytes", content.len());
    }
    assert!(source::read("Cargo.toml").contains("exclude = [\"/deploy/screenshots/*.png\"]"));
}

#[test]
fn the_index_lists_every_page_and_every_example() {
    let index = source::read("deploy/README.md");
    for (path, _) in pages().iter().filter(|(path, _)| path != "README.md" && path != "deploy/README.md") {
        let name = path.trim_start_matches("deploy/");
        assert!(index.contains(&format!("]({name})")), "{name} is not in the index");
    }
    for name in names(&source::root().join("deploy/examples")) {
        assert!(index.contains(&format!("](examples/{name})")), "examples/{name} is not in the index");
    }
}

/// A newcomer reads all of it.
#[test]
fn the_readme_is_short() {
    let lines = source::read("README.md").lines().count();
    assert!(lines <= 170, "{lines} lines");
}

/// Each answer is short, and names where more is said or what to run.
#[test]
fn each_usual_question_has_a_short_answer() {
    let page = source::read("deploy/faq.md");
    let answers: Vec<&str> = page.split("\n\n").filter(|paragraph| paragraph.starts_with("**")).collect();
    assert!(answers.len() >= 17, "only {} questions", answers.len());
    for answer in answers {
        let (question, text) = answer[2..].split_once("**").expect("a question in bold");
        assert!(question.ends_with(['?', '.']), "{question}");
        assert!(text.contains('`') || text.contains("]("), "{question}: {text}");
        assert!(text.len() <= 600, "{question}: {} characters", text.len());
    }
}

/// Fragments need no upstream of their own, and name files that only a real machine has.
#[test]
fn every_configuration_in_the_pages_is_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    write_certificates(&authority, &folder.path().join("tls"));
    fs::write(folder.path().join("tls/clients-ca.pem"), authority.pem()).expect("written");
    let list = authority.revocation_list(&[], SystemClock.now().as_secs() + 86_400);
    fs::write(folder.path().join("tls/clients.crl"), list).expect("written");
    secret::write_private(&folder.path().join("webhook.authorization"), b"Bearer x\n").expect("written");
    let secret = b"0123456789abcdef0123456789abcdef\n";
    for name in ["orders.secret", "postgres.password", "login.secret", "events.authorization", "introspection.secret"] {
        secret::write_private(&folder.path().join(name), secret).expect("written");
    }
    fs::write(folder.path().join("ci.pem"), PUBLIC_KEY).expect("written");
    // The folders of kubernetes.md.
    fs::create_dir(folder.path().join("secrets")).expect("created");
    fs::write(folder.path().join("secrets/ca.pem"), authority.pem()).expect("written");
    let root = format!("1 {}\n", "0".repeat(43));
    secret::write_private(&folder.path().join("secrets/bearward.secret"), root.as_bytes()).expect("written");
    for name in ["admin.token", "postgres.password"] {
        secret::write_private(&folder.path().join("secrets").join(name), secret).expect("written");
    }
    for (from, to) in [("fullchain.pem", "tls.crt"), ("key.pem", "tls.key")] {
        fs::copy(folder.path().join("tls").join(from), folder.path().join("tls").join(to)).expect("copied");
    }
    let credentials = folder.path().join("credentials");
    for folder in [&credentials, &folder.path().join("conf.d")] {
        fs::create_dir(folder).expect("created");
    }
    secret::write_private(&credentials.join("admin"), secret).expect("written");
    secret::write_private(&credentials.join("root"), root.as_bytes()).expect("written");
    let variables = [("CREDENTIALS_DIRECTORY", credentials.to_str().expect("UTF-8"))];
    let mut checked = 0;
    for (path, text) in pages() {
        for block in blocks(&text, "toml") {
            let upstream =
                if block.contains("[[upstream]]") { "" } else { "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n" };
            let here = folder.path().to_str().expect("UTF-8");
            let config = block.replace("/etc/bearward", here).replace("/var/lib/bearward", here);
            let config = config.replace("/run/bearward", here);
            fs::write(folder.path().join("gateway.toml"), format!("{config}\n{upstream}")).expect("written");
            let output = bearward_with_variables(folder.path(), &["check", "--offline"], &variables);
            assert!(output.status.success(), "{path}:\n{block}\n{}", output_text(&output));
            checked += 1;
        }
    }
    assert!(checked >= 10, "only {checked} configurations were found");
}

/// The rows of the table of all reasons: the reason and its status.
#[test]
fn every_reason_is_documented_with_its_status() {
    let page = source::read("deploy/troubleshooting.md");
    let section = page.split("\n## ").find(|section| section.starts_with("All reasons\n")).expect("a section");
    let mut documented = BTreeMap::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let [_, reason, status, cause, action, _] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        assert!(!cause.is_empty() && !action.is_empty(), "{row}");
        let reason = reason.trim_matches('`').to_owned();
        let repeated = documented.insert(reason, status.parse().expect("a status"));
        assert!(repeated.is_none(), "twice: {row}");
    }
    let all = Reason::ALL.iter().map(|reason| (reason.code().to_owned(), reason.status().as_u16()));
    assert_eq!(documented, all.collect::<BTreeMap<String, u16>>());
}

#[test]
fn every_reason_that_a_page_names_exists() {
    let known: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.code()).collect();
    let mut named = 0;
    for (path, text) in pages() {
        for label in text.split("{reason=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(known.contains(label), "{path}: {label}");
            named += 1;
        }
    }
    assert!(named > 10, "only {named} reasons were found");
}

/// In code spans such as `tokens.issuer`, against the tables and keys of gateway.toml.
#[test]
fn every_key_that_a_page_names_exists() {
    /// Files and audit events that look like keys.
    const OTHERS: [&str; 4] = ["admin.token", "audit.jsonl", "issuer.revoked", "store.rollback_suspected"];
    let reference = source::read("gateway.toml");
    let (mut tables, mut keys, mut table) = (BTreeSet::new(), BTreeSet::new(), "");
    for line in reference.lines().map(|line| line.trim_start_matches(['#', ' '])) {
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']);
            tables.insert(table);
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys.insert(format!("{table}.{key}"));
        }
    }
    let mut named = 0;
    for (path, text) in pages() {
        let spans = text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2));
        let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || b"_.".contains(&byte));
        for span in spans.filter(|span| is_word(span) && !OTHERS.contains(span)) {
            if span.split_once('.').is_some_and(|(table, _)| tables.contains(table)) {
                assert!(keys.contains(span) || tables.contains(span), "{path}: {span}");
                named += 1;
            }
        }
    }
    assert!(named > 30, "only {named} keys were found");
}
