//! The screens of a terminal on which a run is followed, at several widths.

use std::num::NonZeroU16;

use regex::Regex;

use super::project::Project;
use super::terminal::run_at_terminal;

const AGENT: &str = "---
model: scripted/garden
tools: [vault_list, vault_write]
approve:
  - { tool: vault_write, ask: Write this plan to the notes of everybody? }
---
You tidy notes.
";

const SCRIPT: &str = r#"
replies:
  - text: "I will list the notes first, and then decide how they are sorted.\n\nOne moment: \e[2J\e[31m日本語."
    tools: [{ name: vault_list, input: { folder: "" } }]
  - text: "Here is a plan."
    tools: [{ name: vault_write, input: { folder: Plans, title: "The garden", content: "1 sort\n2 link\n3 sow the seeds\n4 wait", tags: [a, b], confidence: 90 } }]
  - text: "Done:\n\n- the plan is written"
"#;

/// Replaces what differs from run to run by texts of the same length.
fn normalize(screen: &str) -> String {
    // A narrow terminal breaks an id.
    let id = Regex::new(r"(run|gate)_[0-9a-z]+(\s+[0-9a-z]{8,}\b)?").unwrap();
    let zeros = |id: &regex::Captures<'_>| {
        let (name, id) = id[0].split_once('_').unwrap();
        format!("{name}_{}", id.replace(|c: char| c.is_alphanumeric(), "0"))
    };
    let mut screen = id.replace_all(screen, zeros).into_owned();
    for (pattern, text) in [
        (r"\d{4}-\d\d-\d\d", "2026-01-01"),
        (r"\d\d:\d\d:\d\d\.\d{6}Z", "00:00:00.000000Z"),
        (r"\d\d:\d\d:\d\d", "00:00:00"),
        (r"2026-01-01(\s)\d\d:\d\d", "2026-01-01${1}00:00"),
        (r"digest(\s+)[0-9a-f]{12}", "digest${1}000000000000"),
    ] {
        screen = Regex::new(pattern).unwrap().replace_all(&screen, text).into_owned();
    }
    screen
}

/// Returns what a terminal with this number of columns shows after this output.
fn screen_after(output: &str, columns: u16) -> String {
    // More rows than the terminal of the program has, so that nothing leaves the screen.
    let [rows, columns] = [120, columns].map(|size| NonZeroU16::new(size).unwrap());
    let mut terminal = vt100::Parser::new(rows, columns, 0);
    terminal.process(output.replace('\n', "\r\n").as_bytes());
    normalize(terminal.screen().contents().trim_end())
}

#[test]
fn a_followed_run_fits_the_terminal() {
    let project = Project::new();
    project.write("agents/garden.md", AGENT);
    project.write("scripts/garden.yaml", SCRIPT);
    for columns in [20_u16, 40, 80, 200] {
        let env = [("TERM", "xterm"), ("COLUMNS", &*columns.to_string())];
        let run = ["run", "garden", "the garden"];
        let (output, code) = run_at_terminal(project.path(), &run, &env, &[("> ", "a\r")]);
        assert_eq!(code, Some(0), "{output}");
        std::fs::remove_dir_all(project.path().join(".longhaul/vault")).unwrap();
        let prompt = output.find("> ").unwrap() + "> ".len();
        let asked = screen_after(&output[..prompt], columns);
        let ended = screen_after(&output, columns);
        let card = asked.lines().skip_while(|line| !line.contains("asks  ")).skip(1);
        assert!(columns < 40 || card.count() <= 24, "{asked}");
        insta::assert_snapshot!(format!("{columns}_columns"), ended);
    }
}
