//! Keys for the gateway as a client of the OAuth endpoints of another server: the same keys in each table that has such
//! endpoints.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::oauth_client::{AssertionKey, ClientAuthentication, OAuthClient};
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::choose;
use crate::config::sections::{client_certificate, files, pem};
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::sign::{SIGNING, SigningKey};
use crate::tokens::jwt::{Algorithm, algorithm_name};
use crate::types::secret::Secret;

/// `client_auth`, by the names of RFC 8414.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    Public,
    SecretBasic,
    SecretPost,
    Assertion,
    Certificate,
}

const METHODS: &[(&str, Method)] = &[
    ("client_secret_basic", Method::SecretBasic),
    ("client_secret_post", Method::SecretPost),
    ("private_key_jwt", Method::Assertion),
    ("tls_client_auth", Method::Certificate),
    ("none", Method::Public),
];

/// The keys of each method.
const SECRET: &str = "client_secret_file";
const ASSERTION: [&str; 3] = ["assertion_key_file", "assertion_algorithm", "assertion_key_id"];
const CERTIFICATE: [&str; 2] = ["client_certificate", "client_key"];

/// The client, as far as the table describes one. `issuer`: of the server, for assertions. `ca_file`: the certificates
/// that its endpoints need. `None` if a key is missing or wrong.
pub(super) fn read(table: &mut Table<'_>, issuer: &str, ca_file: Option<PathBuf>) -> Option<OAuthClient> {
    let client_id = table.required("client_id", Shape::Pattern("^[ -~]+$"), "\"bearward\"");
    let client_id = client_id.and_then(|value| value.parse(client_id_of));
    let method = table.choice("client_auth", Method::SecretBasic, METHODS);
    let secret = table.path(SECRET).and_then(|path| table.accept(SECRET, client_secret(&path)));
    let assertion = assertion_key(table);
    let certificate = client_certificate::read(table);
    let minimum = Duration::from_millis(100);
    let maximum = Duration::from_mins(1);
    let time_limit = table.duration("client_timeout", Duration::from_secs(5), minimum..=maximum);
    reject_others(table, method);
    let authentication = match method {
        Method::Public => Some(ClientAuthentication::Public),
        Method::SecretBasic => secret.map(ClientAuthentication::SecretBasic),
        Method::SecretPost => secret.map(ClientAuthentication::SecretPost),
        Method::Assertion => assertion.map(ClientAuthentication::Assertion),
        Method::Certificate => certificate.map(ClientAuthentication::Certificate),
    };
    Some(OAuthClient::new(client_id?, authentication?, issuer.to_owned(), ca_file, time_limit))
}

/// `key`: that of the endpoint. Without TLS there is no certificate, and the server would not know who calls.
pub(super) fn check_certificate(table: &Table<'_>, key: &str, client: Option<&OAuthClient>, url: Option<&SecureUrl>) {
    let (Some(client), Some(url)) = (client, url) else { return };
    if matches!(client.authentication, ClientAuthentication::Certificate(_)) && !url.tls {
        let error = ConfigError::new("a certificate cannot be shown by http://", "expected https://");
        table.reject(key, error.related(&table.place("client_auth"), "the gateway identifies itself in the handshake"));
    }
}

/// Of an endpoint for which requests wait.
pub(super) fn consecutive_timeouts(table: &mut Table<'_>) -> usize {
    table.integer("consecutive_timeouts", 3, 0..=1000)
}

/// RFC 6749 appendix A.1.
fn client_id_of(text: &str) -> Result<String, ConfigError> {
    if !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::new("this is not a client id", "expected printable ASCII characters")
            .help("write the client id that the provider shows for the registration of this gateway"))
    }
}

/// The content of the file without white space at its end. Providers choose it, so that no length is required.
fn client_secret(path: &std::path::Path) -> Result<Arc<Secret>, ConfigError> {
    let contents = files::secret_contents(path)?;
    let secret = contents.trim_ascii_end();
    let is_text = str::from_utf8(secret).is_ok_and(|text| !text.chars().any(char::is_control));
    if !secret.is_empty() && is_text {
        Ok(Arc::new(Secret::new(secret.to_vec())))
    } else {
        Err(ConfigError::new(
            format!("{} does not have one line of text", path.display()),
            "expected a file with the client secret",
        ))
    }
}

fn assertion_key(table: &mut Table<'_>) -> Option<AssertionKey> {
    let path = table.path("assertion_key_file");
    let algorithms: Vec<_> = SIGNING.iter().map(|algorithm| (algorithm_name(*algorithm), *algorithm)).collect();
    let algorithm = table.take("assertion_algorithm", Shape::choice(&algorithms));
    table.default("assertion_algorithm", "ES256");
    let algorithm = algorithm.map_or(Some(Algorithm::ES256), |value| value.parse(|text| choose(text, &algorithms)))?;
    let kid = table.take("assertion_key_id", Shape::Text).and_then(|value| value.string().map(str::to_owned));
    let path = path?;
    table.accept("assertion_key_file", pem::signing_key(&path, algorithm))?;
    let read = |contents: Vec<u8>| {
        SigningKey::from_pem(&contents, algorithm)
            .map_err(|error| ConfigError::new(error.to_string(), "expected a key"))
    };
    let key = table.accept("assertion_key_file", files::secret_contents(&path).and_then(read))?;
    let kid = kid.unwrap_or_else(|| key.kid.clone());
    Some(AssertionKey { key: Arc::new(key), kid })
}

/// A key of another method has no effect, and the operator expects one. The key of the chosen method is required.
fn reject_others(table: &Table<'_>, method: Method) {
    let needed = match method {
        Method::SecretBasic | Method::SecretPost => Some(SECRET),
        Method::Assertion => Some(ASSERTION[0]),
        Method::Certificate => Some(CERTIFICATE[0]),
        Method::Public => None,
    };
    if let Some(needed) = needed.filter(|needed| !table.has(needed)) {
        let error = ConfigError::new(format!("`{needed}` is missing"), format!("expected `{needed}` in this table"));
        let help = "or set `client_auth`: \"private_key_jwt\", \"tls_client_auth\" or \"none\" need no secret";
        table.reject(needed, if needed == SECRET { error.help(help) } else { error }.missing());
    }
    let is_of_secret = matches!(method, Method::SecretBasic | Method::SecretPost);
    let others = [
        (is_of_secret, &[SECRET][..]),
        (method == Method::Assertion, &ASSERTION[..]),
        (method == Method::Certificate, &CERTIFICATE[..]),
    ];
    for key in others.iter().filter(|(is_chosen, _)| !is_chosen).flat_map(|(_, keys)| *keys) {
        if table.has(key) {
            let error =
                ConfigError::new(format!("`{key}` has no effect with this `client_auth`"), "expected one method");
            table.reject(key, error.help(format!("change `client_auth`, or remove `{key}`")));
        }
    }
}
