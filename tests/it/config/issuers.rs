//! `[[issuer]]`: wrong names, algorithms and sources of keys.

use super::check;

/// The rest of an issuer. `Cargo.toml` stands for any existing file.
macro_rules! issuer {
    ($rest:literal) => {
        concat!("[[issuer]]\nissuer = \"https://a\"\naudience = [\"b\"]\n", $rest)
    };
}

#[test]
fn issuers_are_checked() {
    check(&[
        (
            "[[issuer]]\naudience = [\"b\"]\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]",
            "issuer[0].issuer",
            (1, 1),
            "`issuer` is missing",
        ),
        (
            "[[issuer]]\nissuer = \"a b\"\naudience = [\"b\"]\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]",
            "issuer[0].issuer",
            (2, 10),
            "byte for byte",
        ),
        (
            "[[issuer]]\nissuer = \"a\"\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]",
            "issuer[0].audience",
            (1, 1),
            "`audience` is missing",
        ),
        (issuer!("algorithms = [\"ES256\"]"), "issuer[0].jwks_file", (1, 1), "no source of keys"),
        (issuer!("secret_file = \"Cargo.toml\""), "issuer[0].algorithms", (1, 1), "`algorithms` is missing"),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = []"),
            "issuer[0].algorithms",
            (5, 14),
            "at least one algorithm",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"none\"]"),
            "issuer[0].algorithms[0]",
            (5, 15),
            "unsigned tokens",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS512\", \"HS25\"]"),
            "issuer[0].algorithms[1]",
            (5, 24),
            "did you mean \"HS256\"?",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\", \"RS256\"]"),
            "issuer[0].algorithms",
            (5, 14),
            "mixed",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"RS256\"]"),
            "issuer[0].algorithms",
            (5, 14),
            "need a public key",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]\ntypes = []"),
            "issuer[0].types",
            (6, 9),
            "list is empty",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]\nclock_skew = \"10m\""),
            "issuer[0].clock_skew",
            (6, 14),
            "to 5m",
        ),
        (
            issuer!("jwks_file = \"no.json\"\nalgorithms = [\"ES256\"]"),
            "issuer[0].jwks_file",
            (4, 13),
            "no.json does not exist",
        ),
        (
            issuer!("jwks_file = \"Cargo.toml\"\nalgorithms = [\"ES256\"]"),
            "issuer[0].jwks_file",
            (4, 13),
            "is not JSON",
        ),
        (
            issuer!("pem_file = \"Cargo.toml\"\nalgorithms = [\"ES256\"]"),
            "issuer[0].pem_file",
            (4, 12),
            "not a PEM public key",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]\n[tokens]\nissuer = \"https://a\""),
            "issuer[0].issuer",
            (2, 10),
            "the issuer of the gateway itself",
        ),
        (
            "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]\n\
          [[issuer]]\nissuer = \"a\"\naudience = [\"c\"]\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]",
            "issuer[1].issuer",
            (7, 10),
            "two issuers have the name \"a\"",
        ),
    ]);
}
