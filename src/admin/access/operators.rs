//! Who calls the admin API, and what they may do.

use std::fmt;
use std::sync::Arc;

use crate::types::secret::{self, Secret};

/// `admin.operator.role`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads, and explains requests.
    View,
    /// Also issues, revokes, rotates and reloads.
    Operate,
}

impl Role {
    pub const fn name(self) -> &'static str {
        match self {
            Role::View => "view",
            Role::Operate => "operate",
        }
    }
}

/// The name stands in the audit events of what the operator changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    pub name: Arc<str>,
    pub role: Role,
}

impl Operator {
    /// A process on the Unix socket.
    pub(crate) fn local() -> Self {
        Operator { name: "local".into(), role: Role::Operate }
    }
}

/// An operator with a token. Only the digest of the token is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    operator: Operator,
    digest: [u8; 32],
}

impl Access {
    pub fn new(operator: Operator, token: &[u8]) -> Self {
        Access { operator, digest: secret::digest(&[token]) }
    }

    /// The name must differ from that of every other operator.
    pub fn name(&self) -> &str {
        &self.operator.name
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operator.fmt(f)
    }
}

/// All operators.
pub struct Operators(Vec<(Operator, Secret)>);

impl Operators {
    pub fn new(admin_token: &Secret, others: &[Access]) -> Self {
        // Who has the token in `admin.token_file`.
        let admin = Access::new(Operator { name: "admin".into(), role: Role::Operate }, admin_token.expose());
        let all = std::iter::once(&admin).chain(others);
        Operators(all.map(|access| (access.operator.clone(), Secret::new(access.digest.to_vec()))).collect())
    }

    /// Who has this token. Takes the same time for each token.
    pub(crate) fn find(&self, token: &[u8]) -> Option<&Operator> {
        let digest = secret::digest(&[token]);
        self.0.iter().fold(None, |found, (operator, known)| if known.matches(&digest) { Some(operator) } else { found })
    }
}
