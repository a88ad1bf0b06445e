//! Rust source as tokens: identifiers and keywords without comments and strings, also inside
//! macros.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

/// An identifier or keyword with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// Returns all identifiers and keywords of a Rust file. Returns none if the file has invalid
/// tokens, which the compiler reports.
pub(crate) fn all_tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    collect(text.parse().unwrap_or_default(), &mut found);
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<Token>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                found.push(Token { text: ident.to_string(), line });
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns the identifiers of every attribute, such as `["cfg", "test"]` for `#[cfg(test)]`.
pub(crate) fn attributes(text: &str) -> Vec<Vec<Token>> {
    let mut found = Vec::new();
    collect_attributes(text.parse().unwrap_or_default(), &mut found);
    found
}

fn collect_attributes(tokens: TokenStream, found: &mut Vec<Vec<Token>>) {
    let mut after_hash = false;
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            if after_hash && group.delimiter() == Delimiter::Bracket {
                let mut attribute = Vec::new();
                collect(group.stream(), &mut attribute);
                found.push(attribute);
            }
            collect_attributes(group.stream(), found);
        }
        after_hash = matches!(&token, TokenTree::Punct(punct)
            if punct.as_char() == '#' || after_hash && punct.as_char() == '!');
    }
}

/// Returns the paths in the tokens of a macro that begin with `crate`, `self` or `super`.
pub(crate) fn paths(tokens: TokenStream) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    collect_paths(tokens, &mut found);
    found
}

fn collect_paths(tokens: TokenStream, found: &mut Vec<(Vec<String>, usize)>) {
    let mut path: Vec<String> = Vec::new();
    let mut line = 0;
    let mut colons = 0;
    for token in tokens {
        if let TokenTree::Punct(punct) = &token
            && punct.as_char() == ':'
        {
            colons += 1;
            continue;
        }
        let continues_path = colons == 2 && !path.is_empty();
        colons = 0;
        if !continues_path {
            keep(&mut path, line, found);
        }
        match token {
            TokenTree::Ident(ident) if continues_path => path.push(ident.to_string()),
            TokenTree::Ident(ident) if is_start(&ident) => {
                line = ident.span().start().line;
                path.push(ident.to_string());
            }
            TokenTree::Group(group) => {
                keep(&mut path, line, found);
                collect_paths(group.stream(), found);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    keep(&mut path, line, found);
}

fn is_start(ident: &Ident) -> bool {
    ["crate", "self", "super"].iter().any(|keyword| ident == keyword)
}

fn keep(path: &mut Vec<String>, line: usize, found: &mut Vec<(Vec<String>, usize)>) {
    let complete_path = std::mem::take(path);
    if complete_path.len() > 1 {
        found.push((complete_path, line));
    }
}

#[test]
fn tokens_exclude_comments_and_strings_and_include_macros() {
    let text = "// a\nfn b() {\n    println!(\"c {}\", d);\n}\n";
    let found: Vec<_> =
        all_tokens(text).into_iter().map(|token| (token.text, token.line)).collect();
    let expected = [("fn", 2), ("b", 2), ("println", 3), ("d", 3)];
    assert_eq!(found, expected.map(|(text, line)| (text.to_owned(), line)));
}

#[test]
fn attributes_are_distinguished_from_arrays() {
    let found = attributes("#![one]\n#[two(three)]\nfn f() -> [u8; 1] { [four] }");
    let first: Vec<_> = found.iter().map(|tokens| tokens[0].text.as_str()).collect();
    assert_eq!(first, ["one", "two"]);
    assert_eq!(found[1][1], Token { text: "three".to_owned(), line: 2 });
}

#[test]
fn paths_are_found_between_the_tokens_of_a_macro() {
    let tokens = "a, crate::b::c(super::d::E { f: self.g }), std::crate_h".parse().expect("lexes");
    let found: Vec<_> = paths(tokens).into_iter().map(|(path, _)| path.join("::")).collect();
    assert_eq!(found, ["crate::b::c", "super::d::E"]);
}
