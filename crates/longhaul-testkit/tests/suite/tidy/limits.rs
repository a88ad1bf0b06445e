//! Size limits: 500 lines per file, 70 lines per function, 4 arguments.
//!
//! Clippy counts only lines of code in a body. Here every line between the signature and the
//! closing brace counts.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, FnArg, ImplItemFn, ItemFn, ItemImpl, Signature, TraitItemFn};

use super::finding::Finding;
use super::sources::SourceFile;

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const ARGUMENTS_MAX: usize = 4;

/// Checks every Rust file and every function in it.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            let problem = format!("{lines} lines, {FILE_LINES_MAX} at most");
            let fix = "create a directory of the same name and split the file by concern";
            findings.push(Finding::new(&file.path, problem, fix));
        }
        let Ok(ast) = syn::parse_file(&file.text) else {
            findings.push(Finding::new(&file.path, "does not parse as Rust", "run cargo check"));
            continue;
        };
        let mut visitor = LimitVisitor { file: &file.path, is_trait_impl: false, findings };
        visitor.visit_file(&ast);
        findings = visitor.findings;
    }
    findings
}

struct LimitVisitor<'a> {
    file: &'a str,
    /// Inside `impl Trait for ...`, where the trait defines the arguments.
    is_trait_impl: bool,
    findings: Vec<Finding>,
}

impl LimitVisitor<'_> {
    fn measure(&mut self, signature: &Signature, body: Option<&Block>) {
        let start = signature.span().start().line;
        let name = &signature.ident;
        let argument_count =
            signature.inputs.iter().filter(|input| matches!(input, FnArg::Typed(_))).count();
        if argument_count > ARGUMENTS_MAX && !self.is_trait_impl {
            let problem =
                format!("`{name}` takes {argument_count} arguments, {ARGUMENTS_MAX} at most");
            let fix = "combine them in a struct";
            self.findings.push(Finding::at(self.file, start, problem, fix));
        }
        let end = body.map_or(start, |body| body.brace_token.span.close().end().line);
        let lines = end - start + 1;
        if lines > FUNCTION_LINES_MAX {
            let problem = format!("`{name}` has {lines} lines, {FUNCTION_LINES_MAX} at most");
            let fix = "split it into smaller functions";
            self.findings.push(Finding::at(self.file, start, problem, fix));
        }
    }
}

impl<'ast> Visit<'ast> for LimitVisitor<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let was_trait_impl = std::mem::replace(&mut self.is_trait_impl, false);
        self.measure(&item.sig, Some(&item.block));
        visit::visit_item_fn(self, item);
        self.is_trait_impl = was_trait_impl;
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let was_trait_impl = std::mem::replace(&mut self.is_trait_impl, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.is_trait_impl = was_trait_impl;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.measure(&item.sig, Some(&item.block));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.measure(&item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod checked {
    use super::super::finding::summaries;
    use super::super::sources::SourceFile;
    use super::check;

    fn about(text: String) -> Vec<String> {
        summaries(&check(&[SourceFile { path: "a.rs".to_owned(), text, executable: false }]))
    }

    #[test]
    fn only_values_above_a_limit_are_found() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        assert_eq!(about(function(70)), Vec::<String>::new());
        assert_eq!(about(function(71)), ["a.rs:1: `f` has 71 lines, 70 at most"]);
        assert_eq!(about("// x\n".repeat(500)), Vec::<String>::new());
        assert_eq!(about("// x\n".repeat(501)), ["a.rs: 501 lines, 500 at most"]);
    }

    #[test]
    fn self_is_not_an_argument_and_trait_impls_are_exempt() {
        let text = "
            trait T { fn four(&self, a: A, b: B, c: C, d: D); fn five(a: A, b: B, c: C, d: D, e: E); }
            impl T for S { fn five(a: A, b: B, c: C, d: D, e: E) {} }
            impl S { fn five(&self, a: A, b: B, c: C, d: D, e: E) {} }
        ";
        let problem = "`five` takes 5 arguments, 4 at most";
        assert_eq!(
            about(text.to_owned()),
            [format!("a.rs:2: {problem}"), format!("a.rs:4: {problem}")]
        );
    }

    #[test]
    fn a_function_inside_a_function_is_measured_too() {
        let text = "fn f() {\n    fn g(a: A, b: B, c: C, d: D, e: E) {}\n}\n";
        assert_eq!(about(text.to_owned()), ["a.rs:2: `g` takes 5 arguments, 4 at most"]);
    }
}
