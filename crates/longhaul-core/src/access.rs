//! Who may do what: four roles, each of which contains the one before.
//!
//! Never: a secret. Keys are known here by their hashes only.

use serde::{Deserialize, Serialize};

/// What a caller may do. A later one may do all that an earlier one may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks.
    Viewer,
    /// Submits, steers, stops.
    Operator,
    /// Answers at gates.
    Approver,
    /// Makes and revokes keys.
    Admin,
}

impl Role {
    /// Every role, the least first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Approver, Self::Admin];

    /// The role as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }

    /// The role of this name.
    pub fn read(said: &str) -> Option<Self> {
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
            assert_eq!(Role::read(role.as_str()), Some(role));
        }
        assert_eq!(Role::read("root"), None);
    }
}
