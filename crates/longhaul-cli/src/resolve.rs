//! Finds the run or gate that a person means: a whole id, its last six
//! letters, or `@last`.
//!
//! Never: guesses between two. A clash lists the candidates.

use longhaul_api::gate::GateView;
use longhaul_core::id::{GateId, RunId};
use longhaul_core::port::store::{GateFilter, RunFilter};

use crate::client::RunClient;
use crate::client::connect::connect;
use crate::error::CliError;
use crate::event_printer::first_line;
use crate::runtime;

/// So many of the newest are looked through for the end of an id.
const SEARCHED_MAX: usize = 10_000;

/// The shortest end of an id.
const SUFFIX_CHARS_MIN: usize = 6;

/// Looks up the run that is meant, and does this with it.
pub(crate) fn with_run<T>(
    said: &str,
    act: impl AsyncFnOnce(&RunClient, RunId) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let client = connect()?;
    runtime::current_thread()?.block_on(async {
        let run = resolve_run(&client, said).await?;
        act(&client, run).await
    })
}

/// Looks up the gate that is meant, and does this with it.
pub(crate) fn with_gate<T>(
    said: &str,
    act: impl AsyncFnOnce(&RunClient, GateView) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let client = connect()?;
    runtime::current_thread()?.block_on(async {
        let gate = resolve_gate(&client, said).await?;
        act(&client, gate).await
    })
}

/// The run that is meant.
pub(crate) async fn resolve_run(client: &RunClient, said: &str) -> anyhow::Result<RunId> {
    if let Ok(run) = said.parse::<RunId>() {
        return Ok(run);
    }
    if said == "@last" {
        let ask = RunFilter { limit: 1, ..RunFilter::default() };
        let rows = client.list_runs(ask).await?;
        return match rows.first() {
            Some(last) => Ok(last.id),
            None => Err(CliError::usage("there is no run yet")
                .hint("see it at work", "longhaul demo")
                .into()),
        };
    }
    let end = id_suffix(said, RunId::PREFIX)?;
    exactly_one(said, "run", &runs_ending_with(client, end).await?)
}

/// The runs whose ids end so.
async fn runs_ending_with(client: &RunClient, end: &str) -> anyhow::Result<Vec<RunId>> {
    let ask = RunFilter { limit: SEARCHED_MAX, ..RunFilter::default() };
    let rows = client.list_runs(ask).await?;
    let ids = rows.iter().map(|listed| listed.id);
    Ok(ids.filter(|id| id.to_string().ends_with(end)).collect())
}

/// The gate that is meant; a run stands for its only open one.
pub(crate) async fn resolve_gate(client: &RunClient, said: &str) -> anyhow::Result<GateView> {
    if let Ok(gate) = said.parse::<GateId>() {
        return client.gate(gate).await;
    }
    let is_run = said == "@last" || said.starts_with(RunId::PREFIX);
    if is_run {
        return only_open_gate(client, resolve_run(client, said).await?).await;
    }
    let end = id_suffix(said, GateId::PREFIX)?;
    let ask = GateFilter { limit: SEARCHED_MAX, ..GateFilter::default() };
    let gates = client.list_gates(ask).await?;
    let fits: Vec<GateId> =
        gates.iter().map(|gate| gate.id).filter(|id| id.to_string().ends_with(end)).collect();
    if fits.is_empty() && end == said {
        let run = exactly_one(said, "gate or run", &runs_ending_with(client, end).await?)?;
        return only_open_gate(client, run).await;
    }
    let id = exactly_one(said, "gate", &fits)?;
    client.gate(id).await
}

async fn only_open_gate(client: &RunClient, run: RunId) -> anyhow::Result<GateView> {
    let mut open = client.open_gates(run).await?;
    match (open.pop(), open.len()) {
        (Some(gate), 0) => Ok(gate),
        (None, _) => {
            // Says so if there is no such run at all.
            let view = client.show(run).await?;
            let stands = view.status.as_str();
            Err(CliError::usage(format!("{run} is {stands} and waits for no answer"))
                .hint("see what it does", format!("longhaul why {run}"))
                .into())
        }
        (Some(gate), more) => {
            let count = more + 1;
            let mut failure = CliError::usage(format!("{run} waits for {count} answers; name one"));
            for gate in open.iter().rev().chain([&gate]) {
                let id = gate.id;
                failure = failure.hint(&first_line(&gate.ask), format!("longhaul gates show {id}"));
            }
            Err(failure.into())
        }
    }
}

/// What lists those that could be meant.
const fn list_hint(of_gates: bool) -> (&'static str, &'static str) {
    match of_gates {
        true => ("what waits for an answer", "longhaul gates"),
        false => ("all runs", "longhaul ls --all"),
    }
}

fn id_suffix<'a>(said: &'a str, prefix: &str) -> anyhow::Result<&'a str> {
    let end = said.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).unwrap_or(said);
    if end.len() < SUFFIX_CHARS_MIN || !end.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        let words = format!(
            "`{said}` is no id: give the whole id, its last {SUFFIX_CHARS_MIN} letters or more, or @last"
        );
        let (what, command) = list_hint(prefix == GateId::PREFIX);
        return Err(CliError::usage(words).hint(what, command).into());
    }
    Ok(end)
}

fn exactly_one<Id: Copy + std::fmt::Display>(
    said: &str,
    what: &str,
    fits: &[Id],
) -> anyhow::Result<Id> {
    let (listed, command) = list_hint(what != "run");
    match fits {
        [only] => Ok(*only),
        [] => Err(CliError::usage(format!("there is no {what} that ends in `{said}`"))
            .hint(listed, command)
            .into()),
        several => {
            let names: Vec<String> = several.iter().take(10).map(ToString::to_string).collect();
            let words = format!("several end in `{said}`: {}", names.join(", "));
            Err(CliError::usage(words)
                .hint(&format!("give more letters; {listed}"), command)
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ambiguous_suffix_lists_the_candidates() {
        let said =
            |fits: &[RunId]| exactly_one("7k3qv9", "run", fits).map_err(|error| error.to_string());
        let ids = [RunId::from_bits(1), RunId::from_bits(2)];
        let clash = said(&ids).unwrap_err();
        assert!(ids.iter().all(|id| clash.contains(&id.to_string())), "{clash}");
        assert!(clash.contains("longhaul ls --all"), "{clash}");
        assert_eq!(said(&ids[..1]), Ok(ids[0]));
        assert!(said(&[]).unwrap_err().contains("no run that ends in `7k3qv9`"));
        let no = exactly_one::<GateId>("7k3qv9", "gate or run", &[]).unwrap_err();
        assert!(no.to_string().contains("longhaul gates"), "{no}");
        let no = id_suffix("nope", GateId::PREFIX).unwrap_err();
        assert!(no.to_string().contains("longhaul gates"), "{no}");
    }

    #[test]
    fn an_id_suffix_has_six_characters_or_more() {
        for (said, end) in [
            ("7k3qv9", Some("7k3qv9")),
            ("run_7k3qv9", Some("7k3qv9")),
            ("7k3qv", None),
            ("7k3 qv9", None),
            ("", None),
        ] {
            assert_eq!(id_suffix(said, RunId::PREFIX).ok(), end, "{said}");
        }
    }
}
