//! Access tokens: from bytes, keys and a time to a [`VerifiedToken`], or to the reason for the rejection. No I/O.
//!
//! `auth/bearer/` finds the one token of a request. [`verify()`](verify::verify) reads header and claims strictly
//! ([`json`]), applies the settings of the issuer and checks the signature last ([`jws`], [`key_set`]), because the
//! signature costs fifty times as much as the rest. [`sign`] creates the tokens of this gateway, [`replacement`] the
//! tokens that replace those of other issuers. [`introspected`] judges what an
//! introspection endpoint says about a token. `jwk`, `pem` and `key_material` decide which keys are safe to use, when
//! the keys are loaded.
//!
//! jsonwebtoken is used for keys and signatures only. Its claim checks are lax by default (no `nbf`, no `typ`, no
//! `crit`, 60 s of clock skew, missing `iss` and `aud` are accepted), and it reads the clock itself.

mod algorithm;
mod audience;
mod base64url;
pub mod client_assertion;
mod confirmation;
mod der;
pub mod introspected;
mod issuer;
pub mod json;
mod jwk;
pub mod jws;
mod key;
mod key_error;
mod key_material;
pub mod key_set;
mod pem;
pub mod pointer;
mod proof_key;
mod public_key;
pub mod replacement;
mod roca;
pub mod sign;
pub mod signed;
mod verified_token;
pub mod verify;

pub use algorithm::{ALGORITHMS, Algorithm, algorithm_name, algorithm_named, is_hmac};
pub use audience::NeededAudience;
pub(crate) use base64url::decode_segment;
pub use issuer::{Audience, Confirmation, Issuer};
pub use key::Key;
pub use key_error::{KeyError, KeySetError};
pub use proof_key::ProofKey;
pub use public_key::PublicKey;
pub use verified_token::{LogMembers, SignedInAt, Validity, VerifiedToken};
