//! The paths that the gateway answers itself. Each needs one of its own: of two that are the same, only one would get
//! requests, and a provider that reports to the other one would end no session.

use std::sync::Arc;

use crate::auth::provider::Provider;
use crate::config::document::error::{ConfigError, Place};
use crate::config::document::table::Table;
use crate::config::sections::placed::Placed;
use crate::config::settings::logout_path;
use crate::gateway::endpoints::Endpoints;
use crate::gateway::forward_auth::ForwardAuthSettings;
use crate::gateway::route::Route;
use crate::gateway::route_table::{KEYS_PATH, REFRESH_PATH, REVOKE_PREFIX, metadata_path, openid_paths};
use crate::gateway::sign_in::paths::{CALLBACK, SIGN_IN, SIGN_OUT, SIGNED_OUT};

/// What the configuration says about own paths.
pub(super) struct OwnPaths<'c> {
    /// `tokens.issuer`
    pub(super) issuer: &'c str,
    pub(super) oauth: &'c Endpoints,
    /// `sign_in.path`, and whether a route has `sign_in`.
    pub(super) sign_in: (&'c str, bool),
    /// With the places of their names.
    pub(super) providers: &'c [Placed<Arc<Provider>>],
    pub(super) forward_auth: Option<&'c ForwardAuthSettings>,
    /// `event_stream.path`
    pub(super) pushed: &'c [Placed<String>],
    pub(super) routes: &'c [Route],
}

struct OwnPath {
    path: String,
    covers: Covers,
    /// For errors. Empty: a path of every gateway.
    what: String,
    /// `None`: no key chooses it.
    place: Option<Place>,
}

/// Which requests a path gets.
#[derive(Clone, Copy, PartialEq)]
enum Covers {
    Itself,
    /// What is one segment below it.
    OneBelow,
    /// All that begin with it.
    Prefix,
}

impl OwnPath {
    fn fixed(path: impl Into<String>, covers: Covers) -> Self {
        OwnPath { path: path.into(), covers, what: String::new(), place: None }
    }

    fn chosen(path: impl Into<String>, what: impl Into<String>, place: Place) -> Self {
        OwnPath { path: path.into(), covers: Covers::Itself, what: what.into(), place: Some(place) }
    }

    fn gets(&self, path: &str) -> bool {
        let below = path.strip_prefix(&*self.path);
        match self.covers {
            Covers::Itself => below == Some(""),
            Covers::OneBelow => below.is_some_and(|below| !below.is_empty() && !below.contains('/')),
            Covers::Prefix => below.is_some(),
        }
    }
}

/// Reports each path that another one has.
pub(super) fn check(root: &mut Table<'_>, own: &OwnPaths<'_>) {
    let paths = all(root, own);
    for (number, later) in paths.iter().enumerate() {
        let Some(place) = &later.place else { continue };
        // Two providers with the same path have the same name, which is reported already.
        let is_reported = |first: &OwnPath| first.what == LOGOUT && later.what == LOGOUT;
        let is_same = |first: &&OwnPath| !is_reported(first) && (first.gets(&later.path) || later.gets(&first.path));
        let Some(first) = paths[..number].iter().find(is_same) else { continue };
        let path = &first.path;
        let error = match &first.place {
            None if first.what.is_empty() => ConfigError::new(format!("{path} is a path of the gateway itself"), OTHER),
            None => ConfigError::new(format!("{} has the path {path}", first.what), OTHER),
            Some(used) => {
                let error = ConfigError::new(format!("{} has the path {path}", first.what), OTHER);
                error.related(used, "first used here")
            }
        };
        root.report().add(error.at(place));
    }
    let reports = paths.iter().filter(|path| path.what == LOGOUT);
    for (report, place) in reports.filter_map(|path| Some((path, path.place.as_ref()?))) {
        if own.routes.iter().any(|route| route.path == report.path) {
            let error = ConfigError::new(format!("a route has the path {}", report.path), OTHER);
            root.report().add(error.help("the provider reports logouts there: change the route").at(place));
        }
    }
}

const OTHER: &str = "expected a different path";
const LOGOUT: &str = "back-channel logout";

/// Those that no key chooses come before those that an error can be about.
fn all(root: &mut Table<'_>, own: &OwnPaths<'_>) -> Vec<OwnPath> {
    let (below, signs_in) = own.sign_in;
    let mut paths = vec![
        OwnPath::fixed(REFRESH_PATH, Covers::Itself),
        OwnPath::fixed(REVOKE_PREFIX, Covers::Itself),
        OwnPath::fixed(REVOKE_PREFIX, Covers::OneBelow),
        OwnPath::fixed(KEYS_PATH, Covers::Itself),
        OwnPath::fixed(metadata_path(own.issuer), Covers::Itself),
    ];
    paths.extend(openid_paths(own.issuer).map(|path| OwnPath::fixed(path, Covers::Itself)));
    if signs_in {
        let names = own.providers.iter().map(|provider| &provider.value.name);
        let pages = names.flat_map(|name| [SIGN_IN, CALLBACK].map(|page| format!("{below}{page}{name}")));
        let pages = pages.chain([SIGN_OUT, SIGNED_OUT].map(|page| format!("{below}{page}")));
        let page = |path| OwnPath { what: "a page of [sign_in]".into(), ..OwnPath::fixed(path, Covers::Itself) };
        paths.extend(pages.map(page));
    }
    let oauth = root.part("oauth");
    // The metadata of a resource is below /.well-known/, where no other key can have a path.
    for (key, path) in own.oauth.chosen() {
        paths.push(OwnPath::chosen(path, format!("oauth.{key}"), oauth.place(key)));
    }
    for Placed { value, place } in own.providers {
        paths.push(OwnPath::chosen(logout_path(below, &value.name), LOGOUT, place.clone()));
    }
    if let Some(settings) = own.forward_auth {
        let covers = if settings.is_call(&format!("{}/", settings.path)) { Covers::Prefix } else { Covers::Itself };
        let place = root.part("forward_auth").place("path");
        paths.push(OwnPath { covers, ..OwnPath::chosen(&*settings.path, "forward_auth", place) });
    }
    let pushed = own.pushed.iter().map(|pushed| (pushed.value.clone(), pushed.place.clone()));
    paths.extend(pushed.map(|(path, place)| OwnPath::chosen(path, "another event stream", place)));
    paths
}
