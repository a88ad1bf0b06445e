//! No cycles between the modules of a crate, and no imports through re-exports of the crate
//! root.
//!
//! A dependency goes from a file to the file that defines the imported item; re-exports are
//! resolved. Declaring a child module or re-exporting from it is not a dependency, and test
//! code is exempt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::finding::Finding;
use super::module_refs::{ModuleRef, module_refs};
use super::sources::SourceFile;
use super::tree::{Tree, trees};

/// Checks the modules of every library and binary.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for tree in trees(files).iter().filter(|tree| is_shipped(tree)) {
        let refs = module_refs(tree);
        findings.extend(refs.iter().filter_map(|module_ref| root_import_finding(tree, module_ref)));
        findings.extend(find_cycles(tree, &refs));
    }
    findings
}

fn is_shipped(tree: &Tree) -> bool {
    tree.modules.iter().any(|module| module.names.is_empty() && module.file.contains("/src/"))
}

fn root_import_finding(tree: &Tree, module_ref: &ModuleRef) -> Option<Finding> {
    let from = &tree.modules[module_ref.from];
    let defining = &tree.modules[module_ref.to];
    (module_ref.is_via_root && !from.names.is_empty()).then(|| {
        let problem = format!("`{}` is imported through the crate root", module_ref.path);
        let fix = format!("import it from the module that defines it: `{}`", name(&defining.names));
        Finding::at(&from.file, module_ref.line, problem, &fix)
    })
}

/// Returns one finding per strongly connected group of modules, with its shortest cycle.
fn find_cycles(tree: &Tree, refs: &[ModuleRef]) -> Vec<Finding> {
    let mut refs_by_module: BTreeMap<usize, BTreeMap<usize, &ModuleRef>> = BTreeMap::new();
    for module_ref in refs.iter().filter(|module_ref| module_ref.from != module_ref.to) {
        refs_by_module
            .entry(module_ref.from)
            .or_default()
            .entry(module_ref.to)
            .or_insert(module_ref);
    }
    let mut findings = Vec::new();
    let mut reported: BTreeSet<usize> = BTreeSet::new();
    for start in 0..tree.modules.len() {
        let Some(cycle) = shortest_cycle(start, &refs_by_module) else {
            continue;
        };
        let is_new = cycle.iter().all(|module_ref| !reported.contains(&module_ref.from));
        reported.extend(cycle.iter().map(|module_ref| module_ref.from));
        if is_new {
            findings.push(cycle_finding(tree, &cycle));
        }
    }
    findings
}

fn shortest_cycle<'a>(
    start: usize,
    refs_by_module: &BTreeMap<usize, BTreeMap<usize, &'a ModuleRef>>,
) -> Option<Vec<&'a ModuleRef>> {
    let mut incoming: BTreeMap<usize, &ModuleRef> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(current) = queue.pop_front() {
        for (&next, &module_ref) in refs_by_module.get(&current).into_iter().flatten() {
            incoming.entry(next).or_insert_with(|| {
                queue.push_back(next);
                module_ref
            });
        }
    }
    let mut cycle = vec![*incoming.get(&start)?];
    while let Some(first) = cycle.first().filter(|first| first.from != start) {
        cycle.insert(0, incoming[&first.from]);
    }
    Some(cycle)
}

fn cycle_finding(tree: &Tree, cycle: &[&ModuleRef]) -> Finding {
    let steps = cycle.iter().map(|module_ref| {
        let from = &tree.modules[module_ref.from];
        format!(
            "{} ({}:{} uses `{}`)",
            name(&from.names),
            from.file,
            module_ref.line,
            module_ref.path
        )
    });
    let steps: Vec<_> = steps.collect();
    let first = &tree.modules[cycle[0].from];
    let problem = format!("cycle of modules: {} -> back", steps.join(" -> "));
    let fix = "move the shared code into a module below both, or reverse one dependency";
    Finding::at(&first.file, cycle[0].line, problem, fix)
}

fn name(names: &[String]) -> String {
    std::iter::once("crate").chain(names.iter().map(String::as_str)).collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod checked {
    use super::super::finding::summaries;
    use super::super::sources::fixture;
    use super::check;

    fn about(source: &str) -> Vec<String> {
        summaries(&check(&fixture(source)))
    }

    #[test]
    fn a_module_tree_is_accepted() {
        let source = "
        //- crates/a/src/lib.rs
        mod lease;
        mod worker;
        pub use lease::Lease;
        pub use worker::Worker;
        //- crates/a/src/lease.rs
        pub struct Lease;
        //- crates/a/src/worker.rs
        mod claim;
        pub use claim::Claim;
        use crate::lease::Lease;
        pub struct Worker(Lease);
        #[cfg(test)]
        mod tests { use super::*; use crate::Lease; }
        //- crates/a/src/worker/claim.rs
        use super::Worker;
        pub struct Claim(pub(super) u8);
        ";
        assert_eq!(about(source), Vec::<String>::new());
    }

    #[test]
    fn a_cycle_is_reported_with_every_reference() {
        let source = "
        //- crates/a/src/lib.rs
        mod b;
        mod c;
        mod d;
        //- crates/a/src/b.rs
        use crate::c::C;
        //- crates/a/src/c.rs
        fn c() { super::d::d() }
        //- crates/a/src/d.rs
        fn d() { assert!(crate::b::holds()); }
        ";
        let expected = "crates/a/src/b.rs:1: cycle of modules: \
                        crate::b (crates/a/src/b.rs:1 uses `crate::c::C`) -> \
                        crate::c (crates/a/src/c.rs:1 uses `super::d::d`) -> \
                        crate::d (crates/a/src/d.rs:1 uses `crate::b::holds`) -> back";
        assert_eq!(about(source), [expected]);
    }

    #[test]
    fn a_parent_that_uses_its_child_is_not_used_by_it() {
        let source = "
        //- crates/a/src/lib.rs
        mod b;
        //- crates/a/src/b.rs
        mod c;
        pub struct B;
        fn b() { c::c() }
        //- crates/a/src/b/c.rs
        use super::B;
        pub fn c() {}
        ";
        let found = about(source);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("crate::b::c (crates/a/src/b/c.rs:1 uses `super::B`)"),
            "{found:?}"
        );
        assert!(found[0].contains("crate::b (crates/a/src/b.rs:3 uses `c::c`)"), "{found:?}");
    }

    #[test]
    fn a_re_export_does_not_hide_a_cycle() {
        let source = "
        //- crates/a/src/lib.rs
        mod b;
        mod policy;
        //- crates/a/src/b.rs
        use crate::policy::Budget;
        //- crates/a/src/policy.rs
        mod budget;
        pub use budget::*;
        //- crates/a/src/policy/budget.rs
        use crate::b::B;
        pub struct Budget;
        ";
        let found = about(source);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("crate::policy::budget ("), "{found:?}");
    }

    #[test]
    fn modules_must_not_use_the_re_exports_of_their_crate_root() {
        let source = "
        //- crates/a/src/lib.rs
        mod lease;
        mod worker;
        pub use lease::*;
        pub struct Born;
        //- crates/a/src/lease.rs
        pub struct Lease;
        //- crates/a/src/worker.rs
        use crate::{Born, Lease};
        ";
        let expected =
            "crates/a/src/worker.rs:1: `crate::Lease` is imported through the crate root";
        assert_eq!(about(source), [expected]);
        let fix = &check(&fixture(source))[0].fix;
        assert_eq!(fix, "import it from the module that defines it: `crate::lease`");
    }
}
