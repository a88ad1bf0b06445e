//! The commands in a command line, by which rules know it.
//!
//! Never: a shell's grammar. Where a command line can't be read by splitting it,
//! it is said to be hidden, and every rule that asks about the shell asks.

/// Words before a command that are not the command.
const PREFIX_WORDS: &[&str] =
    &["!", "(", "{", "if", "then", "elif", "else", "while", "until", "do", "time"];

/// Programs that run what stands behind them, or what they read.
const RUNNERS: &[&str] = &[
    ".", "ash", "bash", "builtin", "busybox", "case", "command", "csh", "dash", "doas", "env",
    "eval", "exec", "fish", "function", "ionice", "ksh", "nice", "nohup", "parallel", "script",
    "setsid", "sh", "source", "ssh", "stdbuf", "su", "sudo", "tcsh", "timeout", "trap", "watch",
    "xargs", "zsh",
];

/// Programs that run a text behind one of these.
const INLINE_CODE_FLAGS: &[(&str, &[&str])] = &[
    ("find", &["-exec", "-execdir", "-ok", "-okdir"]),
    ("node", &["-e", "--eval", "-p"]),
    ("perl", &["-e", "-E"]),
    ("php", &["-r"]),
    ("python", &["-c"]),
    ("python3", &["-c"]),
    ("ruby", &["-e"]),
];

/// What stands for the output of another command.
const SUBSTITUTIONS: &[&str] = &["$(", "`", "<(", ">(", "()"];

/// The commands, each on one line, with single spaces between their words. What
/// stands in quotes is split too: to try a rule more is safe.
pub(super) fn commands(line: &str) -> Vec<String> {
    // What a shell joins is joined.
    let line = line.replace("\\\n", "");
    let parts = split(&line, |_| false);
    parts.into_iter().filter_map(strip_prefix_words).collect()
}

/// The commands as the shell itself sees them.
fn split_quoted(line: &str) -> Vec<String> {
    let line = line.replace("\\\n", "");
    let (mut quote, mut escaped) = (None, false);
    let mut is_inside = |letter: char| {
        let is_escaped = std::mem::take(&mut escaped);
        match (quote, letter) {
            _ if is_escaped => return true,
            (None | Some('"'), '\\') => escaped = true,
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None | Some(_), _) => {}
        }
        quote.is_some()
    };
    let parts = split(&line, &mut is_inside);
    let parts: Vec<String> = parts.into_iter().filter_map(strip_prefix_words).collect();
    // In comments and in texts for a program a quote is none.
    let is_text = line.contains('#') || line.contains("<<");
    if is_text || quote.is_some() { commands(&line) } else { parts }
}

/// Splits where one command ends, but not inside of what is kept together.
fn split(line: &str, mut is_inside: impl FnMut(char) -> bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        // `2>&1` and `>|` are one word.
        let ends = match letter {
            ';' | '\n' => true,
            '&' => !['>', '<'].contains(&before),
            '|' => before != '>',
            _ => false,
        };
        if !is_inside(letter) && ends {
            parts.push(&line[from..at]);
            from = at + letter.len_utf8();
        }
        before = letter;
    }
    parts.push(&line[from..]);
    parts
}

/// A command without what stands before it; none: there is none.
fn strip_prefix_words(text: &str) -> Option<String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let is_grouped = text.trim_start().starts_with('(');
    let source = if is_grouped { &spaced } else { text };
    let mut words: Vec<&str> = source.split_whitespace().collect();
    while words.first().is_some_and(|word| PREFIX_WORDS.contains(word)) {
        words.remove(0);
    }
    while is_grouped && words.last() == Some(&")") {
        words.pop();
    }
    let first = words.first()?;
    (!first.starts_with('#')).then(|| words.join(" "))
}

/// Whether a command line runs what can't be seen in its parts.
pub(super) fn is_opaque(line: &str) -> bool {
    SUBSTITUTIONS.iter().any(|sign| line.contains(sign))
        || split_quoted(line).iter().any(|part| runs_hidden_command(part))
}

fn runs_hidden_command(part: &str) -> bool {
    let mut words = part.split(' ');
    let first = words.next().unwrap_or_default();
    // A name that the shell makes something else of, or no name at all.
    let is_made = |letter: char| "\"'\\$*?[]{}~=<>".contains(letter);
    if first.contains(is_made) {
        return true;
    }
    let name = first.rsplit('/').next().unwrap_or(first);
    let reads = INLINE_CODE_FLAGS.iter().find(|(reader, _)| *reader == name);
    let reads = reads.is_some_and(|(_, flags)| {
        words.any(|word| flags.iter().any(|flag| word.starts_with(flag)))
    });
    RUNNERS.contains(&name) || reads
}

#[cfg(test)]
mod tests {
    use super::{commands, is_opaque};

    fn check(line: &str, parts: &[&str]) {
        assert_eq!(commands(line), parts, "{line:?}");
    }

    #[test]
    fn a_command_is_split_like_a_shell_does() {
        check("ls", &["ls"]);
        check("  ls   -l\t src ", &["ls -l src"]);
        check("a;b&&c||d|e&f\ng", &["a", "b", "c", "d", "e", "f", "g"]);
        check("a ; ; b &", &["a", "b"]);
        check("cargo test 2>&1 | tail -5", &["cargo test 2>&1", "tail -5"]);
        check("a >| b; c <&3", &["a >| b", "c <&3"]);
        check("a &> b rm -rf c", &["a", "> b rm -rf c"]);
        check("rm \\\n -rf x", &["rm -rf x"]);
        check("(rm -rf x)", &["rm -rf x"]);
        check("( (cd a) ; rm b )", &["cd a", "rm b )"]);
        check("{ rm -rf x; }", &["rm -rf x", "}"]);
        check("if a; then rm b; else c; fi", &["a", "rm b", "c", "fi"]);
        check("while ! a; do rm b; done", &["a", "rm b", "done"]);
        check("# a word\nls # more", &["ls # more"]);
        check("", &[]);
        check(" ;\n&| ", &[]);
        check("echo 'a; b'", &["echo 'a", "b'"]);
        check("größe 'ü|ö'", &["größe 'ü", "ö'"]);
    }

    #[test]
    fn commands_that_run_other_commands_are_opaque() {
        for line in [
            "echo $(rm x)",
            "echo `rm x`",
            "diff <(a) >(b)",
            "eval rm x",
            "ls; eval rm",
            "sh -c 'rm x'",
            "/bin/bash -c x",
            "a | sh",
            "sh <<EOF",
            "zsh -c x",
            "ls | xargs rm",
            "env rm x",
            "sudo rm x",
            "FOO=1 rm x",
            "f() { rm x; }; f",
            "function f { rm x; }",
            "case a in a) rm x;; esac",
            ". ./x",
            "source x",
            "r\\m x",
            "\"rm\" x",
            "'r'm x",
            "$X y",
            "/bin/r? x",
            "> a rm b",
            "a &> b rm -rf c",
            "find . -exec rm {} +",
            "python3 -c 'x'",
            "(sh -c x)",
            "if true; then bash x; fi",
            "echo 'a' ; sh",
            "echo a' ; sh",
            "echo \\'; sh",
            "# it's\nsh x\n# it's",
            "cat <<X\nit's\nX\nsh x 'a",
        ] {
            assert!(is_opaque(line), "{line:?}");
        }
    }

    #[test]
    fn plain_commands_are_not_opaque() {
        for line in [
            "ls -l",
            "cargo test 2>&1 | tail -5",
            "rm -rf *",
            "echo $HOME",
            "git commit -m 'a; b'",
            "git commit -m \"it's | \\\"$X\\\" & sh\"",
            "echo \\; a",
            "find . -name '*.rs'",
            "python3 x.py -v",
            "make fresh",
            "(cd a && ls)",
            "",
        ] {
            assert!(!is_opaque(line), "{line:?}");
        }
    }
}
