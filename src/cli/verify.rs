//! `bearward verify`: is this token signed by one of these keys? By the code of the server.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::report::{self, TimeArguments, read_token};
use super::{ConfigArgument, Failed, load, wrong};
use crate::app::explain::policies;
use crate::config::Probe;
use crate::tokens::jwt::jws::verify_signature;
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::verify::{TrustedIssuer, verify};
use crate::tokens::jwt::{ALGORITHMS, Algorithm, Validity, algorithm_named};
use crate::types::reject::Reject;
use crate::types::trace::{Step, Trace};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A JSON Web Key Set. Keys are admitted as the server admits them.
    #[arg(long, value_name = "FILE")]
    jwks: PathBuf,
    /// The algorithms that the keys may be for, for a key that does not say it itself. Left out, any.
    #[arg(long = "algorithm", value_name = "NAME", value_parser = algorithm)]
    algorithms: Vec<Algorithm>,
    /// Check the claims too, on the terms that the configuration has for the token's issuer.
    #[arg(long)]
    claims: bool,
    #[command(flatten)]
    config: ConfigArgument,
    #[command(flatten)]
    when: TimeArguments,
    /// The steps and the verdict as JSON.
    #[arg(long)]
    json: bool,
}

/// Reads a compact JWS from standard input. Exit status 0 if it holds, 1 if not, 2 if there are no keys to check it with.
pub(super) fn run(arguments: Arguments) -> Result<(), Failed> {
    let jwks = fs::read_to_string(&arguments.jwks);
    let jwks = jwks.map_err(|error| wrong(format!("{}: {error}", arguments.jwks.display())))?;
    let checker = match arguments.claims {
        true => Checker::Claims(issuers(&arguments, &jwks)?),
        false => Checker::Signature(keys(&arguments, &jwks)?),
    };
    let token = read_token()?;
    let (steps, verdict) = checker.check(&token, &arguments.when);
    if arguments.json {
        let decision = if verdict.is_ok() { "good" } else { "refused" };
        println!("{}", report::as_json(&steps, decision, verdict.as_ref().err()));
    } else {
        report::print_steps(&steps);
        match &verdict {
            Ok(()) => report::print_decision("good"),
            Err(reject) => report::print_decision(&format!("refused: {}", report::refusal(reject))),
        }
    }
    verdict.map_err(|_| Failed::Answered)
}

enum Checker {
    Signature(KeySet),
    Claims(Vec<TrustedIssuer>),
}

impl Checker {
    fn check(&self, token: &str, when: &TimeArguments) -> (Vec<(Step, String)>, Result<(), Reject>) {
        let steps = Mutex::new(Vec::new());
        let listener = |step, found| steps.lock().unwrap_or_else(PoisonError::into_inner).push((step, found));
        let trace = Trace::to(&listener);
        let verdict = match self {
            Checker::Signature(keys) => verify_signature(token, keys, trace).map(drop),
            Checker::Claims(issuers) => verify(token, issuers, when.clock().now(), Validity::Live, trace).map(drop),
        };
        (steps.into_inner().unwrap_or_else(PoisonError::into_inner), verdict)
    }
}

fn keys(arguments: &Arguments, jwks: &str) -> Result<KeySet, Failed> {
    let all: Vec<Algorithm> = ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect();
    let allowed = if arguments.algorithms.is_empty() { &all } else { &arguments.algorithms };
    KeySet::from_jwks(jwks, allowed).map_err(|fault| wrong(format!("{}: {fault}", arguments.jwks.display())))
}

/// Every issuer of the configuration with these keys, as far as its algorithms can use them.
fn issuers(arguments: &Arguments, jwks: &str) -> Result<Vec<TrustedIssuer>, Failed> {
    let config = load(&arguments.config.file, Probe::None)?;
    let mut fault = None;
    let issuers: Vec<TrustedIssuer> = policies(&config)
        .into_iter()
        .map(|policy| {
            let keys = KeySet::from_jwks(jwks, &policy.algorithms).map_err(|why| fault = Some(why)).unwrap_or_default();
            TrustedIssuer { policy: Arc::new(policy), keys: Arc::new(keys) }
        })
        .collect();
    match fault {
        Some(fault) if issuers.iter().all(|issuer| issuer.keys.is_empty()) => {
            Err(wrong(format!("{}: {fault}", arguments.jwks.display())))
        }
        _ => Ok(issuers),
    }
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    let names = || ALGORITHMS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    algorithm_named(name).ok_or_else(|| format!("expected one of {}", names()))
}
