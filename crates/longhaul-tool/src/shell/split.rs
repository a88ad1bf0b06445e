//! Splits a command line into commands and redirections, which approval rules match.
//!
//! This is not a shell parser. A command line that can't be analyzed by splitting counts as opaque,
//! and then every rule that asks for approval of shell commands, or denies some, applies.

/// Words before a command that are not part of the command, such as `time`.
const PREFIX_WORDS: &[&str] =
    &["!", "(", "{", "if", "then", "elif", "else", "while", "until", "do", "time"];

/// Programs and keywords that run their arguments, their input or a file as commands, now or later.
const RUNNERS: &[&str] = &[
    ".", "alias", "ash", "at", "bash", "batch", "builtin", "busybox", "case", "chroot", "command",
    "coproc", "crontab", "csh", "dash", "doas", "env", "eval", "exec", "expect", "fish", "flock",
    "function", "ionice", "ksh", "nice", "nohup", "nsenter", "parallel", "pkexec", "pwsh",
    "runuser", "script", "setsid", "sh", "source", "ssh", "stdbuf", "strace", "su", "sudo",
    "taskset", "tclsh", "tcsh", "timeout", "toybox", "trap", "unshare", "watch", "xargs", "zsh",
];

/// Arguments with which programs run code or commands that are not split, or delete files, each
/// with the programs. An argument that begins with one of these texts counts.
const CODE_ARGUMENTS: &[(&[&str], &[&str])] = &[
    (&["ex", "nvim", "vi", "vim"], &["+", "-c", "--cmd", "-S"]),
    (&["find"], &["-exec", "-ok", "-delete", "-fprint", "-fls"]),
    (
        &["git"],
        &[
            "-x",
            "-O",
            "--config-env",
            "--exec",
            "--extcmd",
            "--open-files-in-pager",
            "--receive-pack",
            "--upload-pack",
            "ext::",
            "foreach",
        ],
    ),
    (&["rsync"], &["-e", "--rsh", "--rsync-path"]),
    (&["tar"], &["-I", "--checkpoint-action", "--to-command", "--use-compress-program"]),
];

/// Interpreters, with the options after which they read code from the command line. An option of
/// one character may be part of a group such as `-ne`.
const INTERPRETERS: &[(&[&str], &[&str])] = &[
    (&["bun", "deno"], &["-e", "-p", "--eval", "--print", "eval"]),
    (&["lua", "osascript", "rscript", "ruby"], &["-e"]),
    (&["node", "nodejs"], &["-e", "-p", "--eval", "--print"]),
    (&["perl"], &["-e", "-E"]),
    (&["php"], &["-r"]),
    (&["pypy", "python"], &["-c"]),
];

/// Options with which an interpreter runs no code.
const INFO_OPTIONS: &[&str] = &["--help", "--version", "-V", "-h", "-v"];

/// Programs whose code, always an argument, runs commands with `system` or `|`.
const AWKS: &[&str] = &["awk", "gawk", "mawk", "nawk"];

/// Git commands that run commands given as arguments, or set some to be run later.
const GIT_RUNNERS: &[&str] = &["bisect", "config", "difftool", "filter-branch", "mergetool"];

/// Options before the Git command that have a separate value.
const GIT_OPTIONS_WITH_VALUE: &[&str] = &["-C", "--git-dir", "--namespace", "--work-tree"];

/// Character sequences that make the shell run another command inside of this one.
const SUBSTITUTIONS: &[&str] = &["$(", "`", "<(", ">(", "()"];

/// Targets of redirections that change no file.
const HARMLESS_TARGETS: &[&str] = &["/dev/null", "/dev/stderr", "/dev/stdout"];

/// Returns the commands of a command line, each on one line with single spaces between words, and
/// its redirections to files. Quoted text is split too: checking too many commands is safe.
pub(super) fn split_commands(line: &str) -> Vec<String> {
    let line = join_continued_lines(line);
    let parts = split_at_command_ends(&line, std::iter::repeat(false));
    let commands = parts.into_iter().filter_map(strip_prefix_words);
    commands.chain(find_redirections(&line)).collect()
}

/// Joins lines that end with a backslash to the next line, as a shell does.
fn join_continued_lines(line: &str) -> String {
    line.replace("\\\n", "")
}

/// Returns for each character of a line whether it is quoted or escaped. Nothing counts as quoted if
/// a quote is not closed, or in a line with comments or here-documents, where quotes have no special
/// meaning.
fn find_quoted_chars(line: &str) -> Vec<bool> {
    let (mut quote, mut escaped) = (None, false);
    let is_quoted_or_escaped = |c: char| {
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
    let quoted: Vec<bool> = line.chars().map(is_quoted_or_escaped).collect();
    let is_text = ["#", "<<", "$'"].iter().any(|sign| line.contains(sign));
    if is_text || quote.is_some() { vec![false; quoted.len()] } else { quoted }
}

/// Splits a command line at the characters that end a command, such as `;`, `|`, `&` and newlines,
/// except where a character is quoted or escaped.
fn split_at_command_ends(line: &str, quoted: impl IntoIterator<Item = bool>) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut previous = ' ';
    for ((at, c), is_quoted) in line.char_indices().zip(quoted) {
        // `2>&1` and `>|` are single operators.
        let is_command_end = match c {
            ';' | '\n' => true,
            '&' => !['>', '<'].contains(&previous),
            '|' => previous != '>',
            _ => false,
        };
        if !is_quoted && is_command_end {
            parts.push(&line[from..at]);
            from = at + c.len_utf8();
        }
        previous = c;
    }
    parts.push(&line[from..]);
    parts
}

/// Returns the redirections of a command line that may change a file, as `> FILE`. A rule about the
/// command says nothing about the file, so they are matched like commands.
fn find_redirections(line: &str) -> Vec<String> {
    let mut files = Vec::new();
    for ((at, c), is_quoted) in line.char_indices().zip(find_quoted_chars(line)) {
        let target = &line[at + c.len_utf8()..];
        // The second character of `>>` begins the target.
        if c != '>' || is_quoted || target.starts_with('>') {
            continue;
        }
        let target = match target.strip_prefix('&') {
            Some(descriptor)
                if descriptor.starts_with(|c: char| c.is_ascii_digit() || c == '-') =>
            {
                continue;
            }
            Some(file) => file,
            None => target.strip_prefix('|').unwrap_or(target),
        };
        let target = target.trim_start_matches([' ', '\t']);
        let target = target.split(|c: char| c.is_whitespace() || ";|&<>()".contains(c)).next();
        let target = unquoted(target.unwrap_or_default());
        if !HARMLESS_TARGETS.contains(&target.as_str()) {
            files.push(format!("> {target}"));
        }
    }
    files
}

/// Returns a command without prefix words such as `time`. `None` if no command is left.
fn strip_prefix_words(command: &str) -> Option<String> {
    let spaced = command.replace('(', " ( ").replace(')', " ) ");
    let is_grouped = command.trim_start().starts_with('(');
    let source = if is_grouped { &spaced } else { command };
    let words = source.split_whitespace().skip_while(|word| PREFIX_WORDS.contains(word));
    let mut words: Vec<&str> = words.collect();
    while is_grouped && words.last() == Some(&")") {
        words.pop();
    }
    let first = words.first()?;
    (!first.starts_with('#')).then(|| words.join(" "))
}

/// Returns whether a command line runs a command that splitting does not show.
pub(super) fn has_hidden_commands(line: &str) -> bool {
    // A shell does not continue a comment, or a line that ends with an escaped backslash.
    if line.contains("\\\\\n") || line.contains('#') && line.contains("\\\n") {
        return true;
    }
    let line = join_continued_lines(line);
    let parts = split_at_command_ends(&line, find_quoted_chars(&line));
    SUBSTITUTIONS.iter().any(|sign| line.contains(sign))
        || parts.into_iter().filter_map(strip_prefix_words).any(|part| runs_hidden_command(&part))
}

fn runs_hidden_command(command: &str) -> bool {
    let mut words = command.split(' ');
    let first = words.next().unwrap_or_default();
    // The shell may expand the name to another one, or it is not a name.
    let is_special_char = |c: char| "\"'\\$*?[]({}~=<>".contains(c);
    if first.contains(is_special_char) {
        return true;
    }
    let name = first.rsplit('/').next().unwrap_or(first).to_ascii_lowercase();
    // The name without a version: `python3.12` is `python`.
    let program = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let words: Vec<String> = words.map(unquoted).collect();
    let has_code_argument = CODE_ARGUMENTS.iter().any(|(programs, arguments)| {
        programs.contains(&program) && words.iter().any(|word| starts_with_any(word, arguments))
    });
    has_code_argument
        || [name.as_str(), program].iter().any(|name| RUNNERS.contains(name))
        || interprets_hidden_code(program, &words)
        || AWKS.contains(&program) && ["system", "|"].iter().any(|call| command.contains(call))
        || program == "git" && git_runs_other_command(&words)
}

/// Returns whether this program is an interpreter of code that is an argument, or that it reads from
/// its input. A file of code is a program like any other.
fn interprets_hidden_code(program: &str, words: &[String]) -> bool {
    let mut interpreters = INTERPRETERS.iter();
    let Some((_, options)) = interpreters.find(|(programs, _)| programs.contains(&program)) else {
        return false;
    };
    let is_in_group = |word: &str, option: &str| {
        let flag = option.strip_prefix('-').filter(|flag| flag.len() == 1);
        let is_group = word.starts_with('-') && !word.starts_with("--");
        is_group && flag.is_some_and(|flag| word.contains(flag))
    };
    let has_code = words.iter().any(|word| {
        starts_with_any(word, options) || options.iter().any(|option| is_in_group(word, option))
    });
    let reads_input = words.iter().any(|word| word == "-" || word.starts_with('<'));
    let mut before_redirection = words.iter().take_while(|word| !word.contains('>'));
    let has_no_file = before_redirection.clone().all(|word| word.starts_with('-'));
    let is_info = before_redirection.any(|word| INFO_OPTIONS.contains(&word.as_str()));
    has_code || reads_input || has_no_file && !is_info
}

/// Returns whether a Git command runs or configures another command. `git switch -c` is harmless,
/// but `git -c alias.x='!COMMAND' x` is not.
fn git_runs_other_command(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if GIT_OPTIONS_WITH_VALUE.contains(&word) {
            words.next();
        } else if word.starts_with("-c") {
            return true;
        } else if !word.starts_with('-') {
            return GIT_RUNNERS.contains(&word);
        }
    }
    false
}

fn starts_with_any(word: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| word.starts_with(start))
}

/// Returns a word without its quotes and backslashes: `-ex'ec'` is `-exec`.
fn unquoted(word: &str) -> String {
    word.replace(['"', '\'', '\\'], "")
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
        check_split_commands("a >| b; c <&3", &["a >| b", "c <&3", "> b"]);
        check_split_commands("a &> b rm -rf c", &["a", "> b rm -rf c", "> b"]);
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
    fn a_redirection_to_a_file_is_a_part_of_its_own() {
        for (line, parts) in [
            ("ls > a.txt", &["ls > a.txt", "> a.txt"] as &[&str]),
            ("ls>>'a.txt' 2>&1", &["ls>>'a.txt' 2>&1", "> a.txt"]),
            ("ls >a;cat <b >&c", &["ls >a", "cat <b >&c", "> a", "> c"]),
            ("ls 1<> ~/.x", &["ls 1<> ~/.x", "> ~/.x"]),
            ("ls 2>/dev/null >&2 2>&-", &["ls 2>/dev/null >&2 2>&-"]),
            ("echo 'a > b' \"c->d\" \\> e", &["echo 'a > b' \"c->d\" \\> e"]),
            ("echo it's > a", &["echo it's > a", "> a"]),
            ("cat <<X > a\n'\nX", &["cat <<X > a", "'", "X", "> a"]),
            ("ls >", &["ls >", "> "]),
        ] {
            check_split_commands(line, parts);
        }
    }

    #[test]
    fn hidden_commands_are_detected() {
        for line in [
            "echo $(rm x)",
            "echo `rm x`",
            "echo a\\\\\nrm x",
            "# a\\\nrm x",
            "if (rm x); then a; fi",
            "for i in 1; do (rm x); done",
            "f( ) ( rm x ); f",
            "echo $'\\'' ; bash -c 'rm x' \\'",
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
            "${X} y",
        ] {
            assert!(has_hidden_commands(line), "{line:?}");
        }
    }

    #[test]
    fn programs_that_run_other_commands_are_detected() {
        for line in [
            "git -c alias.x='!rm y' x",
            "git -C sub \"-c\" core.pager=rm log",
            "git --exec-path=. x",
            "git rebase --exec 'rm x' main",
            "git rebase -x 'rm x' main",
            "git config alias.x '!rm y'",
            "git bisect run rm x",
            "git submodule foreach rm x",
            "git clone ext::x",
            "find . -delete",
            "find . -ex'ec'dir rm {} +",
            "find . -ok rm {} +",
            "nice rm x",
            "timeout 5 rm x",
            "nohup rm x",
            "flock x rm y",
            "SUDO rm x",
            "ksh93 x",
            "python3.12 -c x",
            "python -Ic x",
            "cat x | python3",
            "python3 - a",
            "python3 <x",
            "echo x | python3 -u > out",
            "perl -ne x",
            "node -pe x",
            "ruby -e x",
            "deno eval x",
            "awk 'BEGIN { system(\"rm x\") }'",
            "awk '{ print | \"rm x\" }' y",
            "tar xf a --to-command=rm",
            "rsync -e x a b",
            "alias ls=rm",
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
            "git status",
            "git -C sub log -p",
            "git switch -c x",
            "git commit -m 'fix: config'",
            "git push -u origin main",
            "git add config.toml runner.rs",
            "python3 --version",
            "python3 -m pytest tests > log 2>&1",
            "node x.js",
            "awk '{ print $1 }' x > y",
            "tar -xzf a.tgz",
            "rsync -a a b",
            "ls > out.txt",
            "",
        ] {
            assert!(!has_hidden_commands(line), "{line:?}");
        }
    }
}
