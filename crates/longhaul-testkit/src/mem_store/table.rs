//! Rows by key that can be put back as they were.
//!
//! Never: knows what its rows mean.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// Rows by key, and what stood in their places before this transaction began.
/// Only what was touched is remembered, so undoing costs what was done.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    rows: BTreeMap<K, V>,
    before: Vec<(K, Option<V>)>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            before: Vec::new(),
        }
    }
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    pub(crate) fn has(&self, key: &K) -> bool {
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

    /// Puts a row in its place, whatever stood there.
    pub(crate) fn put(&mut self, key: K, row: V) {
        let before = self.rows.insert(key.clone(), row);
        self.before.push((key, before));
    }

    /// Takes a row away.
    pub(crate) fn take(&mut self, key: &K) -> Option<V> {
        let row = self.rows.remove(key)?;
        self.before.push((key.clone(), Some(row.clone())));
        Some(row)
    }

    /// Changes a row if it is there.
    pub(crate) fn change(&mut self, key: &K, change: impl FnOnce(&mut V)) {
        if let Some(row) = self.rows.get_mut(key) {
            self.before.push((key.clone(), Some(row.clone())));
            change(row);
        }
    }

    /// Takes away the rows that `gone` points at and says how many they were.
    pub(crate) fn take_where(&mut self, gone: impl Fn(&K, &V) -> bool) -> usize {
        let keys: Vec<K> = self
            .rows
            .iter()
            .filter(|(key, row)| gone(key, row))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            self.take(key);
        }
        keys.len()
    }

    /// What was done stands. Says whether anything was.
    pub(crate) fn keep(&mut self) -> bool {
        let touched = !self.before.is_empty();
        self.before.clear();
        touched
    }

    /// What was done since the last `keep` never was.
    pub(crate) fn undo(&mut self) {
        while let Some((key, row)) = self.before.pop() {
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
    fn undo_takes_back_exactly_what_was_done_since_the_last_keep() {
        let mut table: Table<u8, &str> = Table::default();
        table.put(1, "one");
        table.put(2, "two");
        table.keep();
        table.put(1, "uno");
        table.change(&1, |row| *row = "eins");
        table.take(&2);
        table.put(3, "three");
        table.take_where(|_, row| *row == "three");
        table.undo();
        let rows: Vec<_> = table.iter().collect();
        assert_eq!(rows, [(&1, &"one"), (&2, &"two")]);
    }
}
