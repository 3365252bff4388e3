//! The configuration the process runs on, composed of the modules' own settings. Nobody below knows it exists.
//!
//! `gateway.toml` → `read` (tables with positions) → `check` (every fault at once) → [`Config`]. Reading it
//! changes nothing on disk, makes no connection, and never stops at the first fault: see [`Faults`].

mod document;
mod sections;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

use crate::auth::identity;
use crate::auth::keyring::KeySource;
use crate::gateway::endpoints::Endpoints;
use crate::gateway::route;
use crate::limits::limiter::Rate;
use crate::limits::{rate_limit, throttle};
use crate::protocols::http::forwarded;
use crate::telemetry::{access_log, audit_log};
use crate::tokens::family::Lifetimes;
use crate::tokens::jwt::{Algorithm, Issuer};
use crate::tokens::login;
use crate::{admin, server, upstream};

pub use document::error::{Fault, Faults, Place};

use document::table::{Reading, Table};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub watch: Watch,
    /// At least 1; `workers = 0` in the file has become the number of cores.
    pub workers: usize,
    pub listeners: Vec<server::ListenerSettings>,
    pub connections: server::ConnectionSettings,
    pub admin: admin::Settings,
    pub store: StoreSettings,
    pub tokens: TokenSettings,
    pub issuers: Vec<ForeignIssuer>,
    pub upstreams: Vec<upstream::Settings>,
    /// `[[rate]]`: for every route.
    pub rates: Vec<rate_limit::Settings>,
    pub routes: Vec<route::Route>,
    pub identity: identity::Identity,
    pub login: login::Settings,
    pub oauth: Endpoints,
    pub forwarding: forwarded::Forwarding,
    pub access_log: access_log::Settings,
    pub audit: audit_log::Settings,
    pub limits: Limits,
    pub throttle: throttle::Settings,
}

impl Config {
    /// Those for every route, then those of each route, in the order of their numbers.
    pub fn all_rates(&self) -> impl Iterator<Item = &rate_limit::Settings> {
        self.rates.iter().chain(self.routes.iter().flat_map(|route| &route.rates))
    }
}

/// `watch`: what is put in force when it changes on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Off,
    /// Certificates and their keys.
    Certificates,
    /// The configuration, too.
    All,
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSettings {
    pub sqlite: PathBuf,
    pub secret: admin::SecretSource,
    /// `timeouts.store`: how long a call waits for its answer.
    pub patience: Duration,
}

/// `[tokens]`: the tokens this gateway issues.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSettings {
    pub issuer: String,
    pub audience: Vec<String>,
    pub algorithm: Algorithm,
    /// PKCS#8 PEM, which is not rotated; `None`: keys are made, rotated and kept in the store.
    pub signing_key_file: Option<PathBuf>,
    /// A key of the store signs so long.
    pub key_lifetime: Duration,
    /// It is published so long before.
    pub key_ahead: Duration,
    pub lifetimes: Lifetimes,
    pub clock_skew: Duration,
    /// `expiresAt` in milliseconds instead of seconds.
    pub expires_at_milliseconds: bool,
    /// `tokenId` and `expiresIn` beside the four fields of a refresh answer.
    pub extra_fields: bool,
    /// `limits.sessions_per_subject`: live families of one subject.
    pub sessions_per_subject: usize,
}

/// `[[issuer]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignIssuer {
    pub policy: Issuer,
    pub keys: KeySource,
}

/// `[limits]` that are not about one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// `limits.token_size`
    pub token_size: usize,
    /// `limits.token_cache_size`: bytes that verified tokens may take.
    pub token_cache_size: usize,
    /// `limits.bad_signatures`: so many of one address are checked at once, and as many again in ten seconds.
    pub bad_signatures: Rate,
}

/// Whether checking looks beyond the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Addresses are only compared with each other: for a check beside a running gateway, and for a reload.
    None,
    /// Each address is bound and released at once: before a start.
    Addresses,
}

/// Reads and checks a file. Relative paths in it begin at its folder.
pub fn load(path: &Path, probe: Probe) -> Result<Config, Faults> {
    let base = path.parent().unwrap_or(Path::new(""));
    text_of(path).and_then(|(file, source)| read(&file, &source, base, probe))
}

/// A file's name, for messages, and what is in it.
fn text_of(path: &Path) -> Result<(String, String), Faults> {
    let file = path.display().to_string();
    let bytes = fs::read(path).map_err(|error| {
        let fault =
            Fault::new(format!("the configuration cannot be read: {error}"), "expected a file that can be read");
        Faults::new(&file, "", vec![fault.help("--config names another file")])
    })?;
    match str::from_utf8(&bytes) {
        Ok(source) => Ok((file, source.to_owned())),
        Err(error) => {
            let source = String::from_utf8_lossy(&bytes);
            let span = Some(error.valid_up_to()..error.valid_up_to());
            let fault = Fault::new("the file is not UTF-8", "expected UTF-8 from here on");
            Err(Faults::new(&file, &source, vec![fault.at(&Place { key: String::new(), span })]))
        }
    }
}

/// As [`load`], of a text. Relative paths begin at `base`.
pub fn parse(text: &str, base: &Path, probe: Probe) -> Result<Config, Faults> {
    read("gateway.toml", text, base, probe)
}

/// What a command for a running gateway needs of a file: `[admin]`. What is wrong elsewhere in it does not keep anybody from
/// revoking a key.
pub fn load_admin(path: &Path) -> Result<admin::Settings, Faults> {
    text_of(path).and_then(|(file, source)| {
        let base = path.parent().unwrap_or(Path::new(""));
        whole_or_faults(&file, &source, base, |mut root| root.table("admin", sections::admin))
    })
}

/// Every key there is: `tokens.issuer`, `route[].path`. Tables are among them.
pub fn keys() -> BTreeSet<String> {
    // One of each table that is read only where the file has it. What is missing in them does not matter here.
    let one_of_each = "identity = { claim = [{}] }\nissuer = [{}]\nlistener = [{ tls = {} }]\nrate = [{}]\nroute = [{ claim = [{}], rate = [{}] }]\nupstream = [{ health_check = {} }]\nadmin = { tls = {} }\n";
    let (tree, _) = DeTable::parse_recoverable(one_of_each);
    let reading = Reading::new(Path::new(""));
    Table::new(tree.get_ref(), Place::default(), &reading).read(|root| sections::gateway(root, Probe::None));
    reading.into_keys()
}

fn read(file: &str, source: &str, base: &Path, probe: Probe) -> Result<Config, Faults> {
    whole_or_faults(file, source, base, |root| root.read(|root| sections::gateway(root, probe)))
}

/// Reads of a text what `part` reads, if there is no fault in that, and the text is TOML.
fn whole_or_faults<T>(
    file: &str,
    source: &str,
    base: &Path,
    part: impl for<'a> FnOnce(Table<'a>) -> T,
) -> Result<T, Faults> {
    let (tree, torn) = DeTable::parse_recoverable(source);
    let reading = Reading::new(base);
    let found = part(Table::new(tree.get_ref(), Place::default(), &reading));

    let faults = document::syntax::with_syntax_errors(source, tree.get_ref(), &torn, reading.into_faults(keys));
    match faults.is_empty() {
        true => Ok(found),
        false => Err(Faults::new(file, source, faults)),
    }
}
