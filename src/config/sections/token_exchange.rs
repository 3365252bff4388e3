//! `[[token_exchange]]`: token endpoints of other servers, at which the gateway exchanges the tokens of callers for
//! tokens for backends (RFC 8693).

use crate::auth::oauth_client::{ClientAuthentication, Endpoint};
use crate::auth::token_exchange::TokenExchangeSettings;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::placed::{Placed, report_duplicates};
use crate::config::sections::{issuer, oauth_client, pem, rules};
use crate::config::settings::{ForeignIssuer, TokenSettings};
use crate::gateway::route::{Access, TokenForwarding};
use crate::protocols::url::{SecureUrl, UrlError};

pub(super) struct TokenExchanges {
    pub(super) settings: Vec<TokenExchangeSettings>,
    /// Also of tables with errors, so that routes that name them get no further error.
    pub(super) names: Vec<String>,
}

pub(super) fn token_exchanges(root: &mut Table<'_>, tokens: &TokenSettings) -> TokenExchanges {
    let mut names = Vec::new();
    let read = root.tables("token_exchange", |table| {
        let name = table.required("name", Shape::Pattern("^.{1,64}$"), "\"orders\"");
        let name = name.and_then(|value| value.parse(name_of));
        names.extend(name.map(str::to_owned));
        token_exchange(table, name, tokens)
    });
    let read: Vec<_> = read.into_iter().flatten().collect();
    let message = "two token exchanges have the same name";
    report_duplicates(root.report(), &read, message, "expected a different name", |exchange| &exchange.name);
    TokenExchanges { settings: read.into_iter().map(|read| read.value).collect(), names }
}

/// `None` if a required key is missing or wrong. All other keys are checked anyway.
fn token_exchange(
    table: &mut Table<'_>,
    name: Option<&str>,
    tokens: &TokenSettings,
) -> Option<Placed<TokenExchangeSettings>> {
    let allow_http = table.boolean("allow_http", false);
    let url = table.required("token_endpoint", Shape::URL, "\"https://login.example/token\"");
    let url = url.and_then(|value| value.parse(|text| SecureUrl::parse(text, allow_http).map_err(explain)));
    let ca_file = table.path("ca_file");
    if let Some(path) = &ca_file {
        table.accept("ca_file", pem::certificates(path));
    }
    let server = table.take("issuer", Shape::Text).and_then(|value| value.string());
    let client = oauth_client::read(table, server.unwrap_or_default(), ca_file);
    oauth_client::check_certificate(table, "token_endpoint", client.as_ref(), url.as_ref());
    if server.is_none()
        && client.as_ref().is_some_and(|c| matches!(c.authentication, ClientAuthentication::Assertion(_)))
    {
        let error = ConfigError::new("`issuer` is missing", "expected the issuer of the server in this table");
        table.reject("issuer", error.help("assertions of the gateway are for this issuer").missing());
    }
    let audience = table.take("audience", issuer::texts()).and_then(|value| issuer::audience(&value));
    let resource = table.take("resource", Shape::Text).and_then(|value| value.string()).map(str::to_owned);
    if audience.is_none() && resource.is_none() {
        let error = ConfigError::new("the target is missing", "expected `audience` or `resource` in this table");
        table.reject("audience", error.help("name the backend as the server knows it").missing());
    }
    let scopes = table.take("scopes", Shape::list(rules::SCOPE));
    table.default("scopes", Vec::<String>::new());
    let scopes = scopes.and_then(|value| value.list_of("[\"orders:read\"]", rules::scope)).unwrap_or_default();
    let subject_audience = subject_audience(table, &tokens.audience);
    let consecutive_timeouts = oauth_client::consecutive_timeouts(table);
    let settings = TokenExchangeSettings {
        name: name?.to_owned(),
        endpoint: Endpoint::configured(url?),
        client: client?,
        audience: audience.unwrap_or_default(),
        resource,
        scopes,
        subject_audience,
        consecutive_timeouts,
    };
    Some(Placed { value: settings, place: table.place("name") })
}

fn name_of(text: &str) -> Result<&str, ConfigError> {
    if (1..=64).contains(&text.chars().count()) && !text.chars().any(char::is_control) {
        Ok(text)
    } else {
        Err(ConfigError::new("this name is not valid in logs", "expected 1 to 64 characters"))
    }
}

fn subject_audience(table: &mut Table<'_>, own_audience: &[String]) -> Vec<String> {
    let Some(value) = table.take("subject_audience", issuer::texts()) else { return Vec::new() };
    let audience = issuer::audience(&value).unwrap_or_default();
    // Otherwise the server could use the token to call the gateway as the client.
    if let Some(own) = audience.iter().find(|aud| own_audience.contains(aud)) {
        let error = ConfigError::new(format!("{own} is an audience of this gateway"), "expected a different audience");
        value.reject(error.help("write the audience of the other server"));
    }
    audience
}

/// Warns of a route that accepts opaque tokens and exchanges them: the other server could not use one.
pub(super) fn warn_of_opaque_tokens(
    table: &Table<'_>,
    token: &TokenForwarding,
    access: &Access,
    exchanges: &TokenExchanges,
    issuers: &[ForeignIssuer],
) {
    let (TokenForwarding::Exchange(number), Access::Token(rules)) = (token, access) else { return };
    if exchanges.settings.get(*number).is_none_or(|exchange| !exchange.subject_audience.is_empty()) {
        return;
    }
    let is_accepted = |name: &str| rules.issuers.is_empty() || rules.issuers.iter().any(|accepted| accepted == name);
    let asked = issuers.iter().filter(|issuer| issuer.introspection.is_some());
    let Some(name) = asked.map(|issuer| &*issuer.policy.issuer).find(|name| is_accepted(name)) else { return };
    let warning = ConfigError::new(
        format!("opaque tokens of {name} cannot be exchanged"),
        "requests with one get 502: no other server sees an opaque token",
    );
    let help = "set `subject_audience` in the [[token_exchange]], or name the other issuers in `issuers` of the route";
    table.warn("token_exchange", warning.help(help));
}

fn explain(error: UrlError) -> ConfigError {
    let expected = "expected https:// and a host";
    match error {
        UrlError::Credentials => ConfigError::new("the URL has a user name or password", expected)
            .help("remove it, and write `client_id` and `client_secret_file`")
            .confidential(),
        UrlError::Cleartext => ConfigError::new("tokens would be sent by http://", expected)
            .help("use https://; on a trusted network, set `allow_http = true`"),
        UrlError::Invalid | UrlError::Fragment => ConfigError::new("this is not the URL of an endpoint", expected)
            .help("write the complete URL, for example \"https://login.example/oauth/token\""),
    }
}
