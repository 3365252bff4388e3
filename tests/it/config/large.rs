//! Large files: what reading one costs grows with its size, and not with the square of it.

use std::fmt::Write;
use std::time::Duration;

use bearward::config::{self, Config, ConfigErrors, ConfigWarnings, Probe};

use crate::support::program::bearward;
use crate::support::{Gateway, Upstream};

/// Sizes of a file. In the larger one, a quadratic part takes 64 times as long.
const FEW: usize = 250;
const MANY: usize = 8 * FEW;

const UPSTREAM: &str = "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n";

/// The processor time of this thread: it does not depend on what else the machine does.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Expects that `work` takes about 8 times as long for 8 times as much.
#[track_caller]
fn grows_with_its_size(what: &str, mut work: impl FnMut(usize)) {
    let mut taken = |count| {
        let begun = processor_time();
        work(count);
        processor_time() - begun
    };
    // The first run also reads what all share.
    taken(FEW);
    let [few, many] = [FEW, MANY].map(taken);
    assert!(many < 24 * few, "{what}: {few:?} for {FEW}, {many:?} for {MANY}");
}

fn read(text: &str) -> Result<(Config, ConfigWarnings), ConfigErrors> {
    config::parse_with_warnings(text, std::path::Path::new(""), Probe::None)
}

/// Reads a valid file, and prints what `check` and `check --effective` print.
fn check_valid(text: &str) -> Config {
    let (config, warnings) = read(text).unwrap_or_else(|errors| panic!("{errors}"));
    warnings.render(false);
    config.values.text();
    config
}

/// `count` pieces of a file.
fn repeated(count: usize, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect()
}

/// A name, what is before the list, the text of one more element, and what is behind the list.
type Shape<'s> = (&'s str, &'s str, &'s dyn Fn(usize) -> String, &'s str);

const IN_ONE_LINE: &str = "upstream = [{ servers = [\"http://127.0.0.1:1\"] }]\nroute = [";

fn protected(number: usize) -> String {
    format!("[[route]]\npath = \"/services/s{number}/\"\nscopes = [\"s{}\"]\n", number % 7)
}

fn scope(number: usize) -> String {
    format!("\"s{number}\", ")
}

#[test]
fn valid_files_are_read_in_linear_time() {
    let public_above = "[[route]]\npath = \"/\"\npublic = true\n";
    let own_upstream = |number: usize| {
        format!(
            "[[upstream]]\nname = \"u{number}\"\nservers = [\"http://u{number}.internal\"]\n\
             [[route]]\npath = \"/s{number}\"\nupstream = \"u{number}\"\n"
        )
    };
    let by_host = |number: usize| {
        format!(
            "[[route]]\npath = \"/\"\nhost = \"h{number}.example\"\npublic = true\n\
             [[route]]\npath = \"/admin/\"\nhost = \"h{number}.example\"\n"
        )
    };
    let stripped = |number: usize| {
        format!("[[route]]\npath = \"/s{number}/x{number}\"\nstrip_prefix = \"/s{number}\"\nscopes = [\"a\"]\n")
    };
    let to_one_path = |number: usize| {
        format!("[[route]]\npath = \"/s{number}\"\nstrip_prefix = \"/s{number}\"\nscopes = [\"s{number}\"]\n")
    };
    let ignoring_case = |number: usize| format!("[[route]]\npath = \"/S{number}\"\nignore_case = true\n");
    let cases = |number: usize| format!("[[route]]\npath = \"/{}{number}\"\n", ["s", "S"][number % 2]);
    let of_own_scope = |number: usize| protected(number).replace("[\"s", &format!("[\"own{number}-"));
    let in_one_line = |number: usize| format!("{{ path = \"/s{number}\", scopes = [\"a\"] }}, ");
    let scopes = format!("{UPSTREAM}[[route]]\npath = \"/\"\nscopes = [");
    let below_public = format!("{UPSTREAM}{public_above}");
    let of_identity =
        |number: usize| format!("[[identity.claim]]\npointer = \"/c{number}\"\nheader = \"X-Claim-{number}\"\n");
    let shapes: [Shape<'_>; 12] = [
        ("protected routes", UPSTREAM, &protected, ""),
        ("below a public one", &below_public, &protected, ""),
        ("below it with scopes of their own", &below_public, &of_own_scope, ""),
        ("an upstream for each", "", &own_upstream, ""),
        ("a host for each", UPSTREAM, &by_host, ""),
        ("with strip_prefix", UPSTREAM, &stripped, ""),
        ("with strip_prefix to one path", UPSTREAM, &to_one_path, ""),
        ("with ignore_case", UPSTREAM, &ignoring_case, ""),
        ("in two cases", UPSTREAM, &cases, ""),
        ("in one line", IN_ONE_LINE, &in_one_line, "]"),
        ("scopes of one route", &scopes, &scope, "]"),
        ("headers of [identity]", &below_public, &of_identity, ""),
    ];
    for (what, head, piece, end) in shapes {
        let is_of_one_route = !piece(0).contains("path");
        grows_with_its_size(what, |count| {
            let config = check_valid(&format!("{head}{}{end}", repeated(count, piece)));
            assert!(config.routes.len() >= if is_of_one_route { 1 } else { count }, "{what}");
        });
    }
}

/// Each path is below all paths before it, so the size of the file grows with the square of their number.
#[test]
fn nested_paths_are_read_in_linear_time() {
    let public_above = "[[route]]\npath = \"/\"\npublic = true\n";
    let nested = |number: usize| {
        let path = "/a".repeat(number + 1);
        format!("[[route]]\npath = \"{path}\"\nscopes = [\"s{number}\"]\n")
    };
    let stripped = |number: usize| format!("{}strip_prefix = \"/a\"\n", nested(number));
    let one_stripped = |number: usize| if number == 9 { stripped(number) } else { nested(number) };
    let cases = |number: usize| if number == 9 { nested(number).replace("/a/", "/A/") } else { nested(number) };
    let shapes: [(&str, &dyn Fn(usize) -> String); 3] =
        [("protected", &nested), ("one with strip_prefix", &one_stripped), ("one in another case", &cases)];
    for (what, piece) in shapes {
        let text = |count: usize| format!("{UPSTREAM}{public_above}{}", repeated(count, piece));
        let taken = |count: usize| {
            let text = text(count);
            let begun = processor_time();
            assert_eq!(check_valid(&text).routes.len(), count + 1);
            (processor_time() - begun).as_nanos() / text.len() as u128
        };
        taken(50);
        let [few, many] = [100, 400].map(taken);
        assert!(many < 3 * few, "{what}: {few} ns for each byte of 100 routes, {many} ns of 400");
    }
}

#[test]
fn errors_are_found_and_printed_in_linear_time() {
    let same_path = |_: usize| "[[route]]\npath = \"/a\"\n".to_owned();
    let wrong_key = |number: usize| format!("{{ path = \"/s{number}/\", scope = [\"a\"] }}, ");
    let one_path = |_: usize| "{ path = \"/a\" }, ".to_owned();
    let head = |text: &str| format!("{UPSTREAM}{text}");
    let scopes = head("[[route]]\npath = \"/\"\nscopes = [");
    let shapes: [Shape<'_>; 12] = [
        (
            "passwords, which are taken out of all errors",
            "",
            &|number| format!("[[upstream]]\nname = \"u{number}\"\nservers = [\"http://b:password-{number}@h\"]\n"),
            "",
        ),
        ("wrong keys", &head("[limits]\n"), &|number| format!("uri_siz{number} = 1\n"), ""),
        ("the same wrong key", UPSTREAM, &|number| format!("[[route]]\npath = \"/{number}\"\nscope = [\"a\"]\n"), ""),
        ("routes of one path", UPSTREAM, &same_path, ""),
        (
            "unknown upstreams",
            UPSTREAM,
            &|number| {
                format!(
                    "[[upstream]]\nname = \"up-{number}\"\nservers = [\"http://a\"]\n\
                     [[route]]\npath = \"/{number}\"\nupstream = \"pu-{number}\"\n"
                )
            },
            "",
        ),
        ("lines that are not TOML", UPSTREAM, &|number| format!("[[route]]\npath = s{number}\n"), ""),
        ("values of a wrong type", UPSTREAM, &|_| "[[route]]\npath = 1\n".to_owned(), ""),
        ("a wrong key in one line", IN_ONE_LINE, &wrong_key, "]"),
        ("wrong keys in one line", "limits = { ", &|number| format!("uri_siz{number} = 1, "), "uri_size = 1 }"),
        ("one path in one line", IN_ONE_LINE, &one_path, "]"),
        ("values of a wrong type in one line", &scopes, &|_| "1, ".to_owned(), "]"),
        ("one scope in one line", &scopes, &|_| scope(1), "]"),
    ];
    for (what, head, piece, end) in shapes {
        grows_with_its_size(what, |count| {
            let errors = read(&format!("{head}{}{end}", repeated(count, piece))).map(drop).expect_err(what);
            assert!(errors.all().len() >= count - 1, "{what}: {}", errors.all().len());
            errors.render(false);
            errors.json();
        });
    }
}

/// The renderer gets a part of the line, and the place is that in the file.
#[test]
fn an_error_in_a_long_line_has_its_place_and_its_source() {
    let routes = repeated(300, |number| format!("{{ path = \"/{number}\", name = \"é{number}\" }}, "));
    let text =
        format!("{IN_ONE_LINE}{{ path = \"/a\" }}, {routes}{{ path = \"/a\", scopess = [\"s\"] }}]\nworkers = 1\n");
    let errors = read(&text).map(drop).expect_err("a wrong key");
    let shown = errors.render(false);
    let line = text.lines().nth(1).expect("two lines");
    let column = |part: &str| line.chars().count() - part.chars().count() + 1;
    let key = line.rsplit_once("scopess").map(|(_, rest)| column(&format!("scopess{rest}"))).expect("the key");
    let place = format!("error: route[301].scopess: unknown key\n --> gateway.toml:2:{key}\n");
    assert!(shown.contains(&place), "{place}{shown}");
    // What is printed around it, with the mark below it.
    let (_, printed) = shown.split_once(&place).expect("the place");
    let mut lines = printed.lines().skip_while(|line| !line.starts_with('2'));
    let [source, mark] = [(); 2].map(|()| lines.next().expect("a line"));
    let at = mark.find('^').expect("a mark");
    assert_eq!(source.chars().skip(at).take(7).collect::<String>(), "scopess", "{source}\n{mark}");
    assert!(mark.contains("^^^^^^^ did you mean `scopes`?") && source.chars().count() < 200, "{source}\n{mark}");
    // An error with two places far from each other has both.
    let first = column(line.split_once("\"/a\"").map(|(_, rest)| rest).expect("the first")) - 4;
    assert!(shown.contains("two routes match the same requests"), "{shown}");
    assert!(shown.contains(&format!("gateway.toml:2:{first}\n")), "{first}{shown}");
    assert!(shown.contains("the first route is here"), "{shown}");
}

/// With the routes, their rates and counters, and what has changed.
#[tokio::test]
async fn a_reload_takes_linear_time() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let text = |numbers: &[usize]| {
        let rate = "[[route.rate]]\nper = \"address\"\nrequests = 9\n";
        let routes: String = numbers.iter().map(|number| format!("{}{rate}", protected(*number))).collect();
        Gateway::config_text(&upstream.address.to_string(), &routes)
    };
    grows_with_its_size("a reload", |count| {
        let all: Vec<_> = (0..count).collect();
        let moved: Vec<_> = (1..=count).collect();
        let reversed: Vec<_> = (1..=count).rev().collect();
        // All routes are new, then a first one is gone and a last one is new, and then all have another order.
        for text in [text(&all), text(&moved), text(&reversed)] {
            let config = config::parse(&text, gateway.path(), Probe::None).unwrap_or_else(|errors| panic!("{errors}"));
            gateway.running().reload(config).expect("it reloads");
        }
    });
    let reordered = format!("{}{}", protected(2), protected(1));
    let text = Gateway::config_text(&upstream.address.to_string(), &reordered);
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    gateway.running().reload(config).expect("it reloads");
    assert_eq!(gateway.client().get("/services/s1/").await.status, 401);
}

#[test]
fn warnings_of_one_kind_are_printed_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let routes = repeated(30, |number| format!("[[route]]\npath = \"/r{number}\"\nproof = \"off\"\n"));
    let other = "[[route]]\npath = \"/\"\npublic = true\n";
    std::fs::write(folder.path().join("gateway.toml"), format!("{UPSTREAM}{other}{routes}")).expect("written");
    let output = bearward(folder.path(), &["check"]);
    let shown = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(shown.matches("a stolen one works, too").count(), 3, "{shown}");
    let places = (3..13).map(|number| format!("gateway.toml:{}", 8 + 3 * number)).collect::<Vec<_>>().join(", ");
    let rest = format!("note: 27 more of this kind, at {places}, …; --json lists all\n");
    assert!(shown.contains(&rest), "{rest}{shown}");
    assert!(shown.ends_with("warning: 31 warnings in gateway.toml\n"), "{shown}");
    let output = bearward(folder.path(), &["check", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(31), "each is there for programs");
    // A start writes as many lines to its log.
    let (_, warnings) = config::load_with_warnings(&folder.path().join("gateway.toml"), Probe::None).expect("valid");
    let mut log = String::new();
    warnings.lines().for_each(|line| writeln!(log, "{line}").expect("text"));
    assert_eq!((log.lines().count(), log.matches("27 more of this kind").count()), (4, 1), "{log}");
}
