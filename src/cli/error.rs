//! Errors of a command, and the exit status of each.

use std::error::Error;
use std::process::ExitCode;

use crate::types::reject::with_causes;

pub(super) type Cause = Box<dyn Error + Send + Sync>;

pub(super) enum CommandError {
    /// Exit status 1: the command failed while it ran.
    Failed(Cause),
    /// Exit status 1: the result is negative, and the command has printed it.
    Negative,
    /// Exit status 3: the result is not known, and the command has printed why.
    Unknown,
    /// Exit status 2: the configuration or an argument cannot be used.
    Invalid(Cause),
    /// Exit status 2: this report is printed as it is.
    Report(String),
}

impl<E: Error + Send + Sync + 'static> From<E> for CommandError {
    fn from(error: E) -> Self {
        CommandError::Failed(error.into())
    }
}

impl CommandError {
    pub(super) fn failed(error: impl Into<Cause>) -> Self {
        CommandError::Failed(error.into())
    }

    pub(super) fn invalid(error: impl Into<Cause>) -> Self {
        CommandError::Invalid(error.into())
    }

    /// Prints the error to standard error.
    pub(super) fn print(&self) -> ExitCode {
        match self {
            CommandError::Failed(error) | CommandError::Invalid(error) => eprintln!("error: {}", with_causes(&**error)),
            CommandError::Negative | CommandError::Unknown => {}
            CommandError::Report(report) => eprint!("{report}"),
        }
        match self {
            CommandError::Failed(_) | CommandError::Negative => ExitCode::from(1),
            CommandError::Invalid(_) | CommandError::Report(_) => ExitCode::from(2),
            CommandError::Unknown => ExitCode::from(3),
        }
    }
}
