//! Finds the run or gate that a person means: a whole id, its last six
//! letters, or `@last`.
//!
//! Never: guesses between two. A clash lists the candidates.

use longhaul_api::gate::GateView;
use longhaul_core::id::{GateId, RunId};
use longhaul_core::port::store::{GatesAsk, RowsAsk};

use crate::client::RunClient;
use crate::client::connect::look;
use crate::error::CliError;
use crate::runtime;
use crate::teller::short;

/// So many of the newest are looked through for the end of an id.
const LOOKED_THROUGH: usize = 10_000;

/// The shortest end of an id.
const END_MIN: usize = 6;

/// Looks up the run that is meant, and does this with it.
pub(crate) fn with_run<T>(
    said: &str,
    act: impl AsyncFnOnce(&RunClient, RunId) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let client = look()?;
    runtime::small()?.block_on(async {
        let run = run(&client, said).await?;
        act(&client, run).await
    })
}

/// Looks up the gate that is meant, and does this with it.
pub(crate) fn at_gate<T>(
    said: &str,
    act: impl AsyncFnOnce(&RunClient, GateView) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let client = look()?;
    runtime::small()?.block_on(async {
        let gate = gate(&client, said).await?;
        act(&client, gate).await
    })
}

/// The run that is meant.
pub(crate) async fn run(client: &RunClient, said: &str) -> anyhow::Result<RunId> {
    if let Ok(run) = said.parse::<RunId>() {
        return Ok(run);
    }
    if said == "@last" {
        let ask = RowsAsk {
            limit: 1,
            ..RowsAsk::default()
        };
        let rows = client.brief(ask).await?;
        return match rows.first() {
            Some(last) => Ok(last.id),
            None => Err(CliError::usage("there is no run yet")
                .hint("see it at work", "longhaul demo")
                .into()),
        };
    }
    let end = end_of(said, RunId::PREFIX)?;
    one(said, "run", &runs(client, end).await?)
}

/// The runs whose ids end so.
async fn runs(client: &RunClient, end: &str) -> anyhow::Result<Vec<RunId>> {
    let ask = RowsAsk {
        limit: LOOKED_THROUGH,
        ..RowsAsk::default()
    };
    let rows = client.brief(ask).await?;
    let ids = rows.iter().map(|listed| listed.id);
    Ok(ids.filter(|id| id.to_string().ends_with(end)).collect())
}

/// The gate that is meant; a run stands for its only open one.
pub(crate) async fn gate(client: &RunClient, said: &str) -> anyhow::Result<GateView> {
    if let Ok(gate) = said.parse::<GateId>() {
        return client.gate(gate).await;
    }
    let is_run = said == "@last" || said.starts_with(RunId::PREFIX);
    if is_run {
        return only_gate(client, run(client, said).await?).await;
    }
    let end = end_of(said, GateId::PREFIX)?;
    let ask = GatesAsk {
        limit: LOOKED_THROUGH,
        ..GatesAsk::default()
    };
    let gates = client.gates(ask).await?;
    let fits: Vec<GateId> = gates
        .iter()
        .map(|gate| gate.id)
        .filter(|id| id.to_string().ends_with(end))
        .collect();
    if fits.is_empty() && end == said {
        let run = one(said, "gate or run", &runs(client, end).await?)?;
        return only_gate(client, run).await;
    }
    let id = one(said, "gate", &fits)?;
    client.gate(id).await
}

async fn only_gate(client: &RunClient, run: RunId) -> anyhow::Result<GateView> {
    let mut open = client.open_gates(run).await?;
    match (open.pop(), open.len()) {
        (Some(gate), 0) => Ok(gate),
        (None, _) => {
            // Says so if there is no such run at all.
            let view = client.show(run).await?;
            let stands = view.status.as_str();
            Err(
                CliError::usage(format!("{run} is {stands} and waits for no answer"))
                    .hint("see what it does", format!("longhaul why {run}"))
                    .into(),
            )
        }
        (Some(gate), more) => {
            let count = more + 1;
            let mut failure = CliError::usage(format!("{run} waits for {count} answers; name one"));
            for gate in open.iter().rev().chain([&gate]) {
                let id = gate.id;
                failure = failure.hint(&short(&gate.ask), format!("longhaul gates show {id}"));
            }
            Err(failure.into())
        }
    }
}

/// What lists those that could be meant.
const fn list(of_gates: bool) -> (&'static str, &'static str) {
    match of_gates {
        true => ("what waits for an answer", "longhaul gates"),
        false => ("all runs", "longhaul ls --all"),
    }
}

fn end_of<'a>(said: &'a str, prefix: &str) -> anyhow::Result<&'a str> {
    let end = said
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('_'))
        .unwrap_or(said);
    if end.len() < END_MIN || !end.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        let words = format!(
            "`{said}` is no id: give the whole id, its last {END_MIN} letters or more, or @last"
        );
        let (what, command) = list(prefix == GateId::PREFIX);
        return Err(CliError::usage(words).hint(what, command).into());
    }
    Ok(end)
}

fn one<Id: Copy + std::fmt::Display>(said: &str, what: &str, fits: &[Id]) -> anyhow::Result<Id> {
    let (listed, command) = list(what != "run");
    match fits {
        [only] => Ok(*only),
        [] => Err(
            CliError::usage(format!("there is no {what} that ends in `{said}`"))
                .hint(listed, command)
                .into(),
        ),
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
    fn a_clash_lists_the_candidates() {
        let said = |fits: &[RunId]| one("7k3qv9", "run", fits).map_err(|error| error.to_string());
        let ids = [RunId::from_bits(1), RunId::from_bits(2)];
        let clash = said(&ids).unwrap_err();
        assert!(
            ids.iter().all(|id| clash.contains(&id.to_string())),
            "{clash}"
        );
        assert!(clash.contains("longhaul ls --all"), "{clash}");
        assert_eq!(said(&ids[..1]), Ok(ids[0]));
        assert!(
            said(&[])
                .unwrap_err()
                .contains("no run that ends in `7k3qv9`")
        );
        let no = one::<GateId>("7k3qv9", "gate or run", &[]).unwrap_err();
        assert!(no.to_string().contains("longhaul gates"), "{no}");
        let no = end_of("nope", GateId::PREFIX).unwrap_err();
        assert!(no.to_string().contains("longhaul gates"), "{no}");
    }

    #[test]
    fn an_end_of_an_id_is_six_letters_or_more() {
        for (said, end) in [
            ("7k3qv9", Some("7k3qv9")),
            ("run_7k3qv9", Some("7k3qv9")),
            ("7k3qv", None),
            ("7k3 qv9", None),
            ("", None),
        ] {
            assert_eq!(end_of(said, RunId::PREFIX).ok(), end, "{said}");
        }
    }
}
