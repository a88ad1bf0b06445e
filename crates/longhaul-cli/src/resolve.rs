//! Finds the run, gate or remembered approval that the command line names: by its whole id, at least the last six
//! characters of the id, or `@last`. If several ids match, the error lists them.

use std::fmt::Display;

use longhaul_api::gate::GateView;
use longhaul_api::operations::{LIST_GATES, LIST_RULES, SHOW_GATE};
use longhaul_api::query::{GatesQuery, RulesQuery, RunsQuery};
use longhaul_api::run_list::RunBriefView;
use longhaul_core::id::{GateId, RuleId, RunId};
use longhaul_core::status::Status;

use crate::client::Client;
use crate::client::connect::with_client;
use crate::error::{CliError, fail};
use crate::event_printer::first_line;

/// Maximum number of the newest runs or gates that are searched for an id suffix.
const SEARCHED_MAX: usize = 10_000;

/// Number of newest runs among which `@last` searches for the newest one without a parent.
const LAST_RUNS: usize = 100;

/// Minimum number of characters of an id suffix.
const SUFFIX_CHARS_MIN: usize = 6;

/// Connects to the store, finds the run that the command line names, and calls `act` with the
/// client and the run.
pub(crate) fn with_resolved_run<T>(
    id: &str,
    act: impl AsyncFnOnce(&Client, RunId) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    with_client(async |client| {
        let run = resolve_run_id(client, id).await?;
        act(client, run).await
    })
}

/// Connects to the store, finds the gate that the command line names, and calls `act` with the
/// client and the gate.
pub(crate) fn with_resolved_gate<T>(
    id: &str,
    act: impl AsyncFnOnce(&Client, GateView) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    with_client(async |client| {
        let gate = resolve_gate_by_gate_or_run_id(client, id).await?;
        act(client, gate).await
    })
}

/// Finds the run with this id, id suffix or `@last`, the newest run that is not a child.
pub(crate) async fn resolve_run_id(client: &Client, id: &str) -> anyhow::Result<RunId> {
    if let Ok(run) = id.parse::<RunId>() {
        return Ok(run);
    }
    if id == "@last" {
        let rows = client.list_runs(RunsQuery::default(), LAST_RUNS).await?;
        let is_child = |row: &RunBriefView| row.parent.is_some() && row.chain.is_none();
        return match rows.iter().find(|row| !is_child(row)).or(rows.first()) {
            Some(row) if is_child(row) => Ok(client.get_run(row.id).await?.root),
            Some(row) => Ok(row.id),
            None => fail("there is no run yet", "try the demo", "longhaul demo"),
        };
    }
    let end = parse_id_suffix(id, RunId::PREFIX)?;
    expect_one_id_match(id, "run", &runs_with_id_suffix(client, end).await?)
}

fn all_runs() -> RunsQuery {
    RunsQuery { all_runs: true, ..RunsQuery::default() }
}

/// Returns the runs whose ids end with this suffix.
async fn runs_with_id_suffix(client: &Client, suffix: &str) -> anyhow::Result<Vec<RunId>> {
    let rows = client.list_runs(all_runs(), SEARCHED_MAX).await?;
    Ok(with_suffix(rows.iter().map(|row| row.id), suffix))
}

fn with_suffix<Id: Display>(ids: impl Iterator<Item = Id>, suffix: &str) -> Vec<Id> {
    ids.filter(|id| id.to_string().ends_with(suffix)).collect()
}

/// Finds the remembered approval with this id or id suffix, also if it is revoked.
pub(crate) async fn resolve_rule_id(client: &Client, id: &str) -> anyhow::Result<RuleId> {
    if let Ok(rule) = id.parse::<RuleId>() {
        return Ok(rule);
    }
    let suffix = parse_id_suffix(id, RuleId::PREFIX)?;
    let query = RulesQuery { all: true, ..RulesQuery::default() };
    let rules = client.list(LIST_RULES, query, SEARCHED_MAX).await?;
    let matches = with_suffix(rules.iter().map(|rule| rule.id), suffix);
    expect_one_id_match(id, RuleId::PREFIX, &matches)
}

/// Finds the id with this suffix among the ids of things of this kind.
pub(crate) fn resolve_id_suffix<Id: Display + Copy>(
    suffix: &str,
    kind: &'static str,
    prefix: &'static str,
    ids: impl Iterator<Item = Id>,
) -> anyhow::Result<Id> {
    let end = parse_id_suffix(suffix, prefix)?;
    expect_one_id_match(suffix, kind, &with_suffix(ids, end))
}

/// Finds the gate with this id or id suffix. The id of a run, or `@last`, stands for the only open
/// gate of the run.
pub(crate) async fn resolve_gate_by_gate_or_run_id(
    client: &Client,
    gate_or_run: &str,
) -> anyhow::Result<GateView> {
    if let Ok(gate) = gate_or_run.parse::<GateId>() {
        return client.send(SHOW_GATE.at(gate)).await;
    }
    let is_run = gate_or_run == "@last" || gate_or_run.starts_with(RunId::PREFIX);
    if is_run {
        return find_only_open_gate(client, resolve_run_id(client, gate_or_run).await?).await;
    }
    let suffix = parse_id_suffix(gate_or_run, GateId::PREFIX)?;
    let gates = client.list(LIST_GATES, GatesQuery::default(), SEARCHED_MAX).await?;
    let matches = with_suffix(gates.iter().map(|gate| gate.id), suffix);
    if matches.is_empty() && suffix == gate_or_run {
        let runs = runs_with_id_suffix(client, suffix).await?;
        let run = expect_one_id_match(gate_or_run, "gate or run", &runs)?;
        return find_only_open_gate(client, run).await;
    }
    let id = expect_one_id_match(gate_or_run, "gate", &matches)?;
    client.send(SHOW_GATE.at(id)).await
}

async fn find_only_open_gate(client: &Client, run: RunId) -> anyhow::Result<GateView> {
    let mut gates = client.list_open_gates(run).await?;
    // An ended run of a chain stands for the newest run of the chain.
    if gates.is_empty() {
        let newest = client.get_run(run).await?.newest_run_in_chain();
        gates = client.list_open_gates(newest).await?;
    }
    // A run without a gate of its own stands for its open child runs.
    if gates.is_empty() {
        let status = vec![Status::Waiting, Status::Blocked];
        let query = RunsQuery { parent: Some(run), status, ..RunsQuery::default() };
        for child in client.list_runs(query, LAST_RUNS).await? {
            gates.extend(client.list_open_gates(child.id).await?);
        }
    }
    match (gates.pop(), gates.len()) {
        (Some(gate), 0) => Ok(gate),
        (None, _) => {
            // Fails if there is no such run at all.
            let view = client.get_run(run).await?;
            let status = view.status.as_str();
            fail(
                format!("{run} is {status} and is not waiting for an answer"),
                "see what the run does",
                format!("longhaul why {run}"),
            )
        }
        (Some(gate), other_count) => {
            let count = other_count + 1;
            let mut failure =
                CliError::usage_error(format!("{run} has {count} open gates; give the id of one"));
            for gate in gates.iter().rev().chain([&gate]) {
                let id = gate.id;
                failure =
                    failure.with_hint(&first_line(&gate.ask), format!("longhaul gates show {id}"));
            }
            Err(failure.into())
        }
    }
}

/// Returns a hint, as description and command, for listing all runs, remembered approvals or open
/// gates.
fn hint_to_list_candidates(id_prefix: &str) -> (&'static str, &'static str) {
    match id_prefix {
        RunId::PREFIX => ("all runs", "longhaul ls --all"),
        RuleId::PREFIX => ("remembered approvals", "longhaul rules --all"),
        _ => ("what waits for an answer", "longhaul gates"),
    }
}

fn parse_id_suffix<'a>(id: &'a str, prefix: &str) -> anyhow::Result<&'a str> {
    let suffix = id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).unwrap_or(id);
    if suffix.len() < SUFFIX_CHARS_MIN || !suffix.chars().all(|c| c.is_ascii_alphanumeric()) {
        let last_note = if prefix == RuleId::PREFIX { "" } else { ", or @last" };
        let message = format!(
            "`{id}` is not an id: give the whole id, or its last {SUFFIX_CHARS_MIN} characters or more{last_note}"
        );
        let (label, command) = hint_to_list_candidates(prefix);
        return fail(message, label, command);
    }
    Ok(suffix)
}

fn expect_one_id_match<Id: Copy + Display>(
    suffix: &str,
    kind: &str,
    matches: &[Id],
) -> anyhow::Result<Id> {
    let (list_label, command) = hint_to_list_candidates(kind);
    match matches {
        [only] => Ok(*only),
        [] => fail(format!("there is no {kind} whose id ends in `{suffix}`"), list_label, command),
        several => {
            let names: Vec<String> = several.iter().take(10).map(ToString::to_string).collect();
            let message = format!("several ids end in `{suffix}`: {}", names.join(", "));
            fail(message, &format!("give more characters of the id; {list_label}"), command)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ambiguous_suffix_lists_the_candidates() {
        let resolve = |matches: &[RunId]| {
            expect_one_id_match("7k3qv9", "run", matches).map_err(|error| error.to_string())
        };
        let ids = [RunId::from_bits(1), RunId::from_bits(2)];
        let error = resolve(&ids).unwrap_err();
        assert!(ids.iter().all(|id| error.contains(&id.to_string())), "{error}");
        assert!(error.contains("longhaul ls --all"), "{error}");
        assert_eq!(resolve(&ids[..1]), Ok(ids[0]));
        assert!(resolve(&[]).unwrap_err().contains("no run whose id ends in `7k3qv9`"));
        let error = expect_one_id_match::<GateId>("7k3qv9", "gate or run", &[]).unwrap_err();
        assert!(error.to_string().contains("longhaul gates"), "{error}");
        let error = parse_id_suffix("nope", GateId::PREFIX).unwrap_err();
        assert!(error.to_string().contains("longhaul gates"), "{error}");
    }

    #[test]
    fn an_id_suffix_has_six_characters_or_more() {
        for (id, end) in [
            ("7k3qv9", Some("7k3qv9")),
            ("run_7k3qv9", Some("7k3qv9")),
            ("7k3qv", None),
            ("7k3 qv9", None),
            ("", None),
        ] {
            assert_eq!(parse_id_suffix(id, RunId::PREFIX).ok(), end, "{id}");
        }
    }
}
