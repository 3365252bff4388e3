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

/// `count` pieces of a file.
fn repeated(count: usize, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect()
}

/// A name, what is before the list, and the text of one more element.
type Shape<'s> = (&'s str, &'s str, &'s dyn Fn(usize) -> String);

fn protected(number: usize) -> String {
    format!("[[route]]\npath = \"/services/s{number}/\"\nscopes = [\"s{}\"]\n", number % 7)
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
    let ignoring_case = |number: usize| format!("[[route]]\npath = \"/S{number}\"\nignore_case = true\n");
    let cases = |number: usize| format!("[[route]]\npath = \"/{}{number}\"\n", ["s", "S"][number % 2]);
    let shapes: [Shape<'_>; 7] = [
        ("protected routes", UPSTREAM, &protected),
        ("below a public one", &format!("{UPSTREAM}{public_above}"), &protected),
        ("an upstream for each", "", &own_upstream),
        ("a host for each", UPSTREAM, &by_host),
        ("with strip_prefix", UPSTREAM, &stripped),
        ("with ignore_case", UPSTREAM, &ignoring_case),
        ("in two cases", UPSTREAM, &cases),
    ];
    for (what, head, piece) in shapes {
        grows_with_its_size(what, |count| {
            let (config, warnings) =
                read(&format!("{head}{}", repeated(count, piece))).unwrap_or_else(|errors| panic!("{errors}"));
            assert!(config.routes.len() >= count);
            // What `check` prints, and `check --effective`.
            warnings.render(false);
            config.values.text();
        });
    }
}

#[test]
fn errors_are_found_and_printed_in_linear_time() {
    let same_path = |_: usize| "[[route]]\npath = \"/a\"\n".to_owned();
    let shapes: [Shape<'_>; 6] = [
        ("wrong keys", "[limits]\n", &|number| format!("uri_siz{number} = 1\n")),
        ("the same wrong key", "", &|number| format!("[[route]]\npath = \"/{number}\"\nscope = [\"a\"]\n")),
        ("routes of one path", "", &same_path),
        ("unknown upstreams", "", &|number| {
            format!(
                "[[upstream]]\nname = \"up-{number}\"\nservers = [\"http://a\"]\n\
                 [[route]]\npath = \"/{number}\"\nupstream = \"pu-{number}\"\n"
            )
        }),
        ("lines that are not TOML", "", &|number| format!("[[route]]\npath = s{number}\n")),
        ("values of a wrong type", "", &|_| "[[route]]\npath = 1\n".to_owned()),
    ];
    for (what, head, piece) in shapes {
        grows_with_its_size(what, |count| {
            let errors = read(&format!("{UPSTREAM}{head}{}", repeated(count, piece))).map(drop).expect_err(what);
            assert!(errors.all().len() >= count - 1, "{what}: {}", errors.all().len());
            errors.render(false);
            errors.json();
        });
    }
}

/// With the routes, their rates and counters, and what has changed.
#[tokio::test]
async fn a_reload_takes_linear_time() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let text = |count: usize, first: usize| {
        let rate = "[[route.rate]]\nper = \"address\"\nrequests = 9\n";
        let routes = repeated(count, |number| format!("{}{rate}", protected(number + first)));
        Gateway::config_text(&upstream.address.to_string(), &routes)
    };
    grows_with_its_size("a reload", |count| {
        // All routes are new, then a first one is new, and then all have another order.
        for text in [text(count, 0), text(count, 1), text(count, 1).replace("s9", "s8x")] {
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
