//! Who may do what: four roles, each of which contains the one before.
//!
//! Never: a secret. Keys are known here by their hashes only.

use crate::text_macros::string_enum;

string_enum! {
    /// What a caller may do. A later one may do all that an earlier one may.
    #[derive(PartialOrd, Ord)]
    pub enum Role {
        /// Looks.
        Viewer = "viewer",
        /// Submits, steers, stops.
        Operator = "operator",
        /// Answers at gates.
        Approver = "approver",
        /// Makes and revokes keys.
        Admin = "admin",
    }
}

impl Role {
    /// The role of this name.
    pub fn parse(said: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == said)
    }
}

/// Somebody who has shown a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// As journals show it, such as `key:ops` or `cli:anna`.
    pub name: String,
    /// What they may do.
    pub role: Role,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_contain_each_other_in_order() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("root"), None);
    }
}
