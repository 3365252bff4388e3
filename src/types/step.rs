//! The steps of a decision, for `bearward explain`. A running gateway uses [`StepReporter::OFF`], which costs one
//! comparison a step.

/// A passed check. After a failed check, no further steps are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Certificate,
    Host,
    Path,
    Route,
    Token,
    Origin,
    Header,
    Issuer,
    Claims,
    Time,
    Key,
    Signature,
    Introspection,
    Revocation,
    Proof,
    Rules,
    /// At the authorization endpoint: who asks, where the code goes, and what for.
    Client,
    Redirect,
    Resource,
    Rate,
}

impl Step {
    pub const fn name(self) -> &'static str {
        match self {
            Step::Certificate => "certificate",
            Step::Host => "host",
            Step::Path => "path",
            Step::Route => "route",
            Step::Token => "token",
            Step::Origin => "origin",
            Step::Header => "header",
            Step::Issuer => "issuer",
            Step::Claims => "claims",
            Step::Time => "time",
            Step::Key => "key",
            Step::Signature => "signature",
            Step::Introspection => "introspection",
            Step::Revocation => "revocation",
            Step::Proof => "proof",
            Step::Rules => "rules",
            Step::Client => "client",
            Step::Redirect => "redirect",
            Step::Resource => "resource",
            Step::Rate => "rate",
        }
    }
}

/// Reports steps to a listener, if there is one.
#[derive(Clone, Copy)]
pub struct StepReporter<'a>(Option<&'a (dyn Fn(Step, String) + Sync)>);

impl<'a> StepReporter<'a> {
    pub const OFF: StepReporter<'static> = StepReporter(None);

    pub fn to(listener: &'a (dyn Fn(Step, String) + Sync)) -> Self {
        StepReporter(Some(listener))
    }

    /// Reports a step. `found` is called only if there is a listener. The text must not contain a token.
    pub fn report(self, step: Step, found: impl FnOnce() -> String) {
        if let Some(listener) = self.0 {
            listener(step, found());
        }
    }
}
