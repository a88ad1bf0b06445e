//! Computes the effect facts of tool calls that a person has to approve: files and lines, network,
//! protected paths, how to undo the call, and a diff.
//!
//! The facts are journaled with the call, so that an approval refers to what was shown, whatever
//! happens to the files meanwhile. Invariant: they never delay or fail a call. What can't be
//! computed in time is not known.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use longhaul_core::event::turn::ToolCallClassification;
use longhaul_core::id::{CallId, Epoch};
use longhaul_core::message::{Reply, ToolCall};
use longhaul_core::policy::effect_facts::{
    ANY_HOST, COMPARED_BYTES_MAX, EffectFacts, FileChangeKind, FileContent, FileEffect,
    PredictedEffects, PredictedFileChange,
};
use longhaul_core::port::redact::Redact;
use longhaul_core::port::sandbox::Sandbox;
use longhaul_core::time::Millis;
use longhaul_run::{Run, needs_approval};
use similar::{ChangeTag, TextDiff};

use crate::drive::run_env::RunEnv;

/// Maximum time for computing the effect facts of a call (what it would change, for its approval).
/// The facts of all calls of a reply are computed at the same time.
const FACTS_TIMEOUT: Millis = Millis(2_000);
/// Maximum time for comparing the texts of a file before and after a change. After it the
/// comparison is coarser, but still correct.
const DIFF_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum number of files whose texts are compared.
const COMPARED_FILES_MAX: usize = 20;

/// Instruction for people to undo a change whose complete diff is shown.
const REVERSE_DIFF: &str = "apply the diff in reverse (patch -R -p1)";

/// Adds the effect facts (what a call would change, such as a diff) to those calls of a reply that
/// a person has to approve. Nothing is computed for the other calls.
pub(crate) async fn add_effect_facts(
    (env, run, sandbox): (&RunEnv, &Run, Option<Arc<dyn Sandbox>>),
    redact: &Arc<dyn Redact>,
    reply: &Reply,
    calls: &mut [ToolCallClassification],
) {
    let calls = (1..).zip(reply.tool_calls().zip(calls));
    let gated_calls = calls.filter(|(_, (_, call))| needs_approval(run.control(), call));
    let work = gated_calls.map(async |(index, (call, classification))| {
        let id = CallId { turn: run.control().turn(), index };
        let facts = async {
            let sandbox = match (classification.sandboxed, sandbox.clone()) {
                (false, _) => CallSandbox::NotNeeded,
                (true, None) => CallSandbox::NotOpen,
                (true, Some(sandbox)) => CallSandbox::Open(sandbox),
            };
            let predicted = predict_effects((env, run), (id, call), sandbox).await?;
            effect_facts(predicted, Arc::clone(redact)).await
        };
        classification.facts = tokio::select! {
            biased;
            facts = facts => facts.map(Box::new),
            () = env.clock.sleep(FACTS_TIMEOUT) => None,
        };
    });
    join_all(work).await;
}

/// The sandbox that a call works in, for the prediction of its effects.
enum CallSandbox {
    /// The call works on this machine.
    NotNeeded,
    /// The driver has not opened the sandbox.
    NotOpen,
    Open(Arc<dyn Sandbox>),
}

/// Asks the tool of a call what the call would change. `None` means that the changes are not known.
async fn predict_effects(
    (env, run): (&RunEnv, &Run),
    (id, call): (CallId, &ToolCall),
    sandbox: CallSandbox,
) -> Option<PredictedEffects> {
    let registered = env.tool(&call.name)?;
    let tool = registered.tool.as_ref()?;
    let input = env.resolve_tool_input(run.id(), registered, call.input.to_value());
    let (input, _) = input.await.ok()?;
    let mut ctx = env.tool_context(run, id, Epoch::default());
    let config = match sandbox {
        CallSandbox::NotNeeded => None,
        // Without the sandbox, the tool would look at the files of this machine.
        CallSandbox::NotOpen => return None,
        CallSandbox::Open(sandbox) => {
            ctx.sandbox = Some(sandbox);
            env.agent.sandbox_config()
        }
    };
    // A tool that panics knows nothing. The call itself is still possible.
    let predicted = AssertUnwindSafe(tool.predict_effects(&input, &ctx)).catch_unwind().await;
    let mut predicted = predicted.ok().filter(|effects| *effects != PredictedEffects::default())?;
    if let Some(config) = config {
        // A command reaches what the sandbox reaches. Other calls know their hosts.
        let reaches_any = |hosts: &Vec<String>| hosts.iter().any(|host| host == ANY_HOST);
        if predicted.network.as_ref().is_some_and(reaches_any) {
            predicted.network = Some(config.reachable_hosts());
        }
    }
    Some(predicted)
}

/// Returns the facts that an approval shows about the predicted effects of a call, without secrets.
/// Texts are compared on a blocking thread. `None` if that thread panicked.
async fn effect_facts(effects: PredictedEffects, redact: Arc<dyn Redact>) -> Option<EffectFacts> {
    let has_files = effects.files.as_ref().is_some_and(|files| !files.is_empty());
    if !has_files {
        return Some(describe_effects(effects, &*redact));
    }
    let describe = move || describe_effects(effects, &*redact);
    tokio::task::spawn_blocking(describe).await.ok()
}

fn describe_effects(effects: PredictedEffects, redact: &dyn Redact) -> EffectFacts {
    let clean = |text: String| redact.redact(&text).into_owned();
    let clean_list = |list: Vec<String>| list.into_iter().map(clean).collect();
    let changes = effects.files.map(|files| {
        let changed = files
            .iter()
            .filter(|file| file.before != file.after || matches!(file.after, FileContent::Unknown));
        let described = changed.enumerate();
        let described = described
            .map(|(index, file)| describe_file_change(file, redact, index < COMPARED_FILES_MAX));
        described.collect::<Vec<DescribedFileChange>>()
    });
    let described = || changes.iter().flatten();
    let is_reversible = described().count() > 0 && described().all(|file| file.is_whole);
    let diff: String = described().map(|file| file.diff.as_str()).collect();
    let mut facts = EffectFacts {
        diff: Some(diff).filter(|diff| !diff.is_empty()),
        files: changes.map(|files| files.into_iter().map(|file| file.effect).collect()),
        more_files: 0,
        network: effects.network.map(clean_list),
        protected_paths: clean_list(effects.protected_paths),
        undo: effects.undo.map(clean),
    };
    if facts.undo.is_none() && is_reversible && facts.is_diff_within_limit() {
        facts.undo = Some(REVERSE_DIFF.to_owned());
    }
    facts.truncated_for_gate()
}

struct DescribedFileChange {
    effect: FileEffect,
    /// Unified diff. Empty if the texts can't be compared.
    diff: String,
    /// Whether the diff shows the whole change: the texts were compared, and no secret was redacted
    /// in them.
    is_whole: bool,
}

fn describe_file_change(
    file: &PredictedFileChange,
    redact: &dyn Redact,
    is_compared: bool,
) -> DescribedFileChange {
    // A line break would look like a line of the diff.
    let path = redact.redact(&file.path).replace(char::is_control, "\u{fffd}");
    let change = match (&file.before, &file.after) {
        (FileContent::Absent, _) => FileChangeKind::Create,
        (_, FileContent::Absent) => FileChangeKind::Delete,
        (_, _) => FileChangeKind::Change,
    };
    let texts = (comparable_text(&file.before), comparable_text(&file.after));
    let mut effect = FileEffect { path, change, lines_added: None, lines_removed: None };
    let ((Some(before), Some(after)), true) = (texts, is_compared) else {
        return DescribedFileChange { effect, diff: String::new(), is_whole: false };
    };
    let ((added, removed), mut diff) = counts_and_diff((before, after), &effect);
    (effect.lines_added, effect.lines_removed) = (Some(added), Some(removed));
    // Redacted before the comparison, because a diff splits a secret of several lines.
    let (clean_before, clean_after) = (redact.redact(before), redact.redact(after));
    let is_whole = matches!((&clean_before, &clean_after), (Cow::Borrowed(_), Cow::Borrowed(_)));
    if !is_whole {
        diff = counts_and_diff((&clean_before, &clean_after), &effect).1;
    }
    DescribedFileChange { effect, diff, is_whole }
}

/// Returns the text of a file for a comparison, which is empty if the file does not exist. `None`
/// if the text is unknown or too long to be compared.
fn comparable_text(content: &FileContent) -> Option<&str> {
    match content {
        FileContent::Absent => Some(""),
        FileContent::Text(text) => (text.len() <= COMPARED_BYTES_MAX).then_some(text),
        FileContent::Unknown => None,
    }
}

/// Returns the number of added and removed lines, and the unified diff.
fn counts_and_diff((before, after): (&str, &str), file: &FileEffect) -> ((usize, usize), String) {
    // Lines end as they do for `patch`: a carriage return alone does not end one.
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    let (old_lines, new_lines) = (lines(before), lines(after));
    let diff = TextDiff::configure()
        .timeout(DIFF_TIMEOUT)
        .newline_terminated(true)
        .diff_slices(&old_lines, &new_lines);
    let count = |tag| diff.iter_all_changes().filter(|line| line.tag() == tag).count();
    let lines = (count(ChangeTag::Insert), count(ChangeTag::Delete));
    // `patch` reads a path with spaces up to a tab.
    let end = if file.path.contains(char::is_whitespace) { "\t" } else { "" };
    let (old, new) = (format!("a/{}{end}", file.path), format!("b/{}{end}", file.path));
    let (old, new) = match file.change {
        FileChangeKind::Create => ("/dev/null", new.as_str()),
        FileChangeKind::Delete => (old.as_str(), "/dev/null"),
        FileChangeKind::Change => (old.as_str(), new.as_str()),
    };
    (lines, diff.unified_diff().header(old, new).to_string())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use longhaul_core::policy::effect_facts::FileContent::{Absent, Text, Unknown};
    use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects, PredictedFileChange};
    use longhaul_core::port::redact::Redact;

    use super::describe_effects;

    /// Test redactor that knows one secret, which has two lines.
    #[derive(Debug)]
    struct TwoLineSecretRedactor;

    const KEY: &str = "-- key\nabc --";

    impl Redact for TwoLineSecretRedactor {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            match text.contains(KEY) {
                true => text.replace(KEY, "{{secret:KEY}}").into(),
                false => text.into(),
            }
        }
    }

    fn text_content(text: &str) -> FileContent {
        Text(text.to_owned())
    }

    fn assert_effect_facts(files: Vec<(&str, FileContent, FileContent)>, expected: &str) {
        let files = files.into_iter().map(|(path, before, after)| PredictedFileChange {
            path: path.to_owned(),
            before,
            after,
        });
        let effects =
            PredictedEffects { files: Some(files.collect()), ..PredictedEffects::default() };
        let facts = describe_effects(effects, &TwoLineSecretRedactor);
        let rows = facts.label_and_text_rows();
        let row = |label| rows.iter().find(|row| row.0 == label).map_or("", |row| &row.1);
        let diff = facts.diff.as_deref().unwrap_or("(no diff)\n");
        assert_eq!(format!("{}; {}\n{diff}", row("Files"), row("Undo")), expected);
    }

    #[test]
    fn changes_have_line_counts_and_a_diff() {
        let reverse = "apply the diff in reverse (patch -R -p1)";
        assert_effect_facts(
            vec![("a b", text_content("x\ry\n"), text_content("x\rz\n"))],
            &format!(
                "change a b (+1 -1 lines); {reverse}\n--- a/a b\t\n+++ b/a b\t\n@@ -1 +1 @@\n\
                 -x\ry\n+x\rz\n"
            ),
        );
        assert_effect_facts(
            vec![("a.md", text_content("one\ntwo\nthree\n"), text_content("one\n2\nthree\nfour"))],
            &format!(
                "change a.md (+2 -1 lines); {reverse}\n--- a/a.md\n+++ b/a.md\n@@ -1,3 +1,4 @@\n \
                 one\n-two\n+2\n three\n+four\n\\ No newline at end of file\n"
            ),
        );
        assert_effect_facts(
            vec![("a\n+x", Absent, text_content("1\n")), ("b", text_content("1\n2\n"), Absent)],
            &format!(
                "create a\u{fffd}+x (+1 -0 lines), delete b (+0 -2 lines); {reverse}\n--- /dev/null\n+++ \
                 b/a\u{fffd}+x\n@@ -0,0 +1 @@\n+1\n--- a/b\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n"
            ),
        );
        assert_effect_facts(
            vec![("a", text_content("same"), text_content("same"))],
            "none; not known before the call\n(no diff)\n",
        );
        let unknown = "change a (lines not known); not known before the call\n(no diff)\n";
        assert_effect_facts(vec![("a", Unknown, text_content("x"))], unknown);
        assert_effect_facts(vec![("a", Unknown, Unknown)], unknown);
        let long = "x\n".repeat(600_000);
        assert_effect_facts(vec![("a", text_content(&long), text_content("x"))], unknown);
    }

    #[test]
    fn a_secret_of_several_lines_is_not_in_the_diff() {
        assert_effect_facts(
            vec![(
                "a",
                text_content(&format!("a\n{KEY}\nb\n")),
                text_content(&format!("a\n{KEY}\nc\n")),
            )],
            "change a (+1 -1 lines); not known before the call\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n \
             a\n {{secret:KEY}}\n-b\n+c\n",
        );
        assert_effect_facts(
            vec![("a", text_content(&format!("{KEY}\n")), text_content("x\n"))],
            "change a (+1 -2 lines); not known before the call\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n\
             -{{secret:KEY}}\n+x\n",
        );
    }

    #[test]
    fn no_undo_is_offered_if_the_diff_is_truncated() {
        let lines: String = (0..3_000).map(|line| format!("line {line}\n")).collect();
        let files = vec![PredictedFileChange {
            path: "a".to_owned(),
            before: text_content("x\n"),
            after: text_content(&lines),
        }];
        let effects = PredictedEffects { files: Some(files), ..PredictedEffects::default() };
        let facts = describe_effects(effects, &TwoLineSecretRedactor);
        assert_eq!((facts.undo, facts.files.unwrap()[0].lines_added), (None, Some(3_000)));
        assert!(facts.diff.unwrap().lines().last().unwrap().starts_with("… and "));
    }
}
