//! `[[issuer]]`, as far as it says where the issuer's keys are and how they are kept.

use std::time::Duration;

use crate::auth::keyring::{KeyFile, KeySource, Location, OnStale, Remote, Startup};
use crate::config::document::error::Fault;
use crate::config::document::table::Table;
use crate::config::document::units::spell_duration;
use crate::config::sections::{Placed, files, pem};
use crate::protocols::url::{KeyUrl, UrlFault};
use crate::tokens::jwt::Issuer;

const DAY: Duration = Duration::from_hours(24);
const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

/// What means something only where keys are fetched.
const OF_REMOTE: &[&str] =
    &["allow_http", "ca_file", "refresh_min", "refresh_max", "refetch_cooldown", "max_age", "on_stale", "startup"];

/// The one key of five that says where the issuer's keys are. `issuer` is its name, where discovery begins.
pub(super) fn source(table: &mut Table<'_>, issuer: Option<&str>) -> Option<Placed<KeySource>> {
    // All are asked for, also when the first is there: each is a known key.
    let files = [
        ("jwks_file", table.path("jwks_file").map(KeyFile::Jwks)),
        ("pem_file", table.path("pem_file").map(KeyFile::Pem)),
        ("secret_file", table.path("secret_file").map(KeyFile::Secret)),
    ];
    let allow_http = table.flag("allow_http", false);
    let jwks_url = table.take("jwks_url").and_then(|value| value.parse(|text| key_url(text, allow_http)));
    let discover = table.take("discover").map_or(Some(false), |value| value.flag());
    let upkeep = Upkeep::read(table);

    let key = the_only_one(table, discover?)?;
    let source = match key {
        "jwks_url" => jwks_url.map(|url| upkeep.remote(Location::Jwks(url), allow_http)),
        "discover" => discovery(table, issuer, allow_http).map(|location| upkeep.remote(location, allow_http)),
        _ => {
            refuse_upkeep(table, key);
            files.into_iter().find(|(file, _)| *file == key).and_then(|(_, file)| file).map(KeySource::File)
        }
    };
    source.map(|value| Placed { value, place: table.place(key) })
}

fn the_only_one(table: &Table<'_>, discover: bool) -> Option<&'static str> {
    let named = ["jwks_file", "pem_file", "secret_file", "jwks_url"].into_iter().filter(|key| table.has(key));
    let mut named = named.chain(discover.then_some("discover"));
    let Some(key) = named.next() else {
        let fault = Fault::new(
            "this issuer has no keys",
            "expected `jwks_url`, `discover = true`, `jwks_file`, `pem_file` or `secret_file`",
        );
        table.wrong("jwks_file", fault.of_absence());
        return None;
    };
    for other in named {
        let fault = Fault::new("the keys come from two places", "expected one source of keys");
        table.wrong(other, fault.related(&table.place(key), "the first one is here"));
    }
    Some(key)
}

fn refuse_upkeep(table: &Table<'_>, file: &str) {
    for key in OF_REMOTE.iter().filter(|key| table.has(key)) {
        let fault = Fault::new(format!("`{key}` is about keys that are fetched"), "expected a source to fetch from");
        let fault = fault.related(&table.place(file), "the keys are in this file, which is looked at all the time");
        table.wrong(key, fault.help("remove it, or write `jwks_url` or `discover = true` instead of the file"));
    }
}

fn key_url(text: &str, allow_http: bool) -> Result<KeyUrl, Fault> {
    KeyUrl::parse(text, allow_http).map_err(explain)
}

fn explain(fault: UrlFault) -> Fault {
    let shown = Fault::new(fault.to_string(), "expected https:// and a host");
    match fault {
        UrlFault::NotAUrl => shown.help("write it in full, as \"https://login.example/.well-known/jwks.json\""),
        UrlFault::Credentials => shown.help("public keys need no password; leave it out").confidential(),
        UrlFault::Fragment => shown.help("leave out what follows `#`"),
        UrlFault::Cleartext => shown.help(
            "whoever can change the answer on its way can make tokens; \
             if nobody can, on a network of your own, say `allow_http = true`",
        ),
    }
}

fn discovery(table: &Table<'_>, issuer: Option<&str>, allow_http: bool) -> Option<Location> {
    let places = KeyUrl::well_known(issuer?, allow_http).map_err(|fault| match fault {
        UrlFault::NotAUrl => Fault::new("discovery begins at the issuer's name", "expected `issuer` to be a URL")
            .related(&table.place("issuer"), "this is not one")
            .help("name its keys with `jwks_url` instead"),
        fault => explain(fault),
    });
    table.accept("discover", places).map(Location::Discovery)
}

/// How keys are fetched and kept, wherever they are.
struct Upkeep {
    ca_file: Option<std::path::PathBuf>,
    refresh_min: Duration,
    refresh_max: Duration,
    refetch_cooldown: Duration,
    max_age: Duration,
    on_stale: OnStale,
    startup: Startup,
}

impl Upkeep {
    fn read(table: &mut Table<'_>) -> Self {
        let ca_file = table.path("ca_file");
        if let Some(path) = &ca_file {
            table.accept("ca_file", pem::certificates(path));
        }
        let upkeep = Upkeep {
            ca_file,
            refresh_min: table.duration("refresh_min", MINUTE, SECOND..=DAY),
            refresh_max: table.duration("refresh_max", 15 * MINUTE, SECOND..=DAY),
            refetch_cooldown: table.duration("refetch_cooldown", Duration::from_secs(30), SECOND..=HOUR),
            max_age: table.duration("max_age", DAY, MINUTE..=366 * DAY),
            on_stale: table.choice("on_stale", OnStale::Keep, &[("keep", OnStale::Keep), ("reject", OnStale::Reject)]),
            startup: table.choice(
                "startup",
                Startup::Wait,
                &[("wait", Startup::Wait), ("continue", Startup::Continue)],
            ),
        };
        in_order(table, ("refresh_min", upkeep.refresh_min), ("refresh_max", upkeep.refresh_max));
        in_order(table, ("refresh_max", upkeep.refresh_max), ("max_age", upkeep.max_age));
        upkeep
    }

    fn remote(self, location: Location, allow_http: bool) -> KeySource {
        KeySource::Remote(Box::new(Remote {
            location,
            allow_http,
            ca_file: self.ca_file,
            refresh: self.refresh_min..=self.refresh_max,
            refetch_cooldown: self.refetch_cooldown,
            max_age: self.max_age,
            on_stale: self.on_stale,
            startup: self.startup,
        }))
    }
}

/// The fault points at whichever was written; a default alone is never wrong.
fn in_order(table: &Table<'_>, (lower, less): (&str, Duration), (upper, more): (&str, Duration)) {
    if less <= more {
        return;
    }
    let [less, more] = [less, more].map(spell_duration);
    let (at, expected) = match table.has(upper) {
        true => (upper, format!("expected at least {less}, which is {lower}")),
        false => (lower, format!("expected at most {more}, which is {upper}")),
    };
    let fault = Fault::new(format!("{lower} ({less}) is longer than {upper} ({more})"), expected);
    table.wrong(at, fault.help("refresh_min ≤ refresh_max ≤ max_age must hold"));
}

/// Are the keys in this file fit for an issuer on these terms?
pub(super) fn fit(file: &KeyFile, policy: &Issuer) -> Result<(), Fault> {
    let content = files::contents(file.path())?;
    // Without algorithms, whose fault is reported already, no key can be judged.
    if policy.algorithms.is_empty() {
        return Ok(());
    }
    let named = |fault| format!("{}: {fault}", file.path().display());
    file.admit(&content, policy).map(drop).map_err(|fault| Fault::new(named(fault), form(file)))
}

fn form(file: &KeyFile) -> &'static str {
    match file {
        KeyFile::Jwks(_) => "expected a JWKS: { \"keys\": [ … ] }",
        KeyFile::Pem(_) => "expected PEM with BEGIN PUBLIC KEY or BEGIN CERTIFICATE",
        KeyFile::Secret(_) => "expected a file with the HMAC secret",
    }
}
