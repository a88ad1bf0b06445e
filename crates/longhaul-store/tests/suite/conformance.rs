//! Runs the conformance suite for stores, on a file and in memory.

longhaul_testkit::store_conformance!(file, crate::suite::harness::in_file);
longhaul_testkit::store_conformance!(memory, crate::suite::harness::in_memory);
