//! The help of `longhaul`: all commands in groups, one line each.

use std::fmt::Write as _;

use clap::Command;
use clap::builder::StyledStr;

/// Groups of commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Start", &["init", "demo", "dev", "serve", "worker"]),
    (
        "Runs",
        &[
            "run", "submit", "ls", "show", "watch", "logs", "why", "steer", "pause", "resume",
            "cancel", "close", "retry", "fork", "diff", "export", "rm",
        ],
    ),
    ("People", &["gates", "approve", "reject", "answer", "rules", "free-key"]),
    ("Inbox", &["inbox", "lanes", "signal", "batch", "memory"]),
    ("Define", &["agents", "tools", "chains", "schedules", "mcp", "models"]),
    ("Operate", &["status", "sandboxes", "workers", "spend", "webhooks", "vault"]),
    (
        "Admin",
        &[
            "db",
            "keys",
            "config",
            "doctor",
            "trust",
            "chaos",
            "mock-model",
            "completions",
            "man",
            "version",
            "help",
        ],
    ),
];

/// The help of a command with groups of subcommands.
const TEMPLATE: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";

/// Shows the subcommands in groups in the help of this command.
pub(crate) fn group_commands(command: Command) -> Command {
    let groups = grouped_list(&command);
    command.help_template(TEMPLATE).before_help(groups.clone()).before_long_help(groups)
}

/// Returns the groups of commands, each command with its description.
fn grouped_list(command: &Command) -> StyledStr {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let is_listed = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let others: Vec<&str> = others.into_iter().filter(|name| !is_listed(name)).collect();
    let mut list = String::new();
    for (title, names) in GROUPS.into_iter().chain([("Other", others.as_slice())]) {
        let mut commands = names.iter().filter_map(|name| command.find_subcommand(name)).peekable();
        if commands.peek().is_some() {
            _ = writeln!(list, "{header}{title}:{header:#}");
        }
        for command in commands {
            let (name, about) = (command.get_name(), command.get_about().unwrap_or_default());
            _ = writeln!(list, "  {literal}{name:<12}{literal:#} {about}");
        }
    }
    list.trim_end().to_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group_and_fits_on_a_line() {
        let listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for command in Cli::full_command().get_subcommands() {
            let name = command.get_name();
            let count = listed.iter().filter(|listed| **listed == name).count();
            assert_eq!(count, 1, "`{name}` in the groups of the help");
            let about = command.get_about().unwrap_or_default().to_string();
            let width = 15 + about.chars().count();
            assert!(!about.is_empty() && width <= 80, "{name}: {width} columns");
        }
    }

    /// Returns the examples of a command and its subcommands, without what the help says about them.
    fn examples(command: &Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.trim().strip_prefix("longhaul "));
        let lines = lines.map(|line| line.split("  ").next().unwrap_or_default().to_owned());
        // Without pipes, and without ids, which a reader replaces.
        let is_complete =
            |line: &String| !line.contains(['|', '<', '$', '&']) && !line.contains("...");
        let own: Vec<String> = lines.filter(is_complete).collect();
        own.into_iter().chain(command.get_subcommands().flat_map(examples)).collect()
    }

    /// Splits a command line as a shell does: a text in quotes is one argument.
    fn split_arguments(line: &str) -> Vec<String> {
        let (mut arguments, mut quote) = (vec![String::new()], None);
        for c in line.chars() {
            match (quote, c) {
                (None, ' ') => arguments.push(String::new()),
                (None, '"' | '\'') => quote = Some(c),
                (Some(open), c) if open == c => quote = None,
                (_, c) => arguments.iter_mut().last().unwrap().push(c),
            }
        }
        arguments.retain(|argument| !argument.is_empty());
        arguments
    }

    #[test]
    fn every_example_is_a_valid_command_line() {
        let command = Cli::full_command();
        let examples = examples(&command);
        assert!(examples.len() > 100, "{}", examples.len());
        for example in examples {
            let arguments = std::iter::once("longhaul".to_owned()).chain(split_arguments(&example));
            if let Err(error) = command.clone().try_get_matches_from(arguments) {
                assert!(!error.use_stderr(), "longhaul {example}: {error}");
            }
        }
    }
}
