//! Finds the dependencies between the modules of one crate.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Path, UseTree, Visibility};

use super::tokens;
use super::tree::{Module, Tree, is_for_tests};

/// A dependency: one file uses an item that another file (or itself) defines.
#[derive(Debug)]
pub(crate) struct ModuleRef {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) line: usize,
    /// The path as written in the source.
    pub(crate) path: String,
    /// Whether the path goes through a re-export of the crate root.
    pub(crate) is_via_root: bool,
}

/// Returns all dependencies in a crate, except those of tests.
pub(crate) fn module_refs(tree: &Tree) -> Vec<ModuleRef> {
    let map = ModuleMap::new(tree);
    let mut refs = Vec::new();
    for (index, module) in tree.modules.iter().enumerate() {
        if !module.for_tests {
            let module_path = module.names.clone();
            let mut walker = Walker { map: &map, index, module_path, refs: &mut refs };
            walker.visit_file(&module.ast);
        }
    }
    refs
}

/// The modules of a crate with the items that they define and re-export.
struct ModuleMap<'a> {
    modules: BTreeMap<&'a [String], usize>,
    exports: Vec<ModuleExports>,
    /// All modules including inline ones, so that `inner::Thing` is recognised as a path of
    /// this crate.
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
        let mut exports = ModuleExports::default();
        for item in &module.ast.items {
            exports.defined.extend(defined_name(item));
            let Item::Use(item) = item else { continue };
            if matches!(item.vis, Visibility::Inherited) {
                continue;
            }
            for import in flatten(&item.tree) {
                let Some(path) = self.absolute(&import.path, &module.names) else {
                    continue;
                };
                match import.name {
                    Some(name) => drop(exports.reexports.insert(name, path)),
                    None => exports.glob_reexports.push(path),
                }
            }
        }
        exports
    }

    /// Returns the path from the crate root. `None` means that it is not a path of this crate.
    fn absolute(&self, path: &[String], module_path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module_path, rest].concat()),
            "super" => {
                let super_count = path.iter().take_while(|name| *name == "super").count();
                let base = module_path.get(..module_path.len().checked_sub(super_count)?)?;
                Some([base, &path[super_count..]].concat())
            }
            _ => {
                let child = [module_path, std::slice::from_ref(first)].concat();
                self.all.contains(&child).then(|| [module_path, path].concat())
            }
        }
    }

    /// Returns the file of the deepest module in a path, and the rest of the path.
    fn deepest_module<'p>(&self, path: &'p [String]) -> Option<(usize, &'p [String])> {
        (0..=path.len()).rev().find_map(|length| {
            let index = self.modules.get(&path[..length])?;
            Some((*index, &path[length..]))
        })
    }

    /// Returns the file that defines the item of a path.
    fn defining_module(&self, path: &[String], hops: usize) -> Option<usize> {
        let (index, rest) = self.deepest_module(path)?;
        let Some((name, remaining)) = rest.split_first().filter(|_| hops < HOPS_MAX) else {
            return Some(index);
        };
        let exports = &self.exports[index];
        if exports.defined.contains(name) {
            return Some(index);
        }
        if let Some(origin) = exports.reexports.get(name) {
            return self.defining_module(&[origin.as_slice(), remaining].concat(), hops + 1);
        }
        let origins = exports.glob_reexports.iter();
        let found = origins.filter_map(|origin| {
            let defining = self.defining_module(&[origin.as_slice(), rest].concat(), hops + 1)?;
            self.exports[defining].defined.contains(name).then_some(defining)
        });
        Some(found.into_iter().next().unwrap_or(index))
    }
}

/// Maximum number of re-exports to follow, so that a cycle of re-exports can't block the test.
const HOPS_MAX: usize = 16;

fn add_inline(items: &[Item], names: &[String], all: &mut BTreeSet<Vec<String>>) {
    for item in items {
        let Item::Mod(ItemMod { ident, content: Some((_, items)), .. }) = item else {
            continue;
        };
        let path = [names, &[ident.to_string()]].concat();
        add_inline(items, &path, all);
        all.insert(path);
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "syn::Item is non-exhaustive")]
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

/// One leaf of a `use` tree. `None` as the name means a glob.
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
    /// Current module path, including inline modules.
    module_path: Vec<String>,
    refs: &'a mut Vec<ModuleRef>,
}

impl Walker<'_> {
    fn add_ref(&mut self, path: &[String], line: usize, is_re_export: bool) {
        let Some(absolute) = self.map.absolute(path, &self.module_path) else {
            return;
        };
        let Some(to) = self.map.defining_module(&absolute, 0) else {
            return;
        };
        if is_re_export && absolute.starts_with(&self.module_path) {
            return;
        }
        let deepest = self.map.deepest_module(&absolute).map(|(index, _)| index);
        let root = self.map.modules.get([].as_slice()).copied();
        let is_via_root = deepest == root && Some(to) != root;
        let text = path.join("::");
        self.refs.push(ModuleRef { from: self.index, to, line, path: text, is_via_root });
    }
}

impl<'ast> Visit<'ast> for Walker<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "syn::Item is non-exhaustive")]
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
        self.module_path.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module_path.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_re_export = !matches!(item.vis, Visibility::Inherited);
        for import in flatten(&item.tree) {
            self.add_ref(&import.path, item.span().start().line, is_re_export);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let names: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        // A single name is a variable or an imported item, never a path to a module.
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

    /// `pub(in path)` is not a dependency, and attributes refer to items of other crates.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}
