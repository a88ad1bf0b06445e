//! Finds the arrows between the modules of one crate.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Path, UseTree, Visibility};

use super::tokens;
use super::tree::{Module, Tree, is_for_tests};

/// One file names something that is born in another (or in itself).
#[derive(Debug)]
pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) line: usize,
    /// The path as it is written.
    pub(crate) said: String,
    /// It goes through a re-export of the crate's root.
    pub(crate) by_the_door: bool,
}

/// Every arrow of a tree, tests left out.
pub(crate) fn arrows(tree: &Tree) -> Vec<Arrow> {
    let map = Map::draw(tree);
    let mut arrows = Vec::new();
    for (index, module) in tree.modules.iter().enumerate() {
        if !module.for_tests {
            let here = module.names.clone();
            let mut walker = Walker {
                map: &map,
                index,
                here,
                arrows: &mut arrows,
            };
            walker.visit_file(&module.ast);
        }
    }
    arrows
}

/// Who is where, and under which names a module hands on what it does not bear.
struct Map<'a> {
    modules: BTreeMap<&'a [String], usize>,
    rooms: Vec<Room>,
    /// Inline modules too, so that `inner::Thing` is known to be a path of ours.
    all: BTreeSet<Vec<String>>,
}

#[derive(Default)]
struct Room {
    born: BTreeSet<String>,
    handed_on: BTreeMap<String, Vec<String>>,
    handed_on_whole: Vec<Vec<String>>,
}

impl<'a> Map<'a> {
    fn draw(tree: &'a Tree) -> Self {
        let names = |(index, module): (usize, &'a Module)| (module.names.as_slice(), index);
        let modules: BTreeMap<_, _> = tree.modules.iter().enumerate().map(names).collect();
        let mut map = Self {
            modules,
            rooms: Vec::new(),
            all: BTreeSet::new(),
        };
        for module in &tree.modules {
            map.all.insert(module.names.clone());
            add_inline(&module.ast.items, &module.names, &mut map.all);
        }
        map.rooms = tree
            .modules
            .iter()
            .map(|module| map.furnish(module))
            .collect();
        map
    }

    fn furnish(&self, module: &Module) -> Room {
        let mut room = Room::default();
        for item in &module.ast.items {
            room.born.extend(born_name(item));
            let Item::Use(item) = item else { continue };
            if matches!(item.vis, Visibility::Inherited) {
                continue;
            }
            for import in flatten(&item.tree) {
                let Some(path) = self.absolute(&import.path, &module.names) else {
                    continue;
                };
                match import.name {
                    Some(name) => drop(room.handed_on.insert(name, path)),
                    None => room.handed_on_whole.push(path),
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
    fn deepest<'p>(&self, path: &'p [String]) -> Option<(usize, &'p [String])> {
        (0..=path.len()).rev().find_map(|cut| {
            let index = self.modules.get(&path[..cut])?;
            Some((*index, &path[cut..]))
        })
    }

    /// The file where what a path names is born.
    fn born(&self, path: &[String], hops: usize) -> Option<usize> {
        let (index, rest) = self.deepest(path)?;
        let Some((name, below)) = rest.split_first().filter(|_| hops < HOPS_MAX) else {
            return Some(index);
        };
        let room = &self.rooms[index];
        if room.born.contains(name) {
            return Some(index);
        }
        if let Some(origin) = room.handed_on.get(name) {
            return self.born(&[origin.as_slice(), below].concat(), hops + 1);
        }
        let origins = room.handed_on_whole.iter();
        let found = origins.filter_map(|origin| {
            let there = self.born(&[origin.as_slice(), rest].concat(), hops + 1)?;
            self.rooms[there].born.contains(name).then_some(there)
        });
        Some(found.into_iter().next().unwrap_or(index))
    }
}

/// Re-exports of re-exports end somewhere; a circle of them must not hang the test.
const HOPS_MAX: usize = 16;

fn add_inline(items: &[Item], names: &[String], all: &mut BTreeSet<Vec<String>>) {
    for item in items {
        let Item::Mod(ItemMod {
            ident,
            content: Some((_, items)),
            ..
        }) = item
        else {
            continue;
        };
        let below = [names, &[ident.to_string()]].concat();
        add_inline(items, &below, all);
        all.insert(below);
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "syn keeps its list of items open"
)]
fn born_name(item: &Item) -> Option<String> {
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
        UseTree::Glob(_) => vec![Import {
            path: Vec::new(),
            name: None,
        }],
        UseTree::Group(tree) => tree.items.iter().flat_map(flatten).collect(),
    }
}

fn leaf(ident: &str, name: String) -> Vec<Import> {
    let path = if ident == "self" {
        Vec::new()
    } else {
        vec![ident.to_owned()]
    };
    vec![Import {
        path,
        name: Some(name),
    }]
}

struct Walker<'a> {
    map: &'a Map<'a>,
    index: usize,
    /// Where we stand, inline modules included.
    here: Vec<String>,
    arrows: &'a mut Vec<Arrow>,
}

impl Walker<'_> {
    fn draw(&mut self, path: &[String], line: usize, is_re_export: bool) {
        let Some(absolute) = self.map.absolute(path, &self.here) else {
            return;
        };
        let Some(to) = self.map.born(&absolute, 0) else {
            return;
        };
        if is_re_export && absolute.starts_with(&self.here) {
            return;
        }
        let at_the_door = self.map.deepest(&absolute).map(|(index, _)| index);
        let root = self.map.modules.get([].as_slice()).copied();
        let by_the_door = at_the_door == root && Some(to) != root;
        let said = path.join("::");
        self.arrows.push(Arrow {
            from: self.index,
            to,
            line,
            said,
            by_the_door,
        });
    }
}

impl<'ast> Visit<'ast> for Walker<'_> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "syn keeps its list of items open"
    )]
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
            self.draw(&import.path, item.span().start().line, is_re_export);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let names: Vec<_> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        // One name alone is a variable or an imported thing, never a road to a module.
        if names.len() > 1 {
            self.draw(&names, path.span().start().line, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        for (path, line) in tokens::paths(item.tokens.clone()) {
            self.draw(&path, line, false);
        }
        visit::visit_macro(self, item);
    }

    /// `pub(in path)` grants, it does not use; attributes name things of other crates.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}
