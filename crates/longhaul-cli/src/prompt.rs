//! The prompt at the terminal: shows gates (approvals and questions) and reads a person's answers.
//! The prompt is inactive if stdin or stderr is not a terminal.
//!
//! Invariant: a line that was typed before a gate was shown does not answer it.

use longhaul_api::gate::GateView;
use longhaul_api::operations::CLOSE_RUN;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::form::find_option_by_text;
use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateStatus, has_submit_again_tag,
};
use tokio::sync::mpsc;

use crate::answer::new_answer;
use crate::client::Client;
use crate::form_prompt::{FormPrompt, answer_command};
use crate::gate_card::{self, fitted_gate_card, gate_card};
use crate::output::{self, TypedLine};
use crate::terminal;

/// What the person typed at the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PromptInput {
    Approve(AnswerScope),
    Reject(Option<String>),
    /// An answer to a question, or a message to the run.
    Text(String),
    /// A message to the run, typed while nothing was asked.
    Message(String),
    /// Shows all of the gate, with the input of the call.
    ShowAll,
    /// Completes the run, which is open for messages, with its result.
    Close,
    Why,
    Detach,
}

/// What the prompt asks for, which decides the meaning of plain text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PromptMode {
    /// A decision about a gate. Text that is no command is not accepted.
    #[default]
    Decision,
    /// The answer to a question.
    Question,
    /// A message to a run that is open for messages.
    Message,
}

/// The prompt at the terminal of a followed run.
#[derive(Debug, Default)]
pub(crate) struct TerminalPrompt {
    /// Lines that the person types on stdin. `None` if nobody can be asked.
    lines: Option<mpsc::Receiver<TypedLine>>,
    /// Monotonic time from which on a line can answer the question that was asked last, in
    /// nanoseconds.
    earliest_answer: u64,
    /// Id of the gate that was printed last. `None` if no gate was printed.
    shown_gate: Option<GateId>,
    mode: PromptMode,
    /// Form of the shown gate, as far as it is filled in. `None` if the gate has no form.
    form: Option<FormPrompt>,
    /// Answers that the shown gate offers to choose from. Empty if it offers none.
    options: Vec<String>,
    /// The list of commands that was printed last.
    commands: String,
}

impl TerminalPrompt {
    /// Creates a prompt. The prompt is inactive if there is no terminal or `unattended` is set.
    pub(crate) fn new(unattended: bool) -> Self {
        let is_attended = !unattended && output::is_interactive();
        let read_lines = || terminal::read_typed_lines().unwrap_or_else(output::spawn_stdin_reader);
        Self { lines: is_attended.then(read_lines), ..Self::default() }
    }

    /// Returns whether a person can be asked at the terminal.
    pub(crate) const fn is_interactive(&self) -> bool {
        self.lines.is_some()
    }

    /// Prints the run's oldest open gate, unless that gate was the last one printed.
    pub(crate) async fn show_oldest_gate(
        &mut self,
        client: &Client,
        run: RunId,
    ) -> anyhow::Result<()> {
        let Some(gate) = oldest_open_gate(client, run).await? else {
            return Ok(());
        };
        if self.shown_gate == Some(gate.id) {
            return Ok(());
        }
        self.shown_gate = Some(gate.id);
        let is_question = matches!(gate.kind, GateKind::Question | GateKind::Blocked);
        self.mode = if is_question { PromptMode::Question } else { PromptMode::Decision };
        self.form = FormPrompt::for_gate(&gate);
        self.options.clone_from(&gate.options);
        let view = client.get_run(run).await?;
        if view.parent.is_some() && view.chain.is_none() {
            eprint_indented(&format!("the child run {run} of agent {}:", view.agent));
        }
        let card = match terminal::is_open() {
            true => fitted_gate_card(&gate, |line| indented_rows(line).len()),
            false => gate_card(&gate, gate_card::SHORT),
        };
        for gate_line in card {
            eprint_indented(&gate_line);
        }
        let (id, run) = (gate.id, gate.run);
        let can_unblock = !has_submit_again_tag(&gate.tags);
        if !can_unblock {
            eprint_indented(&format!("no answer can unblock the run:  longhaul cancel {run}"));
        } else if !self.is_interactive() {
            eprint_indented(&match is_question {
                true => format!("answer the question:  {}", answer_command(&gate)),
                false => format!("decide:  longhaul approve {id}    or  longhaul reject {id}"),
            });
        }
        if !self.is_interactive() {
            return Ok(());
        }
        let scopes: Vec<&str> = gate.scopes.iter().skip(1).map(|scope| scope.as_str()).collect();
        self.commands = if !can_unblock {
            "w why · d detach".to_owned()
        } else if self.form.is_some() {
            "type the answers, or: /r reject · /i all · /w why · /d detach".to_owned()
        } else if is_question {
            "type the answer, or: r reject · i all · w why · d detach".to_owned()
        } else {
            let scopes = match scopes.is_empty() {
                true => String::new(),
                false => format!(" [{}]", scopes.join("|")),
            };
            format!("a{scopes} approve · r [note] reject · s TEXT steer · i all · w why · d detach")
        };
        if self.form.is_some() && can_unblock {
            eprint_indented(&self.commands);
        }
        self.ask();
        Ok(())
    }

    /// Asks for a message to a run that is open for messages.
    pub(crate) fn show_message_prompt(&mut self) {
        (self.mode, self.form, self.earliest_answer) = (PromptMode::Message, None, 0);
        self.options.clear();
        eprint_indented("type a message · /end close · w why · d detach");
    }

    /// Asks for the answer to a gate that the caller has printed, with these commands.
    pub(crate) fn ask_about_shown_gate(&mut self, gate: GateId, commands: &str) {
        self.shown_gate = Some(gate);
        commands.clone_into(&mut self.commands);
        self.ask();
    }

    /// Asks for an answer: prints the next question of the form, or else the commands. What was typed
    /// before is discarded.
    fn ask(&mut self) {
        output::discard_typed_input();
        while let Some(Ok(line)) = self.lines.as_mut().map(mpsc::Receiver::try_recv) {
            eprint_unused_line(&line, "typed before the question");
        }
        match self.form.as_ref().and_then(FormPrompt::next_question) {
            Some(question) => eprint_indented(&question),
            None => eprint_indented(&self.commands),
        }
        self.earliest_answer = output::earliest_answer_time();
    }

    /// Forgets which gate was printed last, so that the gate is printed again.
    pub(crate) const fn reset_shown_gate(&mut self) {
        self.shown_gate = None;
    }

    /// Returns what the person types next: while nothing is asked, a message to the run.
    pub(crate) async fn next_input_if_asked(&mut self, is_asked: bool) -> PromptInput {
        if is_asked {
            return self.next_input().await;
        }
        while let Some(lines) = &mut self.lines
            && let Some(line) = lines.recv().await
        {
            match line.text.trim() {
                "" => {}
                "/d" | "/detach" => return PromptInput::Detach,
                "/w" | "/why" => return PromptInput::Why,
                text => return PromptInput::Message(text.to_owned()),
            }
        }
        // The next question finds the terminal closed.
        std::future::pending().await
    }

    /// Returns what the person types next. Never returns if the prompt is inactive.
    pub(crate) async fn next_input(&mut self) -> PromptInput {
        loop {
            let Some(lines) = &mut self.lines else {
                return std::future::pending().await;
            };
            let Some(line) = lines.recv().await else {
                // The terminal is closed, but the run continues.
                self.lines = None;
                return PromptInput::Detach;
            };
            if line.read_at < self.earliest_answer {
                eprint_unused_line(&line, output::TOO_EARLY);
                self.ask();
                continue;
            }
            let line = line.text;
            // A value of a form or an option may read like a command.
            let command = line.trim().strip_prefix('/');
            if self.form.is_some() && command.is_none() {
                if let Some(answer) = self.fill_form_and_take_answer(&line) {
                    return PromptInput::Text(answer);
                }
                continue;
            }
            if self.mode == PromptMode::Message && command == Some("end") {
                return PromptInput::Close;
            }
            if let Some(option) = find_option_by_text(&self.options, &line) {
                return PromptInput::Text(option.to_owned());
            }
            let text = command.unwrap_or(line.trim());
            match parse_prompt_line(text, self.mode) {
                _ if text.is_empty() => {}
                Some(input) => return input,
                None => eprint_indented(&self.commands),
            }
        }
    }

    /// Enters a line into the form of the shown gate. Returns the answer when the form is filled
    /// in, and `None` before that.
    fn fill_form_and_take_answer(&mut self, line: &str) -> Option<String> {
        let form = self.form.as_mut()?;
        if let Err(input_error) = form.enter_field_value(line) {
            eprint_indented(&input_error);
        }
        if form.next_question().is_none() {
            return self.form.take().map(|form| form.answer_json());
        }
        self.ask();
        None
    }

    /// Sends what the person typed to the run: an answer to the oldest open gate, or a message.
    pub(crate) async fn send_input_to_run(
        &mut self,
        client: &Client,
        run: RunId,
        input: PromptInput,
    ) -> anyhow::Result<()> {
        if let PromptInput::Message(text) = input {
            client.steer_run(run, text, SteerDelivery::AfterBatch).await?;
            return Ok(());
        }
        let gate = oldest_open_gate(client, run).await?;
        let is_other_gate = gate.as_ref().is_some_and(|gate| Some(gate.id) != self.shown_gate);
        if is_other_gate && !matches!(input, PromptInput::Why | PromptInput::Detach) {
            eprint_indented("the gate was closed meanwhile; the next one:");
            return self.show_oldest_gate(client, run).await;
        }
        let answer = match (input, &gate) {
            (PromptInput::Approve(scope), Some(gate)) if gate.scopes.contains(&scope) => {
                Answer { scope, ..new_answer(GateDecision::Approve) }
            }
            (PromptInput::Approve(scope), Some(_)) => {
                let reason =
                    format!("this gate can't be approved that widely ({})", scope.as_str());
                eprint_indented(&format!("{reason}; `a` approves it once"));
                return Ok(());
            }
            (PromptInput::Reject(note), Some(_)) => {
                Answer { note, ..new_answer(GateDecision::Reject) }
            }
            (PromptInput::Text(text), Some(_)) if self.mode == PromptMode::Question => {
                new_answer(GateDecision::Answer(text))
            }
            (PromptInput::Text(text), _) => {
                client.steer_run(run, text, SteerDelivery::AfterBatch).await?;
                if self.mode != PromptMode::Message {
                    eprint_indented("message queued; delivered when the run continues");
                }
                return Ok(());
            }
            (PromptInput::Close, _) => {
                client.send(CLOSE_RUN.at(run)).await?;
                return Ok(());
            }
            (PromptInput::ShowAll, Some(gate)) => {
                for line in gate_card(gate, gate_card::FULL) {
                    eprint_indented(&line);
                }
                self.ask();
                return Ok(());
            }
            (PromptInput::Why, _) => {
                eprint_indented(&client.explain_run(run).await?.message);
                return Ok(());
            }
            (
                PromptInput::Approve(_)
                | PromptInput::Reject(_)
                | PromptInput::Message(_)
                | PromptInput::ShowAll
                | PromptInput::Detach,
                _,
            ) => {
                return Ok(());
            }
        };
        let Some(gate) = gate else { return Ok(()) };
        client.answer_gate(&gate, Answer { digest: gate.digest, ..answer }).await?;
        Ok(())
    }
}

/// Returns the run's oldest gate that is still open.
pub(crate) async fn oldest_open_gate(
    client: &Client,
    run: RunId,
) -> anyhow::Result<Option<GateView>> {
    let mut gates = client.list_open_gates(run).await?;
    gates.retain(|gate| gate.status == GateStatus::Open);
    Ok(gates.pop())
}

/// Parses a line. `None` means that it is no command and that the prompt takes no other text.
fn parse_prompt_line(line: &str, mode: PromptMode) -> Option<PromptInput> {
    use PromptMode::{Decision, Message, Question};
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let note = (!rest.is_empty()).then(|| rest.to_owned());
    Some(match (command, mode) {
        ("a" | "approve" | "y" | "yes", Decision) => {
            let scope = note.as_deref().unwrap_or(AnswerScope::Once.as_str());
            let scope = scope.trim_start_matches("--for ");
            PromptInput::Approve(serde_json::from_value(scope.into()).ok()?)
        }
        ("r" | "reject", Decision | Question) => PromptInput::Reject(note),
        ("n" | "no", Decision) => PromptInput::Reject(note),
        ("s" | "steer", Decision) if note.is_some() => PromptInput::Text(rest.to_owned()),
        ("i" | "all", Decision | Question) if note.is_none() => PromptInput::ShowAll,
        ("w" | "why", _) if note.is_none() => PromptInput::Why,
        ("d" | "detach", _) if note.is_none() => PromptInput::Detach,
        (_, Question | Message) => PromptInput::Text(line.to_owned()),
        (_, Decision) => return None,
    })
}

/// Prints a line below the events, to which the prompt belongs. It is wrapped to the width of the
/// terminal.
fn eprint_indented(line: &str) {
    for row in indented_rows(line) {
        output::eprint_line(&row);
    }
}

fn indented_rows(line: &str) -> Vec<String> {
    let indent = if terminal::is_narrow() { "" } else { "          " };
    let columns = match terminal::is_open() {
        true => terminal::columns().saturating_sub(indent.len()).max(8),
        false => usize::MAX,
    };
    let parts = terminal::wrap_line(line, columns).into_iter();
    parts.map(|part| format!("{indent}{part}")).collect()
}

/// Says that a typed line is not used, unless the line is empty.
fn eprint_unused_line(line: &TypedLine, reason: &str) {
    if !line.text.trim().is_empty() {
        eprint_indented(&output::unused_line_note(&line.text, reason));
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::time::Clock as _;
    use longhaul_engine::clock::SystemClock;

    use super::*;

    #[test]
    fn prompt_lines_parse_to_commands_or_text() {
        let text_input = |text: &str| PromptInput::Text(text.to_owned());
        use PromptMode::{Decision, Message, Question};
        for (line, mode, expected) in [
            ("a", Decision, Some(PromptInput::Approve(AnswerScope::Once))),
            ("a run", Decision, Some(PromptInput::Approve(AnswerScope::Run))),
            ("yes --for agent", Decision, Some(PromptInput::Approve(AnswerScope::Agent))),
            ("a project", Decision, Some(PromptInput::Approve(AnswerScope::Project))),
            ("a always", Decision, None),
            ("r not now", Decision, Some(PromptInput::Reject(Some("not now".into())))),
            ("r not now", Message, Some(text_input("r not now"))),
            ("s keep the old name", Decision, Some(text_input("keep the old name"))),
            ("go left", Question, Some(text_input("go left"))),
            ("go left", Message, Some(text_input("go left"))),
            ("a", Question, Some(text_input("a"))),
            ("w", Question, Some(PromptInput::Why)),
            ("d", Message, Some(PromptInput::Detach)),
            ("what?", Decision, None),
        ] {
            assert_eq!(parse_prompt_line(line, mode), expected, "{line} {mode:?}");
        }
    }

    /// Returns a prompt, and the sender of the lines that are typed at it.
    fn prompt(mode: PromptMode) -> (TerminalPrompt, mpsc::Sender<TypedLine>) {
        let (sender, lines) = mpsc::channel(4);
        let prompt = TerminalPrompt {
            lines: Some(lines),
            mode,
            options: vec!["merge".into(), "reject".into()],
            ..TerminalPrompt::default()
        };
        (prompt, sender)
    }

    fn typed_line(text: &str, read_at: u64) -> TypedLine {
        TypedLine { text: text.to_owned(), read_at }
    }

    #[tokio::test]
    async fn an_offered_option_or_a_message_may_read_like_a_command() {
        let (mut prompt, sender) = prompt(PromptMode::Question);
        for (line, expected) in [
            ("Reject", PromptInput::Text("reject".into())),
            ("/reject", PromptInput::Reject(None)),
            ("reject it", PromptInput::Reject(Some("it".into()))),
        ] {
            sender.send(typed_line(line, 0)).await.unwrap();
            assert_eq!(prompt.next_input().await, expected, "{line}");
        }
        prompt.show_message_prompt();
        for (line, expected) in
            [("/end", PromptInput::Close), ("end", PromptInput::Text("end".into()))]
        {
            sender.send(typed_line(line, 0)).await.unwrap();
            assert_eq!(prompt.next_input().await, expected, "{line}");
        }
    }

    #[tokio::test]
    async fn a_line_that_was_typed_before_the_question_or_too_soon_is_no_answer() {
        let (mut prompt, sender) = prompt(PromptMode::Decision);
        sender.send(typed_line("a", u64::MAX)).await.unwrap();
        let asked_at = SystemClock.monotonic_nanos();
        prompt.ask();
        assert!(prompt.earliest_answer >= asked_at + 300_000_000);
        let (answer, typing) = tokio::join!(prompt.next_input(), async {
            // The line from before the question is gone. These lines ask again.
            for read_at in [0, asked_at] {
                sender.send(typed_line("a run", read_at)).await.unwrap();
                while sender.capacity() < sender.max_capacity() {
                    tokio::task::yield_now().await;
                }
            }
            sender.send(typed_line("r no", u64::MAX)).await
        });
        typing.unwrap();
        assert_eq!(answer, PromptInput::Reject(Some("no".into())));
    }

    #[tokio::test]
    async fn a_line_typed_while_nothing_is_asked_is_a_message() {
        let (mut prompt, sender) = prompt(PromptMode::Decision);
        for (line, expected) in [
            ("a", PromptInput::Message("a".to_owned())),
            (" /why", PromptInput::Why),
            ("/detach", PromptInput::Detach),
        ] {
            sender.send(typed_line(line, u64::MAX)).await.unwrap();
            assert_eq!(prompt.next_input_if_asked(false).await, expected);
        }
        sender.send(typed_line("a", u64::MAX)).await.unwrap();
        let approval = PromptInput::Approve(AnswerScope::Once);
        assert_eq!(prompt.next_input_if_asked(true).await, approval);
    }
}
