//! Repository checks as tests: layers, limits and conventions, read from the source files.
//!
//! Each check is a function from file texts to a list of findings, and is tested itself with
//! small good and bad examples.

mod crate_deps;
mod external_deps;
mod finding;
mod forbidden_tokens;
mod given_up_words;
mod limits;
mod line_budgets;
mod manifest;
mod manifests;
mod module_cycles;
mod module_docs;
mod module_refs;
mod orphan_files;
mod shell;
mod sources;
mod todo_markers;
mod tokens;
mod tree;

use finding::assert_none;
use sources::all_sources;

#[test]
fn crate_dependencies_follow_the_layers() {
    assert_none(crate_deps::check(&all_sources()));
}

#[test]
fn no_crate_has_a_dependency_that_its_layer_forbids() {
    assert_none(external_deps::check(&all_sources()));
}

#[test]
fn no_crate_uses_a_token_that_its_layer_forbids() {
    assert_none(forbidden_tokens::check(&all_sources()));
}

#[test]
fn there_are_no_module_cycles() {
    assert_none(module_cycles::check(&all_sources()));
}

#[test]
fn files_functions_and_arguments_stay_within_their_limits() {
    assert_none(limits::check(&all_sources()));
}

#[test]
fn every_crate_stays_within_its_budget_of_lines() {
    assert_none(line_budgets::check(&all_sources()));
}

#[test]
fn every_file_starts_with_module_docs() {
    assert_none(module_docs::check(&all_sources()));
}

#[test]
fn there_are_no_orphan_files() {
    assert_none(orphan_files::check(&all_sources()));
}

#[test]
fn there_are_no_todo_markers() {
    assert_none(todo_markers::check(&all_sources()));
}

#[test]
fn every_manifest_inherits_from_the_workspace() {
    assert_none(manifests::check(&all_sources()));
}

#[test]
fn every_script_stops_at_its_first_error() {
    assert_none(shell::check(&all_sources()));
}

#[test]
fn given_up_words_do_not_come_back() {
    assert_none(given_up_words::check(&all_sources()));
}
