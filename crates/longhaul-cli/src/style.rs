//! Terminal colours, which are only an aid: everything they express is also in the text.
//!
//! There are no colours if `NO_COLOR` is set, `TERM` is `dumb` or stdout is not a terminal.

use std::io::IsTerminal as _;

/// Meaning of a text, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextTone {
    /// The text reports a success.
    Good,
    /// The text reports a failure.
    Bad,
    /// The text asks a person to act.
    NeedsPerson,
    /// The text reports work in progress.
    Busy,
    /// The text is unimportant.
    Dim,
}

/// Adds colours to text if colours are enabled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Styler {
    enabled: bool,
}

impl Styler {
    /// Creates a styler that uses colours if stdout is a terminal that supports them.
    pub(crate) fn for_stdout() -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { enabled: std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb }
    }

    /// Creates a styler without colours.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { enabled: false }
    }

    /// Returns the text in the colour of this tone, or unchanged if colours are disabled.
    pub(crate) fn apply_tone(self, tone: TextTone, text: &str) -> String {
        let code = match tone {
            TextTone::Good => 32,
            TextTone::Bad => 31,
            TextTone::NeedsPerson => 33,
            TextTone::Busy => 36,
            TextTone::Dim => 2,
        };
        match self.enabled {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_used_only_when_enabled() {
        let (enabled, disabled) = (Styler { enabled: true }, Styler { enabled: false });
        assert_eq!(enabled.apply_tone(TextTone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(disabled.apply_tone(TextTone::Bad, "x"), "x");
    }
}
