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
        let arrows = module_refs(tree);
        findings.extend(arrows.iter().filter_map(|arrow| root_import_finding(tree, arrow)));
        findings.extend(find_cycles(tree, &arrows));
    }
    findings
}

fn is_shipped(tree: &Tree) -> bool {
    tree.modules.iter().any(|module| module.names.is_empty() && module.file.contains("/src/"))
}

fn root_import_finding(tree: &Tree, arrow: &ModuleRef) -> Option<Finding> {
    let from = &tree.modules[arrow.from];
    let born = &tree.modules[arrow.to];
    (arrow.is_via_root && !from.names.is_empty()).then(|| {
        let wrong = format!("`{}` is imported through the crate root", arrow.path);
        let fix = format!("import it from the module that defines it: `{}`", name(&born.names));
        Finding::at(&from.file, arrow.line, wrong, &fix)
    })
}

/// Returns one finding per strongly connected group of modules, with its shortest cycle.
fn find_cycles(tree: &Tree, arrows: &[ModuleRef]) -> Vec<Finding> {
    let mut out: BTreeMap<usize, BTreeMap<usize, &ModuleRef>> = BTreeMap::new();
    for arrow in arrows.iter().filter(|arrow| arrow.from != arrow.to) {
        out.entry(arrow.from).or_default().entry(arrow.to).or_insert(arrow);
    }
    let mut findings = Vec::new();
    let mut reported: BTreeSet<usize> = BTreeSet::new();
    for start in 0..tree.modules.len() {
        let Some(cycle) = shortest_cycle(start, &out) else {
            continue;
        };
        let is_new = cycle.iter().all(|arrow| !reported.contains(&arrow.from));
        reported.extend(cycle.iter().map(|arrow| arrow.from));
        if is_new {
            findings.push(cycle_finding(tree, &cycle));
        }
    }
    findings
}

fn shortest_cycle<'a>(
    start: usize,
    out: &BTreeMap<usize, BTreeMap<usize, &'a ModuleRef>>,
) -> Option<Vec<&'a ModuleRef>> {
    let mut came_by: BTreeMap<usize, &ModuleRef> = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(here) = waiting.pop_front() {
        for (&next, &arrow) in out.get(&here).into_iter().flatten() {
            came_by.entry(next).or_insert_with(|| {
                waiting.push_back(next);
                arrow
            });
        }
    }
    let mut cycle = vec![*came_by.get(&start)?];
    while let Some(first) = cycle.first().filter(|first| first.from != start) {
        cycle.insert(0, came_by[&first.from]);
    }
    Some(cycle)
}

fn cycle_finding(tree: &Tree, cycle: &[&ModuleRef]) -> Finding {
    let stations = cycle.iter().map(|arrow| {
        let from = &tree.modules[arrow.from];
        format!("{} ({}:{} uses `{}`)", name(&from.names), from.file, arrow.line, arrow.path)
    });
    let stations: Vec<_> = stations.collect();
    let first = &tree.modules[cycle[0].from];
    let wrong = format!("cycle of modules: {} -> back", stations.join(" -> "));
    let fix = "move the shared code into a module below both, or reverse one dependency";
    Finding::at(&first.file, cycle[0].line, wrong, fix)
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
