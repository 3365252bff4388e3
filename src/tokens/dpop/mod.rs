//! DPoP proofs (RFC 9449): a client shows with each request that it has the key which its token is bound to. No I/O.
//!
//! [`DpopProof`] reads what the client sent, [`CheckedProof`] says what the gateway knows of the request, too, and only
//! [`CheckedProof::verify`] makes a [`VerifiedProof`]. A verified proof is good once: `auth/proofs` remembers those
//! that were used.
//!
//! The cheap checks come first and the signature last: it costs ten times as much as the rest.

mod htu;
mod proof;
mod public_url;
mod window;

pub use htu::TargetUri;
pub use proof::{
    CheckedProof, DpopProof, Expected, KnownHeader, NonceCheck, PROOF_ALGORITHMS, VerifiedProof, access_token_hash,
};
pub use public_url::PublicUrl;
pub use window::{MAX_AGE, MAX_AHEAD};
