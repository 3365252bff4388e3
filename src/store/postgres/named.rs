//! Statements with named parameters.
//!
//! PostgreSQL knows parameters by their numbers only. A reader of a statement with thirty of them cannot check which
//! value is which, so that such a statement numbers itself.

use tokio_postgres::Row;

use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::session::{Param, Session};

/// A statement with parameters such as `:subject`.
pub(super) struct NamedStatement {
    /// With `$1` in place of the first name, and so on.
    sql: String,
    names: Vec<&'static str>,
}

/// Values, by the names of their parameters.
#[derive(Default)]
pub(super) struct NamedValues(Vec<(&'static str, Box<dyn Param + Send>)>);

impl NamedValues {
    pub(super) fn with(mut self, name: &'static str, value: impl Param + Send + 'static) -> Self {
        self.0.push((name, Box::new(value)));
        self
    }
}

impl NamedStatement {
    /// Numbers the names in the order in which they first appear. `::` is a cast, as everywhere in PostgreSQL.
    pub(super) fn new(text: &'static str) -> Self {
        let mut sql = String::with_capacity(text.len());
        let mut names = Vec::new();
        let mut pieces = text.split(':');
        sql.push_str(pieces.next().unwrap_or_default());
        let mut is_cast = false;
        for piece in pieces {
            let end = piece.find(|symbol: char| symbol != '_' && !symbol.is_ascii_lowercase()).unwrap_or(piece.len());
            let (name, rest) = piece.split_at(end);
            if is_cast || name.is_empty() {
                sql.push(':');
                sql.push_str(piece);
                is_cast = !is_cast && piece.is_empty();
                continue;
            }
            let known = names.iter().position(|known| *known == name);
            let place = known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            sql.push_str(&format!("${}", place + 1));
            sql.push_str(rest);
        }
        NamedStatement { sql, names }
    }

    /// The values in the order of their numbers.
    ///
    /// # Errors
    /// If a parameter has no value, or a value no parameter.
    fn in_order<'v>(&self, values: &'v NamedValues) -> Result<Vec<&'v dyn Param>, StoreError> {
        if let Some((unknown, _)) = values.0.iter().find(|(name, _)| !self.names.contains(name)) {
            return Err(StoreError::new(format!("a statement has no parameter :{unknown}")));
        }
        let mut ordered: Vec<&dyn Param> = Vec::with_capacity(self.names.len());
        for wanted in &self.names {
            let Some((_, value)) = values.0.iter().find(|(name, _)| name == wanted) else {
                return Err(StoreError::new(format!("the parameter :{wanted} of a statement has no value")));
            };
            ordered.push(&**value);
        }
        Ok(ordered)
    }
}

impl Session {
    pub(super) async fn query_named(
        &self,
        statement: &'static NamedStatement,
        values: &NamedValues,
    ) -> Result<Vec<Row>, QueryError> {
        self.query(&statement.sql, &statement.in_order(values)?).await
    }

    pub(super) async fn query_named_opt(
        &self,
        statement: &'static NamedStatement,
        values: &NamedValues,
    ) -> Result<Option<Row>, QueryError> {
        Ok(self.query_named(statement, values).await?.into_iter().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "select :id::text, :n, f(:id, x[1:2]) where a = ':' and b = :n_of::bigint[] and :n > 0";

    #[test]
    fn names_are_numbered_in_the_order_in_which_they_appear() {
        let statement = NamedStatement::new(TEXT);
        assert_eq!(statement.sql, "select $1::text, $2, f($1, x[1:2]) where a = ':' and b = $3::bigint[] and $2 > 0");
        assert_eq!(statement.names, ["id", "n", "n_of"]);
    }

    #[test]
    fn each_name_needs_its_value() {
        let statement = NamedStatement::new(TEXT);
        let message = |values: &NamedValues| statement.in_order(values).map(drop).map_err(|error| error.message);
        let without_id = || NamedValues::default().with("n", 1_i64).with("n_of", vec![2_i64]);
        let missing = "the parameter :id of a statement has no value";
        assert_eq!(message(&without_id()), Err(missing.to_owned()));
        let all = without_id().with("id", "x".to_owned());
        assert_eq!(message(&all), Ok(()));
        assert_eq!(message(&all.with("other", 3_i64)), Err("a statement has no parameter :other".to_owned()));
    }
}
