//! Who types: the name that journals show.
//!
//! Never: proof of anything. On one machine whoever may write the file may say so.

/// Who types, such as `cli:anna`.
pub(crate) fn caller_name() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let clean: String = user.chars().filter(|letter| !letter.is_control()).take(64).collect();
    if clean.is_empty() { "cli".to_owned() } else { format!("cli:{clean}") }
}
