//! A table of rows by key with rollback.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// Rows by key, and the previous values of rows that this transaction has changed. Only changed
/// rows are recorded, so the cost of a rollback depends on the number of changes.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    rows: BTreeMap<K, V>,
    undo_log: Vec<(K, Option<V>)>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), undo_log: Vec::new() }
    }
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.iter()
    }

    pub(crate) fn range(
        &self,
        keys: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(keys)
    }

    /// Inserts or replaces a row.
    pub(crate) fn insert(&mut self, key: K, row: V) {
        let before = self.rows.insert(key.clone(), row);
        self.undo_log.push((key, before));
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let row = self.rows.remove(key)?;
        self.undo_log.push((key.clone(), Some(row.clone())));
        Some(row)
    }

    /// Updates a row if it exists.
    pub(crate) fn update(&mut self, key: &K, change: impl FnOnce(&mut V)) {
        if let Some(row) = self.rows.get_mut(key) {
            self.undo_log.push((key.clone(), Some(row.clone())));
            change(row);
        }
    }

    /// Removes the matching rows and returns how many there were.
    pub(crate) fn remove_where(&mut self, predicate: impl Fn(&K, &V) -> bool) -> usize {
        let keys: Vec<K> = self
            .rows
            .iter()
            .filter(|(key, row)| predicate(key, row))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            self.remove(key);
        }
        keys.len()
    }

    /// Commits the changes and returns whether there were any.
    pub(crate) fn commit(&mut self) -> bool {
        let changed = !self.undo_log.is_empty();
        self.undo_log.clear();
        changed
    }

    /// Rolls back the changes since the last commit.
    pub(crate) fn rollback(&mut self) {
        while let Some((key, row)) = self.undo_log.pop() {
            match row {
                Some(row) => self.rows.insert(key, row),
                None => self.rows.remove(&key),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollback_reverts_exactly_the_changes_since_the_last_commit() {
        let mut table: Table<u8, &str> = Table::default();
        table.insert(1, "one");
        table.insert(2, "two");
        table.commit();
        table.insert(1, "uno");
        table.update(&1, |row| *row = "eins");
        table.remove(&2);
        table.insert(3, "three");
        table.remove_where(|_, row| *row == "three");
        table.rollback();
        let rows: Vec<_> = table.iter().collect();
        assert_eq!(rows, [(&1, &"one"), (&2, &"two")]);
    }
}
