//! `[[oauth.client]]`: clients that authenticate with a key of their own, or with a certificate.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::keyring::{KeyFile, KeySource, Location, OnStale, Remote, Startup};
use crate::auth::registered_clients::{ClientAuthorization, ClientProof, RegisteredClient};
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::units::format_duration;
use crate::config::sections::oauth_client_certificate::{self, Certificates, Method};
use crate::config::sections::placed::{Placed, report_duplicates};
use crate::config::sections::{issuer, keys, pem, rules};
use crate::config::settings::TokenSettings;
use crate::tokens::authorization::client_registration;
use crate::tokens::authorization::redirect_uri::{RedirectKind, RedirectUri};
use crate::tokens::family::Lifetimes;
use crate::tokens::jwt::{Algorithm, Issuer, client_assertion, is_hmac};
use crate::tokens::sign_in::place::SignInPlace;

/// A longer name would not fit into a subject.
const MAX_CLIENT_ID: usize = 200;

const ONE_SECOND: Duration = Duration::from_secs(1);
const ONE_MINUTE: Duration = Duration::from_mins(1);

/// `issuers`: all accepted issuers, the gateway itself first. `place`: where the users of other clients sign in.
pub(super) fn clients(
    table: &mut Table<'_>,
    tokens: &TokenSettings,
    possible: Certificates,
    issuers: &[String],
    place: Option<&SignInPlace>,
) -> Vec<RegisteredClient> {
    let clients = table.tables("client", |table| client(table, tokens, possible, issuers, place));
    let clients: Vec<_> = clients.into_iter().flatten().collect();
    let message = "two clients have the same client_id";
    report_duplicates(table.report(), &clients, message, "expected a different name", |client| &client.client_id);
    clients.into_iter().map(|client| client.value).collect()
}

/// `None` without a name or what it authenticates with. All other keys are checked anyway.
fn client(
    table: &mut Table<'_>,
    tokens: &TokenSettings,
    possible: Certificates,
    issuers: &[String],
    place: Option<&SignInPlace>,
) -> Option<Placed<RegisteredClient>> {
    let client_id = table.required("client_id", Shape::Pattern("^[ -9;-~]{1,200}$"), "\"ci\"");
    let client_id = client_id.and_then(|value| value.parse(|text| client_id_beside(text, issuers)));
    let (method, certificate) = oauth_client_certificate::read(table, possible);
    let has_keys = method == Method::Assertion;
    let source = source(table, has_keys);
    let algorithms = if has_keys { algorithms(table, source.as_ref()) } else { unused(table) };
    let has_certificate = matches!(method, Method::Named | Method::SelfSigned);
    let certificate_bound = certificate_bound(table, has_certificate, possible);
    if certificate_bound && method == Method::Nothing {
        let error = ConfigError::new(
            "tokens.certificate_bound says whether tokens of public clients are bound",
            "expected no `certificate_bound` with client_auth = \"none\"",
        );
        table.reject("certificate_bound", error.related(&table.place("client_auth"), "it does not authenticate"));
    }
    let client_credentials = client_credentials(table, method);
    let dpop_bound = table.boolean("dpop_bound_access_tokens", false);
    let authorization = authorization(table, method, place);
    let scopes = table.take("scopes", Shape::list(rules::SCOPE));
    table.default("scopes", Vec::<String>::new());
    let scopes = scopes.and_then(|value| value.list_of("[\"orders:read\"]", rules::scope)).unwrap_or_default();
    let audience = audience(table, tokens);
    let lifetime = lifetime(table, tokens.lifetimes.access);
    if !client_credentials {
        let asks_users = authorization.is_some();
        let unused = ["scopes", "audience", "lifetime"].into_iter().filter(|key| *key != "scopes" || !asks_users);
        for key in unused.filter(|key| table.has(key)) {
            let error = ConfigError::new(
                format!("`{key}` has no effect without `client_credentials`"),
                "expected client_credentials = true, or no such key",
            );
            table.reject(key, error.related(&table.place("client_credentials"), "it is off here"));
        }
    }
    let client_id = client_id?;
    let authentication = match method {
        Method::Assertion => {
            assertions(table, source?, client_assertion::policy(&client_id, algorithms?, vec![tokens.issuer.clone()]))
        }
        Method::Named | Method::SelfSigned => ClientProof::Certificate(certificate?),
        Method::Nothing => ClientProof::Nothing,
    };
    let value = RegisteredClient {
        client_id,
        authentication,
        certificate_bound,
        client_credentials,
        scopes,
        audience,
        lifetime,
        dpop_bound,
        authorization,
    };
    Some(Placed { value, place: table.place("client_id") })
}

fn assertions(table: &Table<'_>, source: Placed<KeySource>, policy: Issuer) -> ClientProof {
    if let KeySource::File(file) = &source.value
        && let Err(error) = keys::keys_match(file, &policy)
    {
        table.report().add(error.at(&source.place));
    }
    ClientProof::Assertion { policy, keys: source.value }
}

/// A client with a certificate gets tokens that are bound to it, unless the operator says otherwise.
fn certificate_bound(table: &mut Table<'_>, has_certificate: bool, possible: Certificates) -> bool {
    let is_bound = table.boolean("certificate_bound", has_certificate);
    if is_bound && !has_certificate && !possible.can_have {
        let error = ConfigError::new(
            "this client would get no tokens: no request would have a certificate",
            "expected a [[listener]] with client_certificate, or forwarding.client_certificate",
        );
        table.reject("certificate_bound", error);
    }
    is_bound
}

/// A client that does not authenticate gets no tokens for itself.
fn client_credentials(table: &mut Table<'_>, method: Method) -> bool {
    let authenticates = method != Method::Nothing;
    let is_on = table.boolean("client_credentials", authenticates);
    if is_on && !authenticates {
        let error = ConfigError::new(
            "everyone could get the tokens of a client that does not authenticate",
            "expected client_credentials = false",
        );
        table.reject("client_credentials", error.related(&table.place("client_auth"), "it does not authenticate"));
    }
    is_on && authenticates
}

/// `redirect_uris`, `sign_in`, `require_par` and `consent`: how the client asks users.
fn authorization(table: &mut Table<'_>, method: Method, place: Option<&SignInPlace>) -> Option<ClientAuthorization> {
    let example = "[\"https://app.example/callback\"]";
    let value = table.take("redirect_uris", Shape::list(Shape::Text));
    table.default("redirect_uris", Vec::<String>::new());
    let redirect_uris = value.and_then(|value| value.list_of(example, redirect_uri)).unwrap_or_default();
    let sign_in = sign_in(table, place);
    let must_push = table.boolean("require_par", false);
    let skips_consent = table.choice("consent", false, &[("always", false), ("never", true)]);
    if redirect_uris.is_empty() {
        if method == Method::Nothing && !table.has("redirect_uris") {
            let error = ConfigError::new("`redirect_uris` is missing", format!("expected `redirect_uris = {example}`"));
            table.reject("redirect_uris", error.help("a client with client_auth = \"none\" asks users").missing());
        }
        return None;
    }
    let other = redirect_uris.iter().find(|uri| uri.kind() != RedirectKind::Https);
    if skips_consent && let Some(other) = other {
        let error = ConfigError::new(
            format!("any program of the user's device gets what is sent to {}", other.as_str()),
            "expected consent = \"always\"",
        );
        table.reject("consent", error.help("only a site with https:// redirect_uris can go without consent"));
    }
    Some(ClientAuthorization { redirect_uris, skips_consent, sign_in, must_push })
}

/// `oauth.client.sign_in`: some of the providers of `oauth.sign_in`.
fn sign_in(table: &mut Table<'_>, place: Option<&SignInPlace>) -> Option<SignInPlace> {
    let value = table.take("sign_in", Shape::list(Shape::Text))?;
    let all: &[Arc<str>] = if let Some(SignInPlace::Providers(all)) = place { all } else { &[] };
    let find = |text: &str| {
        let found = all.iter().find(|name| ***name == *text).cloned();
        found.ok_or_else(|| {
            ConfigError::new(
                format!("users of clients do not sign in at `{text}`"),
                "expected a name that `sign_in` in [oauth] has",
            )
        })
    };
    value.some_of("[\"login\"]", find).map(SignInPlace::Providers)
}

fn redirect_uri(text: &str) -> Result<RedirectUri, ConfigError> {
    RedirectUri::parse(text).map_err(|error| {
        let expected = "expected https://, a loopback address such as http://127.0.0.1/callback, or a private scheme";
        ConfigError::new(format!("this is no redirect URI: {error}"), expected)
    })
}

/// `algorithms` of a client without keys.
fn unused(table: &mut Table<'_>) -> Option<Vec<Algorithm>> {
    table.take("algorithms", issuer::algorithms_shape());
    reject_keys(table, &["algorithms"]);
    None
}

fn reject_keys(table: &Table<'_>, keys: &[&str]) {
    for key in keys.iter().filter(|key| table.has(key)) {
        let error = ConfigError::new(
            format!("`{key}` has no effect for a client without keys"),
            "expected client_auth = \"private_key_jwt\", or no such key",
        );
        let help = "register its certificate by `certificate_name`, `certificate_file` or `certificate_sha256`";
        table.reject(key, error.related(&table.place("client_auth"), "set here").help(help));
    }
}

/// RFC 6749 appendix A.1, without the colon that ends it in the scheme Basic (RFC 7617).
pub(super) fn client_id(text: &str) -> Result<String, ConfigError> {
    if !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b':') {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::new(
            "this is not a client id",
            "expected printable ASCII characters without a colon, for example \"orders\"",
        ))
    }
}

/// With the name of an issuer, an assertion of the client and a token of the issuer would have the same `iss`.
fn client_id_beside(text: &str, issuers: &[String]) -> Result<String, ConfigError> {
    let client_id = client_id(text)?;
    if client_id.len() > MAX_CLIENT_ID {
        return Err(ConfigError::new("this client id is too long", format!("expected at most {MAX_CLIENT_ID} bytes")));
    }
    if client_id.starts_with(client_registration::PREFIX) {
        let error = ConfigError::new(
            "client ids like this are those of clients that register themselves",
            "expected another name",
        );
        return Err(error);
    }
    if issuers.contains(&client_id) {
        Err(ConfigError::new("an issuer has the same name", "expected a name that is no issuer"))
    } else {
        Ok(client_id)
    }
}

/// The public keys of the client: exactly one of three keys. `has_keys`: false if it has a certificate instead.
fn source(table: &mut Table<'_>, has_keys: bool) -> Option<Placed<KeySource>> {
    // All are read, even if the first is set: an unread key would be reported as unknown.
    let files = [
        ("jwks_file", table.path("jwks_file").map(KeyFile::Jwks)),
        ("pem_file", table.path("pem_file").map(KeyFile::Pem)),
    ];
    let allow_http = table.boolean("allow_http", false);
    let url = table.take("jwks_url", Shape::URL);
    let url = url.and_then(|value| value.parse(|text| keys::key_url(text, allow_http)));
    let ca_file = table.path("ca_file");
    if let Some(path) = &ca_file {
        table.accept("ca_file", pem::certificates(path));
    }
    if !has_keys {
        reject_keys(table, &["jwks_file", "pem_file", "jwks_url", "allow_http", "ca_file"]);
        return None;
    }
    let mut named = ["jwks_file", "pem_file", "jwks_url"].into_iter().filter(|key| table.has(key));
    let Some(key) = named.next() else {
        let error =
            ConfigError::new("this client has no keys", "expected `jwks_file`, `pem_file` or `jwks_url`").missing();
        table.reject("jwks_file", error);
        return None;
    };
    for other in named {
        let error = ConfigError::new("this client has two sources of keys", "expected one source");
        table.reject(other, error.related(&table.place(key), "the first source is here"));
    }
    if key != "jwks_url" {
        for other in ["allow_http", "ca_file"].into_iter().filter(|other| table.has(other)) {
            let error = ConfigError::new(format!("`{other}` has no effect without `jwks_url`"), "expected `jwks_url`");
            table.reject(other, error);
        }
    }
    let file = files.into_iter().find(|(file, _)| *file == key).and_then(|(_, file)| file).map(KeySource::File);
    let source = file.or_else(|| url.map(|url| remote(Location::Jwks(url), allow_http, ca_file)));
    source.map(|value| Placed { value, place: table.place(key) })
}

/// The times are the defaults of `[[issuer]]`. A start does not wait for a client.
fn remote(location: Location, allow_http: bool, ca_file: Option<std::path::PathBuf>) -> KeySource {
    KeySource::Remote(Box::new(Remote {
        location,
        allow_http,
        jwks_hosts: Vec::new(),
        ca_file,
        refresh: ONE_MINUTE..=15 * ONE_MINUTE,
        refetch_cooldown: Duration::from_secs(30),
        max_age: Duration::from_hours(24),
        on_stale: OnStale::Keep,
        startup: Startup::Continue,
    }))
}

/// Public keys only: who can verify with a shared secret can sign as the client.
fn algorithms(table: &mut Table<'_>, keys: Option<&Placed<KeySource>>) -> Option<Vec<Algorithm>> {
    let algorithms = issuer::algorithms(table, keys)?;
    if algorithms.iter().any(|algorithm| is_hmac(*algorithm)) {
        let error = ConfigError::new("HMAC uses a shared secret", "expected public-key algorithms");
        table.reject("algorithms", error.help("create a key pair for the client, and give its public key here"));
        return None;
    }
    Some(algorithms)
}

fn audience(table: &mut Table<'_>, tokens: &TokenSettings) -> Vec<String> {
    let value = table.take("audience", issuer::texts());
    let Some(audience) = value.as_ref().and_then(issuer::audience) else { return tokens.audience.clone() };
    if !audience.iter().any(|aud| tokens.audience.contains(aud) || tokens.resources.contains(aud)) {
        let error = ConfigError::new(
            "the gateway would reject these tokens",
            format!("expected one of tokens.audience, which is {}, or a route.resource", tokens.audience.join(", ")),
        );
        table.reject("audience", error);
    }
    audience
}

/// A token cannot live longer than the others of the gateway: revocations are remembered for as long.
fn lifetime(table: &mut Table<'_>, longest: Duration) -> Duration {
    let range = ONE_SECOND..=Lifetimes::MAX_ACCESS;
    let value = table.take("lifetime", Shape::Duration(range.clone()));
    let Some(lifetime) = value.and_then(|value| value.duration(range)) else { return longest };
    if lifetime > longest {
        let longest = format_duration(longest);
        let error = ConfigError::new(
            "this is longer than tokens.access_lifetime",
            format!("expected at most {longest}, which is tokens.access_lifetime"),
        );
        table.reject("lifetime", error);
    }
    lifetime
}
