//! Finds the arrows between the modules of one crate.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Path, UseTree, Visibility};

use super::tokens;
use super::tree::{Module, Tree, is_for_tests};

/// One file names something that is born in another (or in itself).
#[derive(Debug)]
pub(crate) struct ModuleRef {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) line: usize,
    /// The path as it is written.
    pub(crate) path: String,
    /// It goes through a re-export of the crate's root.
    pub(crate) is_via_root: bool,
}

/// Every arrow of a tree, tests left out.
pub(crate) fn module_refs(tree: &Tree) -> Vec<ModuleRef> {
    let map = ModuleMap::new(tree);
    let mut arrows = Vec::new();
    for (index, module) in tree.modules.iter().enumerate() {
        if !module.for_tests {
            let here = module.names.clone();
            let mut walker = Walker { map: &map, index, here, refs: &mut arrows };
            walker.visit_file(&module.ast);
        }
    }
    arrows
}

/// Who is where, and under which names a module hands on what it does not bear.
struct ModuleMap<'a> {
    modules: BTreeMap<&'a [String], usize>,
    exports: Vec<ModuleExports>,
    /// Inline modules too, so that `inner::Thing` is known to be a path of ours.
    all: BTreeSet<Vec<String>>,
}

#[derive(Default)]
struct ModuleExports {
    defined: BTreeSet<String>,
    reexports: BTreeMap<String, Vec<String>>,
    glob_reexports: Vec<Vec<String>>,
}

impl<'a> ModuleMap<'a> {
    fn new(tree: &'a Tree) -> Self {
        let names = |(index, module): (usize, &'a Module)| (module.names.as_slice(), index);
        let modules: BTreeMap<_, _> = tree.modules.iter().enumerate().map(names).collect();
        let mut map = Self { modules, exports: Vec::new(), all: BTreeSet::new() };
        for module in &tree.modules {
            map.all.insert(module.names.clone());
            add_inline(&module.ast.items, &module.names, &mut map.all);
        }
        map.exports = tree.modules.iter().map(|module| map.collect_exports(module)).collect();
        map
    }

    fn collect_exports(&self, module: &Module) -> ModuleExports {
        let mut room = ModuleExports::default();
        for item in &module.ast.items {
            room.defined.extend(defined_name(item));
            let Item::Use(item) = item else { continue };
            if matches!(item.vis, Visibility::Inherited) {
                continue;
            }
            for import in flatten(&item.tree) {
                let Some(path) = self.absolute(&import.path, &module.names) else {
                    continue;
                };
                match import.name {
                    Some(name) => drop(room.reexports.insert(name, path)),
                    None => room.glob_reexports.push(path),
                }
            }
        }
        room
    }

    /// A path from the crate's root, if the path is one of ours.
    fn absolute(&self, path: &[String], here: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([here, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                let base = here.get(..here.len().checked_sub(ups)?)?;
                Some([base, &path[ups..]].concat())
            }
            _ => {
                let child = [here, std::slice::from_ref(first)].concat();
                self.all.contains(&child).then(|| [here, path].concat())
            }
        }
    }

    /// The file that holds a path's deepest module, and what is left of the path.
    fn deepest_module<'p>(&self, path: &'p [String]) -> Option<(usize, &'p [String])> {
        (0..=path.len()).rev().find_map(|cut| {
            let index = self.modules.get(&path[..cut])?;
            Some((*index, &path[cut..]))
        })
    }

    /// The file where what a path names is born.
    fn defining_module(&self, path: &[String], hops: usize) -> Option<usize> {
        let (index, rest) = self.deepest_module(path)?;
        let Some((name, below)) = rest.split_first().filter(|_| hops < HOPS_MAX) else {
            return Some(index);
        };
        let room = &self.exports[index];
        if room.defined.contains(name) {
            return Some(index);
        }
        if let Some(origin) = room.reexports.get(name) {
            return self.defining_module(&[origin.as_slice(), below].concat(), hops + 1);
        }
        let origins = room.glob_reexports.iter();
        let found = origins.filter_map(|origin| {
            let there = self.defining_module(&[origin.as_slice(), rest].concat(), hops + 1)?;
            self.exports[there].defined.contains(name).then_some(there)
        });
        Some(found.into_iter().next().unwrap_or(index))
    }
}

/// Re-exports of re-exports end somewhere; a circle of them must not hang the test.
const HOPS_MAX: usize = 16;

fn add_inline(items: &[Item], names: &[String], all: &mut BTreeSet<Vec<String>>) {
    for item in items {
        let Item::Mod(ItemMod { ident, content: Some((_, items)), .. }) = item else {
            continue;
        };
        let below = [names, &[ident.to_string()]].concat();
        add_inline(items, &below, all);
        all.insert(below);
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "syn keeps its list of items open")]
fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// One leaf of a `use` tree; without a name it is a glob.
struct Import {
    path: Vec<String>,
    name: Option<String>,
}

fn flatten(tree: &UseTree) -> Vec<Import> {
    match tree {
        UseTree::Path(tree) => {
            let mut imports = flatten(&tree.tree);
            let first = tree.ident.to_string();
            for import in &mut imports {
                if import.name.as_deref() == Some("self") {
                    import.name = Some(first.clone());
                }
                import.path.insert(0, first.clone());
            }
            imports
        }
        UseTree::Name(tree) => leaf(&tree.ident.to_string(), tree.ident.to_string()),
        UseTree::Rename(tree) => leaf(&tree.ident.to_string(), tree.rename.to_string()),
        UseTree::Glob(_) => vec![Import { path: Vec::new(), name: None }],
        UseTree::Group(tree) => tree.items.iter().flat_map(flatten).collect(),
    }
}

fn leaf(ident: &str, name: String) -> Vec<Import> {
    let path = if ident == "self" { Vec::new() } else { vec![ident.to_owned()] };
    vec![Import { path, name: Some(name) }]
}

struct Walker<'a> {
    map: &'a ModuleMap<'a>,
    index: usize,
    /// Where we stand, inline modules included.
    here: Vec<String>,
    refs: &'a mut Vec<ModuleRef>,
}

impl Walker<'_> {
    fn add_ref(&mut self, path: &[String], line: usize, is_re_export: bool) {
        let Some(absolute) = self.map.absolute(path, &self.here) else {
            return;
        };
        let Some(to) = self.map.defining_module(&absolute, 0) else {
            return;
        };
        if is_re_export && absolute.starts_with(&self.here) {
            return;
        }
        let at_the_door = self.map.deepest_module(&absolute).map(|(index, _)| index);
        let root = self.map.modules.get([].as_slice()).copied();
        let by_the_door = at_the_door == root && Some(to) != root;
        let said = path.join("::");
        self.refs.push(ModuleRef {
            from: self.index,
            to,
            line,
            path: said,
            is_via_root: by_the_door,
        });
    }
}

impl<'ast> Visit<'ast> for Walker<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "syn keeps its list of items open")]
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => item.attrs.as_slice(),
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.here.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.here.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_re_export = !matches!(item.vis, Visibility::Inherited);
        for import in flatten(&item.tree) {
            self.add_ref(&import.path, item.span().start().line, is_re_export);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let names: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        // One name alone is a variable or an imported thing, never a road to a module.
        if names.len() > 1 {
            self.add_ref(&names, path.span().start().line, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        for (path, line) in tokens::paths(item.tokens.clone()) {
            self.add_ref(&path, line, false);
        }
        visit::visit_macro(self, item);
    }

    /// `pub(in path)` grants, it does not use; attributes name things of other crates.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}
