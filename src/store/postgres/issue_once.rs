//! A new family with an id that another call can have used.

use crate::store::api::IssuedOnce;
use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::Show;
use crate::store::postgres::issue::{Attempted, Issue};
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::session::Session;

pub(super) struct IssueOnce(pub(super) Issue);

impl Operation for IssueOnce {
    type Output = IssuedOnce;

    const KIND: OperationKind = OperationKind::Issue;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<IssuedOnce, QueryError> {
        let Self(issue) = self;
        match issue.attempt(shared, session).await? {
            Attempted::Written => Ok(IssuedOnce::Written(issue.family.clone())),
            Attempted::Void => Ok(IssuedOnce::Void),
            Attempted::Taken => {
                let taken = Show { id: issue.family.id }.run(shared, session).await?;
                let swept = || StoreError::new("the family with this id was swept meanwhile");
                // The caller takes it for theft.
                issue.call.check_theft(shared.timeout, || shared.was_paused())?;
                Ok(IssuedOnce::Taken(taken.ok_or_else(swept)?))
            }
        }
    }
}
