//! The keys of `[oauth]` that concern the authorization endpoint: `sign_in` or `login_page`, its endpoints and
//! lifetimes, `registration` and `[[oauth.scope]]`.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::client_documents::DocumentSettings;
use crate::auth::provider::Provider;
use crate::auth::registered_clients::RegisteredClient;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::units::format_duration;
use crate::config::document::value::check_word;
use crate::config::sections::placed::{Placed, report_duplicates};
use crate::config::sections::{keys, pem, route_path, rules};
use crate::config::settings::TokenSettings;
use crate::gateway::authorization_server::settings::{
    AuthorizationSettings, RegistrationKind, RegistrationSettings, ScopeSettings,
};
use crate::gateway::protected_resource::Resources;
use crate::gateway::route::{Access, Capture, Route};
use crate::tokens::authorization::denied_clients::DeniedClients;
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::authorization::resource::OfferedResource;
use crate::tokens::family::ReuseRule;
use crate::tokens::sign_in::place::SignInPlace;

const AUTHORIZATION_ENDPOINT: &str = "/oauth/authorize";
const CONSENT_PAGE: &str = "/oauth/consent";
const GRANTS_PAGE: &str = "/oauth/grants";
const PAR_ENDPOINT: &str = "/oauth/par";
const REGISTRATION_ENDPOINT: &str = "/oauth/register";

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// Words of `oauth.registration`.
const KINDS: [&str; 3] = ["loopback", "https", "private_schemes"];

/// The keys, before the resources are known.
pub(super) struct AuthorizationKeys {
    sign_in: SignInPlace,
    authorization_endpoint: String,
    consent_page: String,
    grants_page: String,
    par_endpoint: String,
    requires_par: bool,
    code_lifetime: Duration,
    grant_lifetime: Duration,
    sessions_per_client: usize,
    reuse: ReuseRule,
    registration: Option<RegistrationSettings>,
    documents: Option<DocumentSettings>,
    scopes: Vec<ScopeSettings>,
}

/// `None`: neither `sign_in` nor `login_page` is set. All other keys are checked anyway. `knows_addresses`: see
/// [`forwarding::knows_addresses`](super::forwarding::knows_addresses).
pub(super) fn read(
    table: &mut Table<'_>,
    routes: &[Route],
    providers: &[Placed<Arc<Provider>>],
    tokens: &TokenSettings,
    knows_addresses: bool,
) -> Option<AuthorizationKeys> {
    let sign_in = sign_in_place(table, routes, providers);
    let authorization_endpoint = endpoint(table, "authorization_endpoint", AUTHORIZATION_ENDPOINT);
    let consent_page = endpoint(table, "consent_page", CONSENT_PAGE);
    let grants_page = endpoint(table, "grants_page", GRANTS_PAGE);
    let par_endpoint = endpoint(table, "par_endpoint", PAR_ENDPOINT);
    let requires_par = table.boolean("require_par", false);
    let code_lifetime = table.duration("code_lifetime", MINUTE, 10 * SECOND..=MINUTE);
    let grant_lifetime = grant_lifetime(table, tokens.lifetimes.absolute);
    let sessions_per_client = table.integer("sessions_per_client", 20, 1..=10_000);
    let reuse = reuse(table, knows_addresses);
    let registration = registration(table);
    let documents = documents(table);
    let scopes = scopes(table);
    let sign_in = sign_in?;
    if !tokens.issuer.starts_with("https://") {
        let error = ConfigError::new(
            format!("clients reach the authorization endpoint at tokens.issuer, which is {}", tokens.issuer),
            "expected tokens.issuer = \"https://…\"",
        );
        table.reject(sign_in.key(), error);
    }
    Some(AuthorizationKeys {
        sign_in,
        authorization_endpoint,
        consent_page,
        grants_page,
        par_endpoint,
        requires_par,
        code_lifetime,
        grant_lifetime,
        sessions_per_client,
        reuse,
        registration,
        documents,
        scopes,
    })
}

impl AuthorizationKeys {
    /// Where users sign in.
    pub(super) fn place(&self) -> &SignInPlace {
        &self.sign_in
    }

    /// Clients get tokens for a resource, so there must be one.
    pub(super) fn with_resources(
        self,
        table: &Table<'_>,
        resources: &Resources,
        of_routes: &[String],
    ) -> AuthorizationSettings {
        if resources.all.is_empty() {
            let error = ConfigError::new(
                "there is no protected resource that a client could get a token for",
                "expected `resource` in this table, or in a [[route]]",
            );
            table.reject(
                self.sign_in.key(),
                error.help("add resource = \"https://…\", the URL that clients are configured with"),
            );
        }
        if let Some(same) = resources.of_gateway.as_ref().filter(|of_gateway| of_routes.contains(&of_gateway.url)) {
            let error = ConfigError::new(
                format!("a route has the same resource, {}", same.url),
                "expected `resource` here or in the route, not both",
            );
            let help = "tokens for this one are good at all routes without a resource; remove it, or that of the route";
            table.reject("resource", error.help(help));
        }
        let offered = resources.all.iter().map(|metadata| OfferedResource {
            url: metadata.resource.url.clone(),
            scopes: metadata.scopes.clone(),
            default_scopes: metadata.challenged.clone(),
        });
        AuthorizationSettings {
            sign_in: self.sign_in,
            authorization_endpoint: self.authorization_endpoint,
            consent_page: self.consent_page,
            grants_page: self.grants_page,
            par_endpoint: self.par_endpoint,
            requires_par: self.requires_par,
            code_lifetime: self.code_lifetime,
            grant_lifetime: self.grant_lifetime,
            sessions_per_client: self.sessions_per_client,
            reuse: self.reuse,
            registration: self.registration,
            documents: self.documents,
            scopes: self.scopes,
            resources: offered.collect(),
            default_resource: resources.default,
        }
    }
}

/// `oauth.sign_in` or `oauth.login_page`.
fn sign_in_place(table: &mut Table<'_>, routes: &[Route], providers: &[Placed<Arc<Provider>>]) -> Option<SignInPlace> {
    let providers = sign_in(table, providers);
    let page = login_page(table, routes);
    match (providers, page) {
        (Some(_), Some(_)) => {
            let error = ConfigError::new("users sign in at one place", "expected `sign_in` or `login_page`, not both");
            table.reject("login_page", error.related(&table.place("sign_in"), "the first place is here"));
            None
        }
        (Some(providers), None) => Some(SignInPlace::Providers(providers)),
        (None, page) => page.map(SignInPlace::LoginPage),
    }
}

/// `oauth.login_page`: a page of a backend.
fn login_page(table: &mut Table<'_>, routes: &[Route]) -> Option<String> {
    let path = table.take("login_page", Shape::Pattern("^(/|$)"));
    table.default("login_page", "");
    let page = path?.parse(route_path::path_or_off)??;
    if !routes.iter().any(|route| route.capture == Some(Capture::CookieLogin)) {
        let error =
            ConfigError::new("no login leaves a session in the browser", "expected a route with login = \"cookie\"");
        table.reject(
            "login_page",
            error.help("add login = \"cookie\" to the [[route]] that the form of the page goes to"),
        );
    }
    let of_page = routes.iter().filter(|route| page.starts_with(&route.path)).max_by_key(|route| route.path.len());
    if of_page.is_none_or(|route| route.access != Access::Public) {
        let error = ConfigError::new(
            "a user without a session does not see this page",
            format!("expected a [[route]] with path = \"{page}\" and public = true"),
        );
        table.reject("login_page", error);
    }
    Some(page)
}

/// `oauth.sign_in`: the name of a provider, or several.
fn sign_in(table: &mut Table<'_>, providers: &[Placed<Arc<Provider>>]) -> Option<Vec<Arc<str>>> {
    let value = table.take("sign_in", Shape::Any(vec![Shape::Text, Shape::list(Shape::Text)]));
    table.default("sign_in", "");
    let value = value?;
    let find = |text: &str| {
        let found = providers.iter().find(|provider| *provider.value.name == *text);
        found.map(|provider| provider.value.name.clone()).ok_or_else(|| no_provider(text))
    };
    if value.is_list() {
        return value.some_of("[\"login\", \"partners\"]", find);
    }
    match value.string()? {
        "" => None,
        _ => value.parse(find).map(|provider| vec![provider]),
    }
}

fn no_provider(text: &str) -> ConfigError {
    let error = ConfigError::new(format!("there is no provider `{text}`"), "expected the name of a [[provider]]");
    error.help(format!("add [[provider]] with name = \"{text}\""))
}

fn endpoint(table: &mut Table<'_>, key: &'static str, default: &str) -> String {
    let path = table.take(key, Shape::Pattern("^/."));
    table.default(key, default);
    let path = path.and_then(|value| value.parse(route_path::path_or_off)).flatten();
    path.unwrap_or_else(|| default.to_owned())
}

fn grant_lifetime(table: &mut Table<'_>, longest: Duration) -> Duration {
    let lifetime = table.duration("grant_lifetime", longest, MINUTE..=3650 * DAY);
    if lifetime > longest {
        let [lifetime, longest] = [lifetime, longest].map(format_duration);
        let message = format!("grant_lifetime ({lifetime}) is longer than tokens.refresh_absolute ({longest})");
        table.reject("grant_lifetime", ConfigError::new(message, format!("expected at most {longest}")));
    }
    lifetime.min(longest)
}

/// `oauth.reuse` and `oauth.reuse_window`.
fn reuse(table: &mut Table<'_>, knows_addresses: bool) -> ReuseRule {
    let is_by_address = table.choice("reuse", false, &[("end", false), ("same_address", true)]);
    let window = table.duration("reuse_window", HOUR, MINUTE..=DAY);
    if is_by_address && !knows_addresses {
        let error = ConfigError::new(
            "the address of a client is not known: a proxy terminates TLS, and none is trusted to name its clients",
            "expected proxies in forwarding.trusted, or \"end\"",
        );
        table.reject("reuse", error.help("add `trusted = [\"10.0.0.0/24\"]` under [forwarding]"));
    }
    if is_by_address { ReuseRule::SameAddress(window) } else { ReuseRule::End }
}

fn registration(table: &mut Table<'_>) -> Option<RegistrationSettings> {
    let words = Shape::Choice(KINDS.map(str::to_owned).into());
    let value = table.take("registration", Shape::list(Shape::Any(vec![words, Shape::Pattern("^[a-z][^/]*://")])));
    table.default("registration", Vec::<String>::new());
    let kinds = value.and_then(|value| value.list_of("[\"loopback\"]", registration_kind)).unwrap_or_default();
    let endpoint = endpoint(table, "registration_endpoint", REGISTRATION_ENDPOINT);
    let lifetime = table.duration("registration_lifetime", 90 * DAY, DAY..=3650 * DAY);
    if kinds.is_empty() { None } else { Some(RegistrationSettings { endpoint, kinds, lifetime }) }
}

fn registration_kind(text: &str) -> Result<RegistrationKind, ConfigError> {
    let Some((scheme, host)) = text.split_once("://") else {
        return Ok(match check_word(text, &KINDS)? {
            "loopback" => RegistrationKind::Loopback,
            "https" => RegistrationKind::Https,
            _ => RegistrationKind::PrivateSchemes,
        });
    };
    let any = RedirectUri::parse(&format!("{text}/"));
    let site = any.as_ref().ok().and_then(RedirectUri::page_origin);
    if site.as_deref() == Some(text) {
        return Ok(RegistrationKind::Site(text.to_owned()));
    }
    if host.is_empty() && any.is_ok_and(|uri| uri.private_scheme().is_some()) {
        return Ok(RegistrationKind::Scheme(scheme.to_owned()));
    }
    let expected = "expected a site, as \"https://client.example\", or a scheme, as \"cursor://\"";
    Err(ConfigError::new("no client can register redirect URIs of this kind", expected))
}

/// `oauth.client_documents`: `"any"`, or the hosts of the documents.
fn documents(table: &mut Table<'_>) -> Option<DocumentSettings> {
    let value = table.take("client_documents", Shape::Any(vec![Shape::Text, Shape::list(Shape::Text)]));
    table.default("client_documents", Vec::<String>::new());
    let ca_file = table.path("client_documents_ca_file");
    if let Some(path) = &ca_file {
        table.accept("client_documents_ca_file", pem::certificates(path));
    }
    let value = value?;
    if value.is_list() {
        let hosts = value.list_of("[\"claude.ai\", \"vscode.dev\"]", keys::host)?;
        return if hosts.is_empty() { None } else { Some(DocumentSettings { hosts: Some(hosts), ca_file }) };
    }
    value.choice(&[("any", ())])?;
    Some(DocumentSettings { hosts: None, ca_file })
}

/// `oauth.denied_clients`
pub(super) fn denied_clients(table: &mut Table<'_>, clients: &[RegisteredClient]) -> DeniedClients {
    let value = table.take("denied_clients", Shape::list(Shape::Pattern("^[ -~]+$")));
    table.default("denied_clients", Vec::<String>::new());
    let Some(value) = value else { return DeniedClients::default() };
    let example = "[\"app.example\"]";
    for item in value.list(example).unwrap_or_default() {
        let own = clients.iter().find(|client| item.string() == Some(&*client.client_id));
        if let Some(client) = own {
            let message = format!("the [[oauth.client]] {} is denied, and gets no tokens", client.client_id);
            let warning = ConfigError::new(message, "expected the id or host of another client");
            item.warn(warning.help("remove this one, or the [[oauth.client]]"));
        }
    }
    DeniedClients(value.list_of(example, denied_client).unwrap_or_default())
}

fn denied_client(text: &str) -> Result<String, ConfigError> {
    if !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(text.to_owned());
    }
    let error = ConfigError::new("this is no client id and no host", "expected printable ASCII characters");
    let help = "write the client_id as it is in lists of sessions, or the host of its document or redirect URI without \
                https://";
    Err(error.help(help))
}

/// `[[oauth.scope]]`
fn scopes(table: &mut Table<'_>) -> Vec<ScopeSettings> {
    let scopes: Vec<_> = table.tables("scope", scope).into_iter().flatten().collect();
    let message = "two scopes have the same name";
    report_duplicates(table.report(), &scopes, message, "expected a different name", |scope| &scope.name);
    scopes.into_iter().map(|scope| scope.value).collect()
}

fn scope(table: &mut Table<'_>) -> Option<Placed<ScopeSettings>> {
    let name = table.required("name", rules::SCOPE, "\"notes:read\"").and_then(|value| value.parse(rules::scope));
    let text = table.take("text", Shape::Text).and_then(|value| value.string().map(str::to_owned));
    let is_optional = table.boolean("optional", false);
    let claim = table.optional_table("claim", rules::claim).flatten();
    let place = table.place("name");
    Some(Placed { value: ScopeSettings { name: name?, text, is_optional, claim }, place })
}
