//! Name of the person who runs this command, as shown in journals. The name is not authenticated:
//! every user who can write the store can use any name.

/// Returns the caller's name, such as `cli:anna`.
pub(crate) fn caller_name() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let sanitized: String = user.chars().filter(|c| !c.is_control()).take(64).collect();
    if sanitized.is_empty() { "cli".to_owned() } else { format!("cli:{sanitized}") }
}
