//! The local provider: the conformance suite, and programs that try to leave their sandbox.

mod escape;
mod fixture;
mod leftovers;
mod levels;
mod limits;
mod network;
mod processes;

use fixture::new_harness;

longhaul_testkit::sandbox_conformance!(conformance, new_harness);
