//! `[[provider]]`: identity providers at which the gateway is registered as a client.

use std::sync::Arc;

use crate::auth::provider::Provider;
use crate::broker::sign_in::SignInProviderSettings;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::choose;
use crate::config::sections::placed::Placed;
use crate::config::sections::{keys, oauth_client, pem, sign_in_keys};
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::{ALGORITHMS, Algorithm, is_hmac};
use crate::tokens::login::CLIENT_SUBJECT_PREFIX;
use crate::tokens::provider_events::logout_token::{LogoutEnds, LogoutTyp};

const NAME: &str = "^[a-z0-9-]{1,32}$";

/// A provider, with its keys that concern sign-ins.
type WithSignIn = (Arc<Provider>, SignInProviderSettings);

/// Each provider, and where its name is.
pub(super) fn providers(root: &mut Table<'_>) -> (Vec<WithSignIn>, Vec<Placed<Arc<Provider>>>) {
    let providers: Vec<_> = root.tables("provider", provider).into_iter().flatten().collect();
    for (index, Placed { value, place }) in providers.iter().enumerate() {
        let earlier = &providers[..index];
        let value = &value.0;
        let find = |same: &dyn Fn(&Provider) -> bool| earlier.iter().find(|first| same(&first.value.0));
        let (first, message, expected) = if let Some(first) = find(&|first| first.name == value.name) {
            (first, "two providers have the same name", "expected a different name")
        } else if let Some(first) =
            find(&|first| first.issuer == value.issuer && first.client.client_id == value.client.client_id)
        {
            (first, "two providers have the same issuer and the same client_id", "expected one of them")
        } else if let Some(first) = find(&|first| {
            let one = &*first.subject_prefix;
            let other = &*value.subject_prefix;
            one.starts_with(other) || other.starts_with(one)
        }) {
            let message = "one `subject_prefix` begins with another: two users could have the same subject";
            (first, message, "expected a different `subject_prefix`")
        } else {
            continue;
        };
        root.report().add(ConfigError::new(message, expected).related(&first.place, "first used here").at(place));
    }
    let place = |read: &Placed<WithSignIn>| Placed { value: read.value.0.clone(), place: read.place.clone() };
    let placed = providers.iter().map(place).collect();
    (providers.into_iter().map(|read| read.value).collect(), placed)
}

/// `None` if one of its keys is missing or wrong.
fn provider(table: &mut Table<'_>) -> Option<Placed<WithSignIn>> {
    let name = table.required("name", Shape::Pattern(NAME), "\"login\"").and_then(|value| value.parse(name));
    let issuer = table.required("issuer", Shape::URL, "\"https://login.example\"");
    let issuer = issuer.and_then(|value| value.string());
    let allow_http = table.boolean("allow_http", false);
    let ca_file = table.path("ca_file");
    if let Some(path) = &ca_file {
        table.accept("ca_file", pem::certificates(path));
    }
    let hosts = table.take("hosts", Shape::list(Shape::Text));
    table.default("hosts", Vec::<String>::new());
    let hosts = hosts.and_then(|value| value.list_of("[\"login.internal\"]", keys::host)).unwrap_or_default();
    let algorithms = algorithms(table);
    let prefix = table.take("subject_prefix", Shape::Text);
    if let Some(name) = name {
        table.default("subject_prefix", format!("{name}|"));
    }
    let prefix = prefix.map_or_else(|| name.map(|name| format!("{name}|")), |value| value.parse(subject_prefix));
    let sign_in = sign_in_keys::of_provider(table);
    if prefix.as_ref().is_some_and(|prefix| prefix.starts_with(CLIENT_SUBJECT_PREFIX)) {
        let error = ConfigError::new(
            format!("subjects that begin with {CLIENT_SUBJECT_PREFIX} are those of OAuth clients"),
            "expected another `subject_prefix`",
        );
        table.reject("subject_prefix", error);
    }
    let client = oauth_client::read(table, issuer.unwrap_or_default(), ca_file);
    let discovery = issuer.map(|issuer| SecureUrl::well_known(issuer, allow_http).map_err(keys::explain));
    let discovery = discovery.and_then(|urls| table.accept("issuer", urls));
    let typs = [("strict", LogoutTyp::Strict), ("lax", LogoutTyp::Lax)];
    let logout_typ = table.choice("logout_typ", LogoutTyp::Strict, &typs);
    let ends = [("session", LogoutEnds::Session), ("subject", LogoutEnds::Subject)];
    let logout_ends = table.choice("logout_ends", LogoutEnds::Session, &ends);
    let provider = Provider {
        name: name?.into(),
        issuer: issuer?.into(),
        client: client?,
        algorithms: algorithms?,
        subject_prefix: prefix?,
        logout_typ,
        logout_ends,
        discovery: discovery?,
        allow_http,
        hosts,
    };
    Some(Placed { value: (Arc::new(provider), sign_in), place: table.place("name") })
}

fn name(text: &str) -> Result<&str, ConfigError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=32).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text)
    } else {
        Err(ConfigError::new(
            "this name is not possible in a path",
            "expected 1 to 32 lower-case letters, digits or `-`",
        ))
    }
}

fn subject_prefix(text: &str) -> Result<String, ConfigError> {
    if text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::new(
            "this is not possible at the start of a subject",
            "expected at most 64 printable ASCII characters without spaces, or an empty string",
        ))
    }
}

/// A provider publishes its keys, so that HMAC is not possible: its public key would be the secret (CVE-2016-10555).
fn algorithms(table: &mut Table<'_>) -> Option<Vec<Algorithm>> {
    let example = "[\"RS256\"]";
    let public: Vec<_> = ALGORITHMS.iter().filter(|(_, algorithm)| !is_hmac(*algorithm)).copied().collect();
    let value = table.take("algorithms", Shape::some(Shape::choice(&public)));
    table.default("algorithms", ["RS256"].as_slice());
    let Some(value) = value else { return Some(vec![Algorithm::RS256]) };
    let algorithms = value.list_of(example, |text| choose(text, &public))?;
    if value.list(example)?.is_empty() {
        value.reject(ConfigError::new("the list is empty", format!("expected at least one, for example {example}")));
        return None;
    }
    Some(algorithms)
}
