//! What names mean to file systems other than the one at hand.
//!
//! Never: maps a name to another one that is then touched. It compares and judges.

/// Names that Windows keeps for devices, whatever follows the first dot.
const DEVICE_NAMES: &[&str] = &["con", "prn", "aux", "nul", "conin$", "conout$"];

/// The name as file systems that ignore case see it.
pub(crate) fn fold_case(text: &str) -> String {
    // Upwards first: `ß` and `SS`, `ſ` and `s` are one name to some of them.
    text.to_uppercase().to_lowercase()
}

/// Control characters, and those that hide or turn the text around them. The
/// joiners stay: emoji and Persian need them.
pub(crate) fn is_invisible(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether Windows keeps the name for a device.
pub(crate) fn is_device_name(text: &str) -> bool {
    let stem = fold_case(text.split('.').next().unwrap_or(text));
    let stem = stem.trim_end();
    let port = stem.strip_prefix("com").or_else(|| stem.strip_prefix("lpt"));
    let is_port = port.is_some_and(|rest| {
        let mut rest = rest.chars();
        let digit = rest.next();
        digit.is_some_and(|digit| digit.is_ascii_digit() || "¹²³".contains(digit))
            && rest.next().is_none()
    });
    is_port || DEVICE_NAMES.contains(&stem)
}

/// The text for people and models: short, and with nothing unseen in it.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}
