//! The signature algorithms of tokens (RFC 7518, RFC 8037) and their JOSE names.

pub use jsonwebtoken::Algorithm;

/// The supported algorithms with their JOSE names.
pub const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("HS256", Algorithm::HS256),
    ("HS384", Algorithm::HS384),
    ("HS512", Algorithm::HS512),
];

pub fn algorithm_named(name: &str) -> Option<Algorithm> {
    ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
}

pub fn algorithm_name(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.iter().find(|(_, known)| *known == algorithm).map_or("?", |(name, _)| name)
}

/// The names, separated by commas.
pub(super) fn algorithm_names(algorithms: &[Algorithm]) -> String {
    algorithms.iter().map(|algorithm| algorithm_name(*algorithm)).collect::<Vec<_>>().join(", ")
}

/// Returns true if the algorithm uses a shared secret: a service that can verify such a token can also create one.
pub fn is_hmac(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}
