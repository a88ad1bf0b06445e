//! Conditions of a list, gathered one by one.
//!
//! Never: a value inside the text of a statement.

use rusqlite::types::Value;

/// Conditions and the values they speak of.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    clauses: Vec<String>,
    values: Vec<Value>,
}

impl Filter {
    /// Only rows of which this is true; `?` stands for the value.
    pub(crate) fn only(&mut self, clause: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.clauses.push(clause.to_owned());
            self.values.push(value.into());
        }
    }

    /// Only rows of which this is true.
    pub(crate) fn always(&mut self, clause: impl Into<String>) {
        self.clauses.push(clause.into());
    }

    /// The statement, and the values with the limit at their end.
    pub(crate) fn finish(self, select: &str, order: &str, limit: i64) -> (String, Vec<Value>) {
        let mut sql = select.to_owned();
        for (place, clause) in self.clauses.iter().enumerate() {
            sql.push_str(if place == 0 { " WHERE " } else { " AND " });
            sql.push_str(clause);
        }
        sql.push_str(order);
        sql.push_str(" LIMIT ?");
        let mut values = self.values;
        values.push(limit.into());
        (sql, values)
    }
}
