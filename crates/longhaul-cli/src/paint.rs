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
    You,
    /// It is under way.
    Busy,
    /// It may be passed over.
    Faint,
}

/// Paints, or leaves as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// For what goes to stdout.
    pub(crate) fn for_stdout() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            on: std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb,
        }
    }

    /// The text in this tone.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => 32,
            Tone::Bad => 31,
            Tone::You => 33,
            Tone::Busy => 36,
            Tone::Faint => 2,
        };
        match self.on {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_is_put_on_only_when_wanted() {
        let (on, off) = (Paint { on: true }, Paint { on: false });
        assert_eq!(on.tone(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(off.tone(Tone::Bad, "x"), "x");
    }
}
