//! Splits a command line into commands, which approval rules match.
//!
//! This is not a shell parser. A command line that can't be analyzed by splitting counts as opaque,
//! and then every rule that asks for approval of shell commands applies.

/// Words before a command that are not part of the command, such as `time`.
const PREFIX_WORDS: &[&str] =
    &["!", "(", "{", "if", "then", "elif", "else", "while", "until", "do", "time"];

/// Programs that run their arguments or their input as commands.
const RUNNERS: &[&str] = &[
    ".", "ash", "bash", "builtin", "busybox", "case", "command", "csh", "dash", "doas", "env",
    "eval", "exec", "fish", "function", "ionice", "ksh", "nice", "nohup", "parallel", "script",
    "setsid", "sh", "source", "ssh", "stdbuf", "su", "sudo", "tcsh", "timeout", "trap", "watch",
    "xargs", "zsh",
];

/// Programs that run code given after one of these flags.
const INLINE_CODE_FLAGS: &[(&str, &[&str])] = &[
    ("find", &["-exec", "-execdir", "-ok", "-okdir"]),
    ("node", &["-e", "--eval", "-p"]),
    ("perl", &["-e", "-E"]),
    ("php", &["-r"]),
    ("python", &["-c"]),
    ("python3", &["-c"]),
    ("ruby", &["-e"]),
];

/// Character sequences that make the shell run another command inside of this one.
const SUBSTITUTIONS: &[&str] = &["$(", "`", "<(", ">(", "()"];

/// Returns the commands of a command line, each on one line with single spaces between words.
/// Quoted text is split too: checking too many commands is safe.
pub(super) fn split_commands(line: &str) -> Vec<String> {
    // Line continuations are joined, as a shell does.
    let line = line.replace("\\\n", "");
    let parts = split_at_command_ends(&line, |_| false);
    parts.into_iter().filter_map(strip_prefix_words).collect()
}

/// Returns the commands of a command line, without splitting quoted text.
fn split_commands_outside_quotes(line: &str) -> Vec<String> {
    let line = line.replace("\\\n", "");
    let (mut quote, mut escaped) = (None, false);
    let mut is_quoted_or_escaped = |c: char| {
        let is_escaped = std::mem::take(&mut escaped);
        match (quote, c) {
            _ if is_escaped => return true,
            (None | Some('"'), '\\') => escaped = true,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None | Some(_), _) => {}
        }
        quote.is_some()
    };
    let parts = split_at_command_ends(&line, &mut is_quoted_or_escaped);
    let parts: Vec<String> = parts.into_iter().filter_map(strip_prefix_words).collect();
    // In comments and here-documents a quote has no special meaning.
    let is_text = line.contains('#') || line.contains("<<");
    if is_text || quote.is_some() { split_commands(&line) } else { parts }
}

/// Splits a command line at the characters that end a command, such as `;`, `|`, `&` and newlines,
/// except where `is_quoted_or_escaped` says that a character is quoted or escaped.
fn split_at_command_ends(
    line: &str,
    mut is_quoted_or_escaped: impl FnMut(char) -> bool,
) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut previous = ' ';
    for (at, c) in line.char_indices() {
        // `2>&1` and `>|` are single operators.
        let is_command_end = match c {
            ';' | '\n' => true,
            '&' => !['>', '<'].contains(&previous),
            '|' => previous != '>',
            _ => false,
        };
        if !is_quoted_or_escaped(c) && is_command_end {
            parts.push(&line[from..at]);
            from = at + c.len_utf8();
        }
        previous = c;
    }
    parts.push(&line[from..]);
    parts
}

/// Returns a command without prefix words such as `time`. `None` if no command is left.
fn strip_prefix_words(command: &str) -> Option<String> {
    let spaced = command.replace('(', " ( ").replace(')', " ) ");
    let is_grouped = command.trim_start().starts_with('(');
    let source = if is_grouped { &spaced } else { command };
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

/// Returns whether a command line runs a command that splitting does not show.
pub(super) fn has_hidden_commands(line: &str) -> bool {
    SUBSTITUTIONS.iter().any(|sign| line.contains(sign))
        || split_commands_outside_quotes(line).iter().any(|part| runs_hidden_command(part))
}

fn runs_hidden_command(command: &str) -> bool {
    let mut words = command.split(' ');
    let first = words.next().unwrap_or_default();
    // The shell may expand the name to another one, or it is not a name.
    let is_special_char = |c: char| "\"'\\$*?[]{}~=<>".contains(c);
    if first.contains(is_special_char) {
        return true;
    }
    let name = first.rsplit('/').next().unwrap_or(first);
    let runs_inline_code = INLINE_CODE_FLAGS.iter().find(|(reader, _)| *reader == name);
    let runs_inline_code = runs_inline_code.is_some_and(|(_, flags)| {
        words.any(|word| flags.iter().any(|flag| word.starts_with(flag)))
    });
    RUNNERS.contains(&name) || runs_inline_code
}

#[cfg(test)]
mod tests {
    use super::{has_hidden_commands, split_commands};

    fn check_split_commands(line: &str, parts: &[&str]) {
        assert_eq!(split_commands(line), parts, "{line:?}");
    }

    #[test]
    fn a_command_is_split_like_a_shell_does() {
        check_split_commands("ls", &["ls"]);
        check_split_commands("  ls   -l\t src ", &["ls -l src"]);
        check_split_commands("a;b&&c||d|e&f\ng", &["a", "b", "c", "d", "e", "f", "g"]);
        check_split_commands("a ; ; b &", &["a", "b"]);
        check_split_commands("cargo test 2>&1 | tail -5", &["cargo test 2>&1", "tail -5"]);
        check_split_commands("a >| b; c <&3", &["a >| b", "c <&3"]);
        check_split_commands("a &> b rm -rf c", &["a", "> b rm -rf c"]);
        check_split_commands("rm \\\n -rf x", &["rm -rf x"]);
        check_split_commands("(rm -rf x)", &["rm -rf x"]);
        check_split_commands("( (cd a) ; rm b )", &["cd a", "rm b )"]);
        check_split_commands("{ rm -rf x; }", &["rm -rf x", "}"]);
        check_split_commands("if a; then rm b; else c; fi", &["a", "rm b", "c", "fi"]);
        check_split_commands("while ! a; do rm b; done", &["a", "rm b", "done"]);
        check_split_commands("# a word\nls # more", &["ls # more"]);
        check_split_commands("", &[]);
        check_split_commands(" ;\n&| ", &[]);
        check_split_commands("echo 'a; b'", &["echo 'a", "b'"]);
        check_split_commands("größe 'ü|ö'", &["größe 'ü", "ö'"]);
    }

    #[test]
    fn hidden_commands_are_detected() {
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
            assert!(has_hidden_commands(line), "{line:?}");
        }
    }

    #[test]
    fn plain_commands_have_no_hidden_commands() {
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
            assert!(!has_hidden_commands(line), "{line:?}");
        }
    }
}
