//! The local provider: the conformance suite, and programs that try to leave their sandbox.

mod fixture;

use fixture::new_harness;

longhaul_testkit::sandbox_conformance!(conformance, new_harness);
