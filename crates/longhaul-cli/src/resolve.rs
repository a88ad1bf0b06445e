//! Finds the run, gate or remembered approval that the command line names: by its whole id, by at least
//! four characters with which the id begins or ends, or by `@last`. If several ids match, the error
//! lists them.

use std::fmt::Display;

use longhaul_api::gate::GateView;
use longhaul_api::operations::{LIST_GATES, LIST_RULES, SHOW_GATE};
use longhaul_api::query::{GatesQuery, RulesQuery, RunsQuery};
use longhaul_api::run_list::RunBriefView;
use longhaul_core::id::{GateId, RuleId, RunId};
use longhaul_core::policy::gate::{GateKind, GateStatus};
use longhaul_core::status::Status;

use crate::client::Client;
use crate::client::connect::with_client;
use crate::error::{CliError, fail};
use crate::event_printer::first_line;

/// Maximum number of the newest runs or gates that are searched for a part of an id.
const SEARCHED_MAX: usize = 10_000;

/// Number of newest runs among which `@last` searches for the newest one without a parent.
const LAST_RUNS: usize = 100;

/// Minimum number of characters of a part of an id.
const PART_CHARS_MIN: usize = 4;

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

/// Finds the run with this id, part of an id or `@last`, the newest run that is not a child.
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
    let part = parse_id_part(id, RunId::PREFIX)?;
    expect_one_id_match(id, "run", &runs_with_id_part(client, part).await?)
}

fn all_runs() -> RunsQuery {
    RunsQuery { all_runs: true, ..RunsQuery::default() }
}

/// Returns the runs whose ids begin or end with this part.
async fn runs_with_id_part(client: &Client, part: &str) -> anyhow::Result<Vec<RunId>> {
    let rows = client.list_runs(all_runs(), SEARCHED_MAX).await?;
    Ok(with_part(rows.iter().map(|row| row.id), part))
}

/// Returns the ids that begin or end with this part, where an id begins after its prefix.
fn with_part<Id: Display>(ids: impl Iterator<Item = Id>, part: &str) -> Vec<Id> {
    let matches = |id: &Id| {
        let id = id.to_string();
        let suffix = id.split_once('_').map_or(id.as_str(), |(_, suffix)| suffix);
        suffix.starts_with(part) || suffix.ends_with(part)
    };
    ids.filter(matches).collect()
}

/// Finds the remembered approval with this id or part of an id, also if it is revoked.
pub(crate) async fn resolve_rule_id(client: &Client, id: &str) -> anyhow::Result<RuleId> {
    if let Ok(rule) = id.parse::<RuleId>() {
        return Ok(rule);
    }
    let part = parse_id_part(id, RuleId::PREFIX)?;
    let query = RulesQuery { all: true, ..RulesQuery::default() };
    let rules = client.list(LIST_RULES, query, SEARCHED_MAX).await?;
    let matches = with_part(rules.iter().map(|rule| rule.id), part);
    expect_one_id_match(id, RuleId::PREFIX, &matches)
}

/// Finds the id that begins or ends with this part among the ids of things of this kind.
pub(crate) fn resolve_id_part<Id: Display + Copy>(
    part: &str,
    kind: &'static str,
    prefix: &'static str,
    ids: impl Iterator<Item = Id>,
) -> anyhow::Result<Id> {
    let characters = parse_id_part(part, prefix)?;
    expect_one_id_match(part, kind, &with_part(ids, characters))
}

/// Finds the gate with this id or part of an id. The id of a run stands for the only open gate of the
/// run, and `@last` for that of the newest run that asks a person.
pub(crate) async fn resolve_gate_by_gate_or_run_id(
    client: &Client,
    gate_or_run: &str,
) -> anyhow::Result<GateView> {
    if let Ok(gate) = gate_or_run.parse::<GateId>() {
        return client.send(SHOW_GATE.at(gate)).await;
    }
    if gate_or_run == "@last" {
        return find_only_open_gate(client, newest_asking_run(client).await?).await;
    }
    if gate_or_run.starts_with(RunId::PREFIX) {
        return find_only_open_gate(client, resolve_run_id(client, gate_or_run).await?).await;
    }
    let part = parse_id_part(gate_or_run, GateId::PREFIX)?;
    let gates = client.list(LIST_GATES, GatesQuery::default(), SEARCHED_MAX).await?;
    let matches = with_part(gates.iter().map(|gate| gate.id), part);
    if part != gate_or_run {
        let id = expect_one_id_match(gate_or_run, "gate", &matches)?;
        return client.send(SHOW_GATE.at(id)).await;
    }
    let runs = runs_with_id_part(client, part).await?;
    match (matches.as_slice(), runs.as_slice()) {
        ([gate], []) => client.send(SHOW_GATE.at(*gate)).await,
        ([], [run]) => find_only_open_gate(client, *run).await,
        (gates, runs) => {
            let gates = gates.iter().map(ToString::to_string);
            let ids: Vec<String> = gates.chain(runs.iter().map(ToString::to_string)).collect();
            Err(no_single_match(gate_or_run, "gate or run", &ids))
        }
    }
}

/// Returns the newest run with an open gate that a person can answer. If there is none, returns the
/// newest run, whose status then explains that nothing asks.
async fn newest_asking_run(client: &Client) -> anyhow::Result<RunId> {
    let open = GatesQuery { status: Some(GateStatus::Open), ..GatesQuery::default() };
    let gates = client.list(LIST_GATES, open, SEARCHED_MAX).await?;
    let asking = gates.iter().filter(|gate| gate.kind != GateKind::Signal);
    let newest = asking.map(|gate| gate.run).max().or(gates.iter().map(|gate| gate.run).max());
    match newest {
        Some(run) => Ok(run),
        None => resolve_run_id(client, "@last").await,
    }
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

/// Maximum number of ids that an error lists.
const CANDIDATES_MAX: usize = 10;

/// Returns a hint, as description and command, for listing all runs, remembered approvals or open
/// gates.
fn hint_to_list_candidates(id_prefix: &str) -> (&'static str, &'static str) {
    match id_prefix {
        RunId::PREFIX => ("all runs", "longhaul ls --all --all-runs"),
        RuleId::PREFIX => ("remembered approvals", "longhaul rules --all"),
        _ => ("what waits for an answer", "longhaul gates"),
    }
}

/// Returns the part of an id that an argument gives, without the prefix of such ids.
fn parse_id_part<'a>(id: &'a str, prefix: &str) -> anyhow::Result<&'a str> {
    let part = id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).unwrap_or(id);
    if part.len() < PART_CHARS_MIN || !part.chars().all(|c| c.is_ascii_alphanumeric()) {
        let last_note = if prefix == RuleId::PREFIX { "" } else { ", or @last" };
        let message = format!(
            "`{id}` is not an id: give the whole id, or {PART_CHARS_MIN} or more of its first or last characters{last_note}"
        );
        let (label, command) = hint_to_list_candidates(prefix);
        return fail(message, label, command);
    }
    Ok(part)
}

fn expect_one_id_match<Id: Copy + Display>(
    part: &str,
    kind: &str,
    matches: &[Id],
) -> anyhow::Result<Id> {
    if let [only] = matches {
        return Ok(*only);
    }
    let ids: Vec<String> = matches.iter().map(ToString::to_string).collect();
    Err(no_single_match(part, kind, &ids))
}

/// Returns the error for a part of an id that none or several ids have.
fn no_single_match(part: &str, kind: &str, ids: &[String]) -> anyhow::Error {
    let (list_label, command) = hint_to_list_candidates(kind);
    let (message, label) = match ids {
        [] => (
            format!("there is no {kind} whose id begins or ends with `{part}`"),
            list_label.to_owned(),
        ),
        several => {
            let rest = several.len().saturating_sub(CANDIDATES_MAX);
            let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            let names: Vec<&str> =
                several.iter().take(CANDIDATES_MAX).map(String::as_str).collect();
            let message =
                format!("several ids begin or end with `{part}`: {}{more}", names.join(", "));
            (message, format!("give more characters of the id; {list_label}"))
        }
    };
    CliError::usage_error(message).with_hint(&label, command).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ambiguous_part_lists_the_candidates() {
        let resolve = |matches: &[RunId]| {
            expect_one_id_match("7k3qv9", "run", matches).map_err(|error| error.to_string())
        };
        let ids = [RunId::from_bits(1), RunId::from_bits(2)];
        let error = resolve(&ids).unwrap_err();
        assert!(ids.iter().all(|id| error.contains(&id.to_string())), "{error}");
        assert!(error.contains("longhaul ls --all"), "{error}");
        assert_eq!(resolve(&ids[..1]), Ok(ids[0]));
        let error = resolve(&[]).unwrap_err();
        assert!(error.contains("no run whose id begins or ends with `7k3qv9`"), "{error}");
        let many: Vec<RunId> = (0..12).map(RunId::from_bits).collect();
        assert!(resolve(&many).unwrap_err().contains(" and 2 more"));
        let error = expect_one_id_match::<GateId>("7k3qv9", "gate or run", &[]).unwrap_err();
        assert!(error.to_string().contains("longhaul gates"), "{error}");
        let error = parse_id_part("no!", GateId::PREFIX).unwrap_err();
        assert!(error.to_string().contains("longhaul gates"), "{error}");
    }

    #[test]
    fn a_part_of_an_id_has_four_characters_or_more() {
        for (id, part) in [
            ("7k3qv9", Some("7k3qv9")),
            ("run_7k3q", Some("7k3q")),
            ("7k3", None),
            ("7k3 qv9", None),
            ("", None),
        ] {
            assert_eq!(parse_id_part(id, RunId::PREFIX).ok(), part, "{id}");
        }
    }

    #[test]
    fn an_id_is_found_by_its_beginning_and_by_its_end() {
        let ids: Vec<RunId> = (0..40).map(|bits| RunId::from_bits(bits << 64 | bits)).collect();
        let text = ids[33].to_string();
        let suffix = text.strip_prefix("run_").unwrap();
        let found = |part: &str| with_part(ids.iter().copied(), part);
        assert_eq!(found(&suffix[..20]), [ids[33]]);
        assert_eq!(found(&suffix[suffix.len() - 4..]), [ids[33]]);
        assert_eq!(found(&suffix[..4]).len(), 40);
        assert_eq!(found("run_"), []);
    }
}
