//! Caller identities and their roles.
//!
//! Each role includes the permissions of all lower roles.

use crate::id::ApiKeyName;
use crate::text_macros::string_enum;

string_enum! {
    /// Permission level of a caller. A higher role includes the permissions of all lower roles.
    #[derive(PartialOrd, Ord)]
    pub enum Role {
        /// May read runs, journals and gates.
        Viewer = "viewer",
        /// May submit, steer, pause and cancel runs.
        Operator = "operator",
        /// May answer gates, i.e. questions and approvals that wait for a person.
        Approver = "approver",
        /// May create and revoke API keys.
        Admin = "admin",
    }
}

impl Role {
    /// Parses a role name. Returns `None` if the name is unknown.
    pub fn from_name(role_name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == role_name)
    }
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Name of the caller as recorded in journals, such as `key:ops` or `cli:anna`.
    pub name: String,
    /// Role, which determines what the caller may do.
    pub role: Role,
}

/// Prefix of the names of principals that authenticate with an API key.
const KEY_PREFIX: &str = "key:";

/// Name of the principal that revokes and cancels on behalf of Longhaul itself.
pub const SYSTEM_PRINCIPAL: &str = "longhaul";

/// Returns the name of the principal that authenticates with the API key of this name.
pub fn principal_of_key(name: &ApiKeyName) -> String {
    format!("{KEY_PREFIX}{name}")
}

/// Returns the name of the API key with which a principal authenticates. `None` if it has no key.
pub fn key_name_of_principal(principal: &str) -> Option<&str> {
    principal.strip_prefix(KEY_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_role_includes_all_lower_roles() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.as_str()), Some(role));
        }
        assert_eq!(Role::from_name("root"), None);
    }
}
