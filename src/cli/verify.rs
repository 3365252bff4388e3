//! `bearward verify`: checks a token against the keys in a file, with the code of the gateway.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::config_argument::ConfigArgument;
use super::error::{Cause, CommandError};
use super::output::say;
use super::report::{self, TimeArguments, read_token};
use crate::app::explain::policies;
use crate::config::Probe;
use crate::gateway::explanation;
use crate::tokens::jwt::jws::verify_signature;
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::verify::{TrustedIssuer, verify};
use crate::tokens::jwt::{ALGORITHMS, Algorithm, Validity, algorithm_named};
use crate::types::regular_file;
use crate::types::reject::Reject;
use crate::types::step::{Step, StepReporter};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A JSON Web Key Set. Its keys must meet the same rules as those of an issuer.
    #[arg(long, value_name = "FILE")]
    jwks: PathBuf,
    /// The allowed algorithms, needed for keys that do not name theirs. Can be repeated. Default: all.
    #[arg(long = "algorithm", value_name = "NAME", value_parser = algorithm)]
    algorithms: Vec<Algorithm>,
    /// Check the claims too, by the rules that the configuration has for the token's issuer.
    #[arg(long)]
    claims: bool,
    #[command(flatten)]
    config: ConfigArgument,
    #[command(flatten)]
    time: TimeArguments,
    /// Print the steps and the decision as JSON.
    #[arg(long)]
    json: bool,
}

/// Reads a compact JWS from standard input. Exit status 0 if it is valid, 1 if not, 2 if there are no keys.
pub(super) fn run(arguments: Arguments) -> Result<(), CommandError> {
    let jwks = regular_file::read_to_string(&arguments.jwks).map_err(|error| jwks_error(&arguments, error))?;
    let checker = if arguments.claims {
        Checker::Claims(issuers(&arguments, &jwks)?)
    } else {
        Checker::Signature(keys(&arguments, &jwks)?)
    };
    let token = read_token()?;
    let (steps, result) = checker.check(&token, &arguments.time);
    if arguments.json {
        let decision = if result.is_ok() { "valid" } else { "rejected" };
        say!("{}", explanation::to_json(&steps, decision, result.as_ref().err()));
    } else {
        report::print_steps(&steps);
        match &result {
            Ok(()) => report::print_decision("valid"),
            Err(reject) => report::print_decision(&format!("rejected: {}", report::describe(reject))),
        }
    }
    result.map_err(|_| CommandError::Negative)
}

enum Checker {
    Signature(KeySet),
    Claims(Vec<TrustedIssuer>),
}

impl Checker {
    fn check(&self, token: &str, time: &TimeArguments) -> (Vec<(Step, String)>, Result<(), Reject>) {
        let steps = Mutex::new(Vec::new());
        let listener = |step, result| steps.lock().push((step, result));
        let reporter = StepReporter::to(&listener);
        let result = match self {
            Checker::Signature(keys) => verify_signature(token, keys, reporter).map(drop),
            Checker::Claims(issuers) => verify(token, issuers, time.clock().now(), Validity::Live, reporter).map(drop),
        };
        (steps.into_inner(), result)
    }
}

fn keys(arguments: &Arguments, jwks: &str) -> Result<KeySet, CommandError> {
    let all: Vec<Algorithm> = ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).collect();
    let allowed = if arguments.algorithms.is_empty() { &all } else { &arguments.algorithms };
    KeySet::from_jwks(jwks, allowed).map_err(|error| jwks_error(arguments, error))
}

/// Every issuer of the configuration, with those of these keys that its algorithms allow.
fn issuers(arguments: &Arguments, jwks: &str) -> Result<Vec<TrustedIssuer>, CommandError> {
    let config = arguments.config.load(Probe::None)?;
    let mut last_error = None;
    let mut keys_of = |algorithms: &[Algorithm]| match KeySet::from_jwks(jwks, algorithms) {
        Ok(keys) => keys,
        Err(error) => {
            last_error = Some(error);
            KeySet::default()
        }
    };
    let issuers = policies(&config).into_iter().map(|policy| {
        let keys = Arc::new(keys_of(&policy.algorithms));
        TrustedIssuer { policy: Arc::new(policy), keys }
    });
    let issuers: Vec<TrustedIssuer> = issuers.collect();
    match last_error {
        Some(error) if issuers.iter().all(|issuer| issuer.keys.is_empty()) => Err(jwks_error(arguments, error)),
        _ => Ok(issuers),
    }
}

fn jwks_error(arguments: &Arguments, error: impl Into<Cause>) -> CommandError {
    CommandError::invalid(format!("cannot use --jwks {}: {}", arguments.jwks.display(), error.into()))
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    let names = || ALGORITHMS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    algorithm_named(name).ok_or_else(|| format!("expected one of {}", names()))
}
