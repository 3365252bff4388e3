//! `[issuer.introspection]`: an issuer that is asked about its tokens.

use std::time::Duration;

use crate::auth::introspection::{AnswerForm, IntrospectionSettings};
use crate::auth::oauth_client::Endpoint;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::placed::Placed;
use crate::config::sections::{keys, oauth_client, pem};
use crate::config::settings::ForeignIssuer;
use crate::tokens::credential_kind::begins_as_own;
use crate::tokens::jwt::Algorithm;
use crate::tokens::jwt::introspected::AnswerRules;

/// RFC 6750 section 2.1: what a token can begin with.
const PREFIX: &str = "^[A-Za-z0-9._~+/-]+$";

const SECOND: Duration = Duration::from_secs(1);

/// `algorithms` of an issuer without keys.
pub(super) fn without_algorithms(table: &Table<'_>) -> Option<Vec<Algorithm>> {
    if table.has("algorithms") {
        let error = ConfigError::new("`algorithms` has no effect without keys", "expected a source of keys, or none");
        let error = error.related(&table.place("introspection"), "the issuer is only asked about its tokens");
        table.reject("algorithms", error.help("remove this key, or add `discover = true` to verify its JWTs"));
    }
    Some(Vec::new())
}

/// `issuer`: its name. `has_keys`: its JWTs are verified here. `None` after an error.
pub(super) fn read(table: &mut Table<'_>, issuer: Option<&str>, has_keys: bool) -> Option<IntrospectionSettings> {
    let allow_http = table.boolean("allow_http", false);
    let ca_file = table.path("ca_file");
    if let Some(path) = &ca_file {
        table.accept("ca_file", pem::certificates(path));
    }
    let url = table.required("endpoint", Shape::URL, "\"https://login.example/oauth2/introspect\"");
    let url = url.and_then(|value| value.parse(|text| keys::key_url(text, allow_http)));
    let client = oauth_client::read(table, issuer.unwrap_or_default(), ca_file);
    oauth_client::check_certificate(table, "endpoint", client.as_ref(), url.as_ref());
    let prefixes = table.take("token_prefix", Shape::some(Shape::Pattern(PREFIX)));
    let prefixes = prefixes.map_or(Some(Vec::new()), |value| value.list_of("[\"ory_at_\"]", prefix));
    let forms = [("json", AnswerForm::Json), ("jwt", AnswerForm::Jwt)];
    let response = table.choice("response", AnswerForm::Json, &forms);
    if response == AnswerForm::Jwt && !has_keys {
        let error = ConfigError::new("signed answers need the keys of the issuer", "expected a source of keys");
        table.reject("response", error.help("add `discover = true` or `jwks_url`, and `algorithms`, to [[issuer]]"));
    }
    let cache = table.duration("cache", 60 * SECOND, SECOND..=600 * SECOND);
    let concurrency = table.integer("concurrency", 64, 1..=10_000);
    let consecutive_timeouts = oauth_client::consecutive_timeouts(table);
    let rules = AnswerRules {
        token_type: table.boolean("require_token_type", true),
        issuer: table.boolean("require_iss", false),
    };
    if !rules.token_type {
        let warning = ConfigError::new(
            "refresh tokens of this issuer may be accepted as access tokens",
            "many servers answer that a refresh token is active, without `token_type`",
        );
        table.warn("require_token_type", warning.help("remove this key if the answers have `token_type`"));
    }
    Some(IntrospectionSettings {
        endpoint: Endpoint::configured(url?),
        client: client?,
        token_prefixes: prefixes?,
        cache,
        concurrency,
        consecutive_timeouts,
        response,
        rules,
        verifies_jwts: has_keys,
    })
}

fn prefix(text: &str) -> Result<String, ConfigError> {
    if begins_as_own(text) {
        return Err(ConfigError::new("this is the prefix of tokens of the gateway itself", "expected another prefix"));
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"._~+/-".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_token) {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::new("no token begins with this", "expected the first characters of the tokens"))
    }
}

/// The token alone decides who is asked, so the prefixes must tell the issuers apart.
pub(super) fn check_prefixes(root: &Table<'_>, issuers: &[Placed<ForeignIssuer>]) {
    let asked = issuers.iter().filter_map(|issuer| Some((issuer, issuer.value.introspection.as_ref()?)));
    let asked: Vec<_> = asked.collect();
    for (index, (issuer, settings)) in asked.iter().enumerate() {
        for (first, others) in &asked[..index] {
            let overlap = |one: &String| {
                others.token_prefixes.iter().any(|other| one.starts_with(&**other) || other.starts_with(&**one))
            };
            let error = if settings.token_prefixes.is_empty() && others.token_prefixes.is_empty() {
                ConfigError::new(
                    "two issuers are asked about all opaque tokens",
                    "expected `token_prefix` in one of them",
                )
                .help("a token that the wrong issuer sees is exposed to it, so the gateway asks only one")
            } else if let Some(prefix) = settings.token_prefixes.iter().find(|one| overlap(one)) {
                ConfigError::new(
                    format!("tokens with the prefix \"{prefix}\" can be of two issuers"),
                    "expected prefixes of which none begins with another",
                )
            } else {
                continue;
            };
            root.report().add(error.related(&first.place, "the other issuer").at(&issuer.place));
        }
    }
}
