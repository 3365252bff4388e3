//! How a decision came about, told step by step, for `bearward explain`. A server tells nobody; that costs it a comparison.

/// A step that was passed. Those that follow one that was not are never told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
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
    Revocation,
    Rules,
}

impl Step {
    pub const fn name(self) -> &'static str {
        match self {
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
            Step::Revocation => "revocation",
            Step::Rules => "rules",
        }
    }
}

/// To whom it is told.
#[derive(Clone, Copy)]
pub struct Trace<'a>(Option<&'a (dyn Fn(Step, String) + Sync)>);

impl<'a> Trace<'a> {
    pub const OFF: Trace<'static> = Trace(None);

    pub fn to(listener: &'a (dyn Fn(Step, String) + Sync)) -> Self {
        Trace(Some(listener))
    }

    /// What was found is put into words only if somebody listens. No token is part of it.
    pub fn step(self, step: Step, found: impl FnOnce() -> String) {
        if let Some(listener) = self.0 {
            listener(step, found());
        }
    }
}
