//! Colours, for those who see them: a help, never the only sign of anything.
//!
//! Never: where `NO_COLOR` is set, or where no terminal reads.

use std::io::IsTerminal as _;

/// What a colour stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// It went well.
    Good,
    /// It went wrong.
    Bad,
    /// A person is needed.
    NeedsPerson,
    /// It is under way.
    Busy,
    /// It may be passed over.
    Dim,
}

/// Paints, or leaves as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Styler {
    enabled: bool,
}

impl Styler {
    /// For what goes to stdout.
    pub(crate) fn for_stdout() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { enabled: std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb }
    }

    /// The text in this tone.
    pub(crate) fn apply(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => 32,
            Tone::Bad => 31,
            Tone::NeedsPerson => 33,
            Tone::Busy => 36,
            Tone::Dim => 2,
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
        let (on, off) = (Styler { enabled: true }, Styler { enabled: false });
        assert_eq!(on.apply(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(off.apply(Tone::Bad, "x"), "x");
    }
}
