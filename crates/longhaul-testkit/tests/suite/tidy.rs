//! Tidiness as tests: the walls, limits and habits of the house, read from its files.
//!
//! Each check is a function from the texts of a house to a list of findings,
//! and is itself checked on small good and bad houses beside its code.

mod arrow;
mod arrows;
mod circles;
mod finding;
mod forgotten;
mod house;
mod leftovers;
mod limits;
mod manifest;
mod manifests;
mod opening;
mod outside;
mod shell;
mod tokens;
mod tree;
mod words;

use finding::assert_none;
use house::house;

#[test]
fn every_arrow_between_crates_points_down() {
    assert_none(arrows::check(&house()));
}

#[test]
fn every_crate_keeps_what_its_floor_forbids_outside() {
    assert_none(outside::check(&house()));
}

#[test]
fn no_crate_says_a_word_its_floor_forbids() {
    assert_none(words::check(&house()));
}

#[test]
fn no_modules_stand_in_a_circle() {
    assert_none(circles::check(&house()));
}

#[test]
fn files_functions_and_arguments_stay_within_their_limits() {
    assert_none(limits::check(&house()));
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    assert_none(opening::check(&house()));
}

#[test]
fn no_file_is_forgotten() {
    assert_none(forgotten::check(&house()));
}

#[test]
fn nothing_is_left_for_later() {
    assert_none(leftovers::check(&house()));
}

#[test]
fn every_manifest_leans_on_the_workspace() {
    assert_none(manifests::check(&house()));
}

#[test]
fn every_script_stops_at_its_first_error() {
    assert_none(shell::check(&house()));
}
