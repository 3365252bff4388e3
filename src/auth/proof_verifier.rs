//! Verifies the proof of a request: the part of authentication that no cache may remember.

use http::HeaderValue;

use crate::auth::bearer::{BearerToken, TokenScheme};
use crate::auth::context::AuthContext;
use crate::auth::proofs::{OwnHosts, PresentedProof, ProofRule, Proofs, TokenBinding};
use crate::auth::token_cache::CachedToken;
use crate::tokens::bound::Bound;
use crate::tokens::dpop::{Expected, NonceCheck, VerifiedProof};
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;
use crate::types::thumbprint::Thumbprint;

/// What a client that asks for tokens has proved.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantProof {
    pub bound: Bound,
    /// The other gateways have not learned that it was used: [`ProofVerifier::use_up_everywhere`].
    unshared: Option<VerifiedProof>,
}

/// Verifies proofs, and remembers those that were used.
pub struct ProofVerifier {
    pub proofs: Proofs,
    /// The names of this gateway, for which clients make proofs.
    pub own_hosts: OwnHosts,
    /// `limits.used_proofs`
    pub max_used: usize,
}

impl ProofVerifier {
    /// The proof of the request, if its token needs one. It is good, and may have been used before.
    pub(super) async fn check(
        &self,
        known: &CachedToken,
        scheme: TokenScheme,
        context: &AuthContext<'_>,
    ) -> Result<Option<VerifiedProof>, Reject> {
        let certificate = known.token.bound_to_certificate;
        check_certificate(certificate, context)?;
        let rule = match context.proof {
            // A certificate keeps thieves away as well as a key does.
            ProofRule::Required if certificate.is_some() => ProofRule::IfBound,
            rule => rule,
        };
        let Some(binding) = rule.needs(scheme, known.binding())? else { return Ok(None) };
        // Without the request there is nothing to compare a proof with.
        let presented = context.presented.ok_or(Reason::ProofMissing)?;
        self.verify_proof(&presented, Some(binding), context).await.map(Some)
    }

    async fn verify_proof(
        &self,
        presented: &PresentedProof<'_>,
        binding: Option<&TokenBinding>,
        context: &AuthContext<'_>,
    ) -> Result<VerifiedProof, Reject> {
        let proof = presented.read(binding.and_then(TokenBinding::known_header))?;
        let known = |text: &str| {
            let nonce = self.proofs.nonces.as_ref()?.check(text, context.now)?;
            Some((nonce.made, nonce.is_old))
        };
        let nonce: Option<NonceCheck<'_>> = if self.proofs.nonces.is_some() { Some(&known) } else { None };
        let expected = Expected { nonce, ..presented.expected(binding, &self.own_hosts, context.now)? };
        let checked = proof.check(&expected).map_err(|reject| self.with_nonce(reject, context.now))?;
        // Public keys are no secret: with a stolen token, or without one where tokens are granted, each request could
        // cost a signature.
        context.payer.check(context.clock.uptime())?;
        let permit = context.signature_queue.next().await;
        let verified = checked.verify();
        permit.end().await;
        let verified = verified.inspect_err(|_| context.payer.count(context.clock.uptime()))?;
        if let Some(binding) = binding {
            binding.note_good(&proof);
        }
        context.steps.report(Step::Proof, || format!("valid, made at {}", UnixTime::from_secs(verified.issued)));
        Ok(verified)
    }

    /// What a client that asks for tokens has proved: its certificate, and its key, if it sends a proof. The tokens are
    /// then bound to the key (RFC 9449 section 5). The proof is used up at this process.
    pub async fn grant_proof(&self, context: &AuthContext<'_>) -> Result<GrantProof, Reject> {
        let certificate = context.presented.and_then(|presented| presented.certificate);
        let Some(presented) = context.presented.filter(PresentedProof::has_proof) else {
            return Ok(GrantProof { bound: Bound { key: None, certificate }, unshared: None });
        };
        let verified = self.verify_proof(&presented, None, context).await.map_err(of_grant)?;
        self.proofs.use_up_for_grant(&verified, self.max_used, context.now).map_err(of_grant)?;
        let unshared = if self.proofs.shared.is_some() { Some(verified) } else { None };
        Ok(GrantProof { bound: Bound { key: Some(verified.key), certificate }, unshared })
    }

    /// Uses the proof of a client that asks for tokens up at all gateways. Everyone can make a key, and a call of a
    /// stranger must write nothing to the store: call it when the client has shown who it is, or a code, a token or a
    /// password that is good, and before anything is granted.
    pub async fn use_up_everywhere(&self, proof: GrantProof, now: UnixTime) -> Result<(), Reject> {
        let Some(proof) = proof.unshared else { return Ok(()) };
        self.proofs.use_up_everywhere(&proof, now).await.map_err(of_grant)
    }

    /// As [`ProofVerifier::grant_proof`], for a refresh beside an access token. A token that is bound needs a proof of
    /// the same key, for this token, and the same certificate.
    pub(super) async fn refresh_proof(
        &self,
        token: &VerifiedToken,
        bearer: BearerToken<'_>,
        context: &AuthContext<'_>,
    ) -> Result<Bound, Reject> {
        check_certificate(token.bound_to_certificate, context).map_err(of_grant)?;
        let certificate = context.presented.and_then(|presented| presented.certificate);
        let binding = TokenBinding::of(token, bearer.text()?);
        let needed = ProofRule::IfBound.needs(bearer.scheme(), binding.as_deref()).map_err(of_grant)?;
        let Some(binding) = needed else { return Ok(Bound { key: None, certificate }) };
        let presented = context.presented.ok_or(Reason::ProofMissing)?;
        let verified = self.verify_proof(&presented, Some(binding), context).await.map_err(of_grant)?;
        self.proofs.use_up(&verified, self.max_used, context.clock.now()).await.map_err(of_grant)?;
        Ok(Bound { key: Some(verified.key), certificate })
    }

    /// Uses the proof of a request up. Call it last, when nothing else can reject the request.
    pub async fn use_up(&self, proof: Option<&VerifiedProof>, now: UnixTime) -> Result<(), Reject> {
        match proof {
            None => Ok(()),
            Some(proof) => self.proofs.use_up(proof, self.max_used, now).await,
        }
    }

    /// Returns the nonce that the client should use next, if that of its proof will soon be too old.
    pub fn next_nonce(&self, proof: &VerifiedProof, now: UnixTime) -> Option<HeaderValue> {
        let nonces = self.proofs.nonces.as_ref()?;
        proof.has_old_nonce.then(|| nonces.current(now))
    }

    /// A client without a good nonce gets one (RFC 9449 sections 8 and 9).
    fn with_nonce(&self, reject: Reject, now: UnixTime) -> Reject {
        match &self.proofs.nonces {
            Some(nonces) if reject.reason == Reason::ProofNonce => reject.with_dpop_nonce(Some(nonces.current(now))),
            _ => reject,
        }
    }
}

impl GrantProof {
    /// Returns true if the other gateways have to learn that the proof was used.
    pub fn is_unshared(&self) -> bool {
        self.unshared.is_some()
    }
}

/// RFC 8705 section 3: the certificate beside a token must be the one that it is bound to, on every request. A renewed
/// certificate ends its tokens (section 6.3).
fn check_certificate(bound: Option<Thumbprint>, context: &AuthContext<'_>) -> Result<(), Reject> {
    if context.proof == ProofRule::Off {
        return Ok(());
    }
    let Some(bound) = bound else { return Ok(()) };
    let other = |detail| Err(Reject::new(Reason::CertificateOther, detail));
    match context.presented.and_then(|presented| presented.certificate) {
        Some(shown) if shown == bound => {
            context.steps.report(Step::Proof, || "the certificate of cnf".to_owned());
            Ok(())
        }
        Some(shown) => other(format!("the client has shown {shown}")),
        None => other("the client has shown no certificate".to_owned()),
    }
}

/// RFC 9449 section 5: where tokens are granted, a bad proof gets 400, and so does another certificate. Many clients
/// refresh again on any 401.
fn of_grant(reject: Reject) -> Reject {
    if reject.reason == Reason::CertificateOther {
        return Reject::new(Reason::GrantCertificate, reject.detail);
    }
    if !reject.reason.is_about_proof() {
        return reject;
    }
    let described = reject.message().to_owned();
    let detail = match &*reject.detail {
        "" => reject.reason.code().to_owned(),
        detail => format!("{}: {detail}", reject.reason.code()),
    };
    let reason = if reject.reason == Reason::ProofNonce { Reason::NonceRejected } else { Reason::ProofRejected };
    Reject::new(reason, detail).described(described).with_dpop_nonce(reject.dpop_nonce().cloned())
}
