//! No circle of modules inside a crate, and no import through the front door.
//!
//! An arrow goes from a file to the file where what it names is born; a
//! re-export is followed to its origin. Declaring a child or re-exporting from
//! one is no arrow, and code for tests may look where it likes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::finding::Finding;
use super::module_refs::{ModuleRef, module_refs};
use super::sources::SourceFile;
use super::tree::{Tree, trees};

/// Looks at the modules of every library and binary.
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
        let wrong = format!("`{}` comes in by the front door of the crate", arrow.path);
        let mend = format!("import it from where it is born: `{}`", name(&born.names));
        Finding::at(&from.file, arrow.line, wrong, &mend)
    })
}

/// One finding for every knot of modules, showing its shortest circle.
fn find_cycles(tree: &Tree, arrows: &[ModuleRef]) -> Vec<Finding> {
    let mut out: BTreeMap<usize, BTreeMap<usize, &ModuleRef>> = BTreeMap::new();
    for arrow in arrows.iter().filter(|arrow| arrow.from != arrow.to) {
        out.entry(arrow.from).or_default().entry(arrow.to).or_insert(arrow);
    }
    let mut findings = Vec::new();
    let mut told: BTreeSet<usize> = BTreeSet::new();
    for start in 0..tree.modules.len() {
        let Some(circle) = shortest_cycle(start, &out) else {
            continue;
        };
        let is_new = circle.iter().all(|arrow| !told.contains(&arrow.from));
        told.extend(circle.iter().map(|arrow| arrow.from));
        if is_new {
            findings.push(cycle_finding(tree, &circle));
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
        for (&there, &arrow) in out.get(&here).into_iter().flatten() {
            came_by.entry(there).or_insert_with(|| {
                waiting.push_back(there);
                arrow
            });
        }
    }
    let mut circle = vec![*came_by.get(&start)?];
    while let Some(first) = circle.first().filter(|first| first.from != start) {
        circle.insert(0, came_by[&first.from]);
    }
    Some(circle)
}

fn cycle_finding(tree: &Tree, circle: &[&ModuleRef]) -> Finding {
    let stations = circle.iter().map(|arrow| {
        let from = &tree.modules[arrow.from];
        format!("{} ({}:{} says `{}`)", name(&from.names), from.file, arrow.line, arrow.path)
    });
    let stations: Vec<_> = stations.collect();
    let first = &tree.modules[circle[0].from];
    let wrong = format!("modules in a circle: {} -> back", stations.join(" -> "));
    let mend = "move what both need into a module of its own below them, or turn one arrow round";
    Finding::at(&first.file, circle[0].line, wrong, mend)
}

fn name(names: &[String]) -> String {
    std::iter::once("crate").chain(names.iter().map(String::as_str)).collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod checked {
    use super::super::finding::summaries;
    use super::super::sources::fixture;
    use super::check;

    fn about(house: &str) -> Vec<String> {
        summaries(&check(&fixture(house)))
    }

    #[test]
    fn a_module_tree_is_accepted() {
        let house = "
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
        assert_eq!(about(house), Vec::<String>::new());
    }

    #[test]
    fn a_cycle_is_reported_with_every_reference() {
        let house = "
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
        let expected = "crates/a/src/b.rs:1: modules in a circle: \
                        crate::b (crates/a/src/b.rs:1 says `crate::c::C`) -> \
                        crate::c (crates/a/src/c.rs:1 says `super::d::d`) -> \
                        crate::d (crates/a/src/d.rs:1 says `crate::b::holds`) -> back";
        assert_eq!(about(house), [expected]);
    }

    #[test]
    fn a_parent_that_uses_its_child_is_not_used_by_it() {
        let house = "
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
        let found = about(house);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("crate::b::c (crates/a/src/b/c.rs:1 says `super::B`)"),
            "{found:?}"
        );
        assert!(found[0].contains("crate::b (crates/a/src/b.rs:3 says `c::c`)"), "{found:?}");
    }

    #[test]
    fn a_re_export_does_not_hide_a_cycle() {
        let house = "
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
        let found = about(house);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("crate::policy::budget ("), "{found:?}");
    }

    #[test]
    fn modules_must_not_use_the_re_exports_of_their_crate_root() {
        let house = "
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
            "crates/a/src/worker.rs:1: `crate::Lease` comes in by the front door of the crate";
        assert_eq!(about(house), [expected]);
        let mend = &check(&fixture(house))[0].fix;
        assert_eq!(mend, "import it from where it is born: `crate::lease`");
    }
}
