//! Builds the WHERE clause of a list query.
//!
//! Invariant: values are always bound as parameters and never part of the SQL text.

use rusqlite::types::Value;

/// Builder of a WHERE clause: conditions and the values of their parameters.
#[derive(Debug, Default)]
pub(crate) struct WhereClauseBuilder {
    clauses: Vec<String>,
    values: Vec<Value>,
    /// Values of the parameters of the ORDER BY clause.
    order_values: Vec<Value>,
}

impl WhereClauseBuilder {
    /// Adds a condition with one parameter, `?`. Adds nothing if the value is `None`.
    pub(crate) fn add_optional_condition(&mut self, clause: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.clauses.push(clause.to_owned());
            self.values.push(value.into());
        }
    }

    /// Adds a condition with any number of parameters.
    pub(crate) fn add_condition(
        &mut self,
        clause: String,
        values: impl IntoIterator<Item = Value>,
    ) {
        self.clauses.push(clause);
        self.values.extend(values);
    }

    /// Sets the values of the parameters of the ORDER BY clause.
    pub(crate) fn set_order_values(&mut self, values: Vec<Value>) {
        self.order_values = values;
    }

    /// Adds a condition that has no parameter.
    pub(crate) fn add_fixed_condition(&mut self, clause: impl Into<String>) {
        self.clauses.push(clause.into());
    }

    /// Returns the complete statement and the values of its parameters. The last parameter is the
    /// limit.
    pub(crate) fn into_select_statement(
        self,
        select: &str,
        order: &str,
        limit: i64,
    ) -> (String, Vec<Value>) {
        let mut sql = select.to_owned();
        for (index, clause) in self.clauses.iter().enumerate() {
            sql.push_str(if index == 0 { " WHERE " } else { " AND " });
            sql.push_str(clause);
        }
        sql.push_str(order);
        sql.push_str(" LIMIT ?");
        let mut values = self.values;
        values.extend(self.order_values);
        values.push(limit.into());
        (sql, values)
    }
}
