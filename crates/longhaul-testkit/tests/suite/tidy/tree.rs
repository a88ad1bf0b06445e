//! The module tree of a crate, built from its `mod` items. Each file is one module; an inline
//! `mod` belongs to its file.

use std::collections::BTreeMap;

use syn::{Attribute, Expr, Item, Lit, Meta};

use super::sources::SourceFile;
use super::tokens;

/// A file as a module.
pub(crate) struct Module {
    /// Module path from the crate root; empty for the root.
    pub(crate) names: Vec<String>,
    pub(crate) file: String,
    pub(crate) ast: syn::File,
    /// Whether the module is compiled only for tests.
    pub(crate) for_tests: bool,
}

/// A crate root (library, binary or integration test) with all its modules.
pub(crate) struct Tree {
    pub(crate) modules: Vec<Module>,
}

/// Returns the module trees of the repository. A file that can't be parsed has no children; the
/// compiler reports it.
pub(crate) fn trees(files: &[SourceFile]) -> Vec<Tree> {
    let texts: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let roots = files.iter().filter(|file| file.crate_path().is_some_and(is_root));
    let trees = roots.map(|file| {
        let mut builder = TreeBuilder { texts: &texts, modules: Vec::new() };
        builder.add_file(
            ModulePath { names: Vec::new(), for_tests: false },
            &file.path,
            folder(&file.path),
        );
        Tree { modules: builder.modules }
    });
    trees.collect()
}

fn is_root(path: &str) -> bool {
    let prefixes = ["src/bin/", "tests/", "examples/", "benches/"];
    let suffix = prefixes.iter().find_map(|prefix| path.strip_prefix(prefix));
    matches!(path, "src/lib.rs" | "src/main.rs" | "build.rs")
        || suffix.is_some_and(|name| {
            let is_file = !name.contains('/') && name.ends_with(".rs");
            is_file || name.split('/').collect::<Vec<_>>()[1..] == ["main.rs"]
        })
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Position of a module in the tree.
#[derive(Debug, Clone)]
struct ModulePath {
    names: Vec<String>,
    for_tests: bool,
}

struct TreeBuilder<'a> {
    texts: &'a BTreeMap<&'a str, &'a str>,
    modules: Vec<Module>,
}

impl TreeBuilder<'_> {
    /// Adds a file and the files of its `mod` items.
    fn add_file(&mut self, module_path: ModulePath, file: &str, children: &str) {
        let Some(text) = self.texts.get(file) else {
            return;
        };
        let ast = syn::parse_file(text).unwrap_or(syn::File {
            shebang: None,
            frontmatter: None,
            attrs: vec![],
            items: vec![],
        });
        self.add_items(&ast.items, &module_path, (file, children));
        let ModulePath { names, for_tests } = module_path;
        self.modules.push(Module { names, file: file.to_owned(), ast, for_tests });
    }

    fn add_items(
        &mut self,
        items: &[Item],
        module_path: &ModulePath,
        (file, children): (&str, &str),
    ) {
        for item in items {
            let Item::Mod(item) = item else { continue };
            let name = item.ident.to_string();
            let mut child_path = module_path.clone();
            child_path.names.push(name.clone());
            child_path.for_tests |= is_for_tests(&item.attrs);
            let folder_below = format!("{children}/{name}");
            if let Some((_, items)) = &item.content {
                self.add_items(items, &child_path, (file, &folder_below));
            } else if let Some(path) = path_attribute(&item.attrs) {
                let path = format!("{}/{path}", folder(file));
                let children_dir = folder(&path).to_owned();
                self.add_file(child_path, &path, &children_dir);
            } else if self.texts.contains_key(format!("{folder_below}.rs").as_str()) {
                self.add_file(child_path, &format!("{folder_below}.rs"), &folder_below);
            } else {
                self.add_file(child_path, &format!("{folder_below}/mod.rs"), &folder_below);
            }
        }
    }
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        let Expr::Lit(literal) = &pair.value else {
            return None;
        };
        let Lit::Str(path) = &literal.lit else {
            return None;
        };
        pair.path.is_ident("path").then(|| path.value())
    })
}

/// Returns whether the attributes contain `#[cfg(test)]` or `#[test]`.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let list_tokens = tokens::all_tokens(&list.tokens.to_string());
            list.path.is_ident("cfg")
                && list_tokens.first().is_some_and(|token| token.text == "test")
        }
        Meta::NameValue(_) => false,
    })
}

#[cfg(test)]
mod checked {
    use super::super::sources::fixture;
    use super::trees;

    fn files(source: &str) -> Vec<String> {
        let trees = trees(&fixture(source));
        let modules = trees.iter().flat_map(|tree| &tree.modules);
        let descriptions = modules.map(|module| {
            let tests = if module.for_tests { " (tests)" } else { "" };
            format!("{} = {}{tests}", module.names.join("::"), module.file)
        });
        let mut descriptions: Vec<_> = descriptions.collect();
        descriptions.sort();
        descriptions
    }

    #[test]
    fn mod_lines_lead_to_files() {
        let source = "
        //- crates/a/src/lib.rs
        mod b;
        mod old;
        mod inline { mod e; }
        #[cfg(test)]
        mod t;
        //- crates/a/src/b.rs
        mod c;
        //- crates/a/src/b/c.rs
        //- crates/a/src/old/mod.rs
        //- crates/a/src/inline/e.rs
        //- crates/a/src/t.rs
        //- crates/a/src/nobody.rs
        ";
        let expected = [
            " = crates/a/src/lib.rs",
            "b = crates/a/src/b.rs",
            "b::c = crates/a/src/b/c.rs",
            "inline::e = crates/a/src/inline/e.rs",
            "old = crates/a/src/old/mod.rs",
            "t = crates/a/src/t.rs (tests)",
        ];
        assert_eq!(files(source), expected);
    }

    #[test]
    fn suites_are_roots_and_a_path_attribute_is_followed() {
        let source = "
        //- crates/a/tests/suite.rs
        mod suite { mod b; }
        #[path = \"suite/c.rs\"]
        mod c;
        //- crates/a/tests/suite/b.rs
        //- crates/a/tests/suite/c.rs
        //- crates/a/tests/other/main.rs
        ";
        let expected = [
            " = crates/a/tests/other/main.rs",
            " = crates/a/tests/suite.rs",
            "c = crates/a/tests/suite/c.rs",
            "suite::b = crates/a/tests/suite/b.rs",
        ];
        assert_eq!(files(source), expected);
    }
}
