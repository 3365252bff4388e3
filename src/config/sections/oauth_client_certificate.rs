//! The keys of `[[oauth.client]]` about client certificates (RFC 8705): which one a client authenticates with.

use crate::auth::client_certificate::{ExpectedCertificate, ExpectedName};
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::pem;
use crate::protocols::tls::{Name, canonical_subject};
use crate::types::thumbprint::Thumbprint;

/// `client_auth`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Assertion,
    /// `tls_client_auth`
    Named,
    /// `self_signed_tls_client_auth`
    SelfSigned,
    /// `none`
    Nothing,
}

const METHODS: &[(&str, Method)] = &[
    ("private_key_jwt", Method::Assertion),
    ("tls_client_auth", Method::Named),
    ("self_signed_tls_client_auth", Method::SelfSigned),
    ("none", Method::Nothing),
];

/// An example of `certificate_sha256`.
const HASHES: &str = "[\"bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2\"]";

/// Which certificates requests can have.
#[derive(Clone, Copy)]
pub(super) struct Certificates {
    /// A listener asks for them, or a proxy names them.
    pub(super) can_have: bool,
    /// An authority of the operator has signed them.
    pub(super) can_verify: bool,
}

/// `client_auth`, and the certificate that goes with it: `None` in the second place for an assertion, and if a key is
/// missing or wrong.
pub(super) fn read(table: &mut Table<'_>, possible: Certificates) -> (Method, Option<ExpectedCertificate>) {
    let method = table.choice("client_auth", Method::Assertion, METHODS);
    let shape = Shape::Pattern("^(subject|dns|uri|ip|email):.+$");
    let name = table.take("certificate_name", shape).and_then(|value| value.parse(expected_name));
    let file = table.path("certificate_file");
    let of_file = file.and_then(|path| table.accept("certificate_file", pem::certificates(&path)));
    let shape = Shape::list(Shape::Pattern("^[A-Za-z0-9_-]{43}$"));
    let listed = table.take("certificate_sha256", shape);
    table.default("certificate_sha256", Vec::<String>::new());
    let has_certificate = table.has("certificate_file")
        || listed.as_ref().and_then(|value| value.list(HASHES)).is_some_and(|items| !items.is_empty());
    let listed = listed.and_then(|value| value.list_of(HASHES, sha256));
    reject_others(table, method, has_certificate);
    check_possible(table, method, possible);
    let expected = match method {
        Method::Assertion | Method::Nothing => None,
        Method::Named => name.map(ExpectedCertificate::Named),
        Method::SelfSigned => {
            let of_file = of_file.iter().flatten().map(|der| Thumbprint::of_certificate(der));
            let known: Vec<_> = of_file.chain(listed.unwrap_or_default()).collect();
            Some(ExpectedCertificate::OneOf(known)).filter(|known| *known != ExpectedCertificate::OneOf(Vec::new()))
        }
    };
    (method, expected)
}

/// A key of another method shows a misunderstanding of who the client is.
fn reject_others(table: &Table<'_>, method: Method, has_certificate: bool) {
    for (key, of) in [
        ("certificate_name", Method::Named),
        ("certificate_file", Method::SelfSigned),
        ("certificate_sha256", Method::SelfSigned),
    ] {
        if table.has(key) && method != of {
            let word = METHODS.iter().find(|(_, method)| *method == of).map_or("", |(word, _)| word);
            let error = ConfigError::new(
                format!("`{key}` has no effect with this `client_auth`"),
                format!("expected client_auth = \"{word}\", or no such key"),
            );
            table.reject(key, error);
        }
    }
    let (missing, expected) = match method {
        Method::Named if !table.has("certificate_name") => {
            ("this client has no name", "expected `certificate_name`, for example \"dns:orders.internal\"")
        }
        Method::SelfSigned if !has_certificate => {
            ("this client has no certificate", "expected `certificate_file` or `certificate_sha256`")
        }
        _ => return,
    };
    table.reject("client_auth", ConfigError::new(missing, expected));
}

fn check_possible(table: &Table<'_>, method: Method, possible: Certificates) {
    let (error, help) = match method {
        Method::Named if !possible.can_verify => (
            ConfigError::new(
                "no request would have a verified certificate",
                "expected a [[listener]] with client_certificate = \"optional\" or \"required\"",
            ),
            "add client_certificate and client_ca to a listener, or forwarding.client_certificate = \"verified\"",
        ),
        Method::SelfSigned if !possible.can_have => (
            ConfigError::new(
                "no request would have a certificate",
                "expected a [[listener]] with client_certificate = \"any\"",
            ),
            "add client_certificate to a listener, or forwarding.client_certificate",
        ),
        _ => return,
    };
    table.reject("client_auth", error.help(help));
}

fn expected_name(text: &str) -> Result<ExpectedName, ConfigError> {
    let read = match text.strip_prefix("subject:") {
        Some(subject) => canonical_subject(subject).map(ExpectedName::Subject),
        None => Name::parse(text).map(ExpectedName::Alternative),
    };
    let error = || {
        let expected = "expected \"dns:orders.internal\", \"subject:CN=orders,O=Example\" or the like";
        ConfigError::new(format!("\"{}\" is not a name of a client", text.escape_debug()), expected).help(
            "write subject:, dns:, uri:, ip: or email: before the name; a subject as RFC 4514 has it: \
             openssl x509 -noout -subject -nameopt RFC2253 -in client.pem",
        )
    };
    read.ok_or_else(error)
}

fn sha256(text: &str) -> Result<Thumbprint, ConfigError> {
    let error = || {
        let expected = "expected 43 characters of base64url, as in the claim x5t#S256";
        ConfigError::new("this is not the SHA-256 of a certificate", expected).help(
            "compute it: openssl x509 -in client.pem -outform DER | openssl dgst -sha256 -binary | \
             base64 | tr +/ -_ | tr -d =",
        )
    };
    Thumbprint::parse(text).ok_or_else(error)
}
