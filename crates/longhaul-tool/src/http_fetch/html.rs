//! A page of HTML as a text that a model can read: title, headings, lists, tables,
//! and links with whole addresses.
//!
//! Never: a tree. Tags are read in their order, whatever they claim to nest in,
//! so that a page can be neither too deep nor too crooked.

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use url::Url;

use crate::http_fetch::element::{
    CONTENT_START_ELEMENTS, NOISE_ELEMENTS, RAW_TEXT_ELEMENTS, break_level,
};
use crate::http_fetch::writer::TextWriter;

/// The longest text made of a page, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// The longest title.
const TITLE_BYTES_MAX: usize = 500;
/// The longest address of a link.
const LINK_BYTES_MAX: usize = 2_000;
/// So many lists and tables in each other are told apart.
const NESTED_MAX: usize = 64;
/// The most columns that get a line below their heads.
const COLUMNS_MAX: usize = 32;

/// The text of this page, whose links are seen from `base`.
pub(super) fn html_to_text(html: &str, base: &Url) -> String {
    let page = parse(html, base, true);
    match page.skipped.is_some() || page.writer.len() == 0 {
        // Something was never closed, or all was noise: then all is shown.
        true => parse(html, base, false).finish(),
        false => page.finish(),
    }
}

fn parse<'a>(html: &str, base: &'a Url, quiet: bool) -> PageReader<'a> {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut page = PageReader::new(base, quiet);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => page.start_tag(&tag),
            Token::EndTag(tag) => page.end_tag(&tag.name),
            Token::String(text) => page.text(&String::from_utf8_lossy(&text.value)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
        if page.writer.len() > TEXT_BYTES_MAX {
            page.is_truncated = true;
            page.skipped = None;
            break;
        }
    }
    page
}

#[derive(Debug)]
struct PageReader<'a> {
    base: &'a Url,
    /// What the page itself says its links are seen from.
    base_override: Option<Url>,
    is_noise_skipped: bool,
    title: String,
    in_title: bool,
    writer: TextWriter,
    /// The next number of each list, none: it has no numbers.
    lists: Vec<Option<u32>>,
    tables: Vec<TableState>,
    verbatim: bool,
    link: Option<(usize, String)>,
    /// What is left out, and how often it was begun.
    skipped: Option<(Vec<u8>, usize)>,
    is_truncated: bool,
}

#[derive(Debug, Default)]
struct TableState {
    rows: usize,
    cells: usize,
    is_head: bool,
}

impl<'a> PageReader<'a> {
    fn new(base: &'a Url, quiet: bool) -> Self {
        Self {
            base,
            base_override: None,
            is_noise_skipped: quiet,
            title: String::new(),
            in_title: false,
            writer: TextWriter::default(),
            lists: Vec::new(),
            tables: Vec::new(),
            verbatim: false,
            link: None,
            skipped: None,
            is_truncated: false,
        }
    }

    fn start_tag(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some((skipped, count)) = &mut self.skipped {
            let over = skipped == b"nav" && CONTENT_START_ELEMENTS.contains(&name);
            if !over {
                *count += usize::from(skipped == name && !tag.self_closing);
                return;
            }
            self.skipped = None;
        }
        let is_noise = RAW_TEXT_ELEMENTS.contains(&name)
            || (self.is_noise_skipped && NOISE_ELEMENTS.contains(&name));
        if is_noise && !tag.self_closing {
            self.skipped = Some((name.to_vec(), 1));
            return;
        }
        match name {
            b"title" => self.in_title = self.title.is_empty() && !tag.self_closing,
            b"base" => self.set_base(tag),
            b"a" => self.begin_link(tag),
            b"img" => self.image(tag),
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.line_break(2);
                let level = usize::from(name[1] - b'0');
                self.writer.add_mark(&format!("{} ", "#".repeat(level)));
            }
            b"ul" | b"ol" | b"menu" => self.begin_list(name == b"ol"),
            b"li" => self.list_item(),
            b"table" => {
                self.writer.end_line(2);
                if self.tables.len() < NESTED_MAX {
                    self.tables.push(TableState::default());
                }
            }
            b"tr" => self.start_row(),
            b"td" | b"th" => self.start_cell(name == b"th"),
            b"pre" if !self.verbatim => {
                self.writer.end_line(2);
                self.writer.add_sign("```\n");
                self.verbatim = true;
            }
            b"code" if !self.verbatim => self.writer.add_sign("`"),
            b"blockquote" => {
                self.line_break(2);
                self.writer.add_mark("> ");
            }
            b"hr" => {
                self.line_break(2);
                self.writer.add_sign("---");
                self.line_break(2);
            }
            _ => self.line_break(break_level(name)),
        }
    }

    fn end_tag(&mut self, name: &[u8]) {
        if let Some((skipped, count)) = &mut self.skipped {
            *count -= usize::from(skipped == name);
            if *count == 0 {
                self.skipped = None;
            }
            return;
        }
        match name {
            b"title" => self.in_title = false,
            b"a" => self.end_link(),
            b"ul" | b"ol" | b"menu" => {
                self.writer.remove_pending_mark();
                self.lists.pop();
                self.writer.set_indent(self.lists.len());
                self.writer.end_line(if self.lists.is_empty() { 2 } else { 1 });
            }
            b"table" => {
                self.end_row();
                self.tables.pop();
                self.writer.end_line(2);
            }
            b"tr" => self.end_row(),
            b"pre" if self.verbatim => {
                self.verbatim = false;
                self.writer.end_line(1);
                self.writer.add_sign("```");
                self.writer.end_line(2);
            }
            b"code" if !self.verbatim => self.writer.append_sign("`"),
            _ => self.line_break(break_level(name)),
        }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            let room = TITLE_BYTES_MAX.saturating_sub(self.title.len());
            self.title.push_str(&text[..text.floor_char_boundary(room)]);
        } else if self.verbatim {
            self.writer.add_verbatim(text);
        } else {
            self.writer.add_text(text);
        }
    }

    /// Wants a break of this strength. In a cell a row would fall apart by it, in a
    /// list the points would.
    fn line_break(&mut self, breaks: usize) {
        let in_cell = self.tables.last().is_some_and(|table| table.cells > 0);
        let breaks = if self.lists.is_empty() { breaks } else { breaks.min(1) };
        match (in_cell, breaks) {
            (_, 0) => {}
            (true, 1) => self.writer.add_space(),
            (true, _) => self.writer.end_line(1),
            (false, _) => self.writer.end_line(breaks),
        }
    }

    fn begin_list(&mut self, numbered: bool) {
        self.writer.end_line(if self.lists.is_empty() { 2 } else { 1 });
        if self.lists.len() < NESTED_MAX {
            self.lists.push(numbered.then_some(1));
        }
        self.writer.set_indent(self.lists.len());
    }

    fn list_item(&mut self) {
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number = number.saturating_add(1);
                format!("{}. ", *number - 1)
            }
            Some(None) | None => "- ".to_owned(),
        };
        self.writer.add_list_mark(&mark);
    }

    fn start_row(&mut self) {
        self.end_row();
        self.writer.end_line(1);
    }

    fn start_cell(&mut self, is_head: bool) {
        let Some(table) = self.tables.last_mut() else {
            self.writer.add_space();
            return;
        };
        match table.cells {
            0 => self.writer.begin_line(),
            _ => self.writer.add_cell_separator(),
        }
        table.cells += 1;
        table.is_head |= is_head;
    }

    fn end_row(&mut self) {
        let Some(table) = self.tables.last_mut() else {
            return;
        };
        let (cells, is_first) = (table.cells, table.rows == 0);
        let is_head = std::mem::take(&mut table.is_head);
        table.cells = 0;
        if cells == 0 {
            return;
        }
        table.rows += 1;
        self.writer.end_line(1);
        if is_head && is_first && (2..=COLUMNS_MAX).contains(&cells) {
            self.writer.add_sign(&vec!["---"; cells].join(" | "));
            self.writer.end_line(1);
        }
    }

    fn set_base(&mut self, tag: &StartTag<()>) {
        if self.base_override.is_none() {
            self.base_override = attribute(tag, b"href").and_then(|to| self.base.join(&to).ok());
        }
    }

    fn begin_link(&mut self, tag: &StartTag<()>) {
        self.end_link();
        let Some(to) = attribute(tag, b"href") else {
            return;
        };
        if to.len() > LINK_BYTES_MAX || to.trim_start().starts_with('#') {
            return;
        }
        let Ok(to) = self.base_override.as_ref().unwrap_or(self.base).join(&to) else {
            return;
        };
        if matches!(to.scheme(), "http" | "https" | "mailto" | "tel" | "ftp") {
            let at = self.writer.add_mark("[");
            self.link = Some((at, to.into()));
        }
    }

    fn end_link(&mut self) {
        let Some((at, to)) = self.link.take() else {
            return;
        };
        let words = self.writer.text_from(at);
        match words.strip_prefix('[') {
            // Marks were taken back, and this one with them.
            None => {}
            Some("") => self.writer.truncate(at),
            Some(words) if words == to => self.writer.remove_char(at),
            Some(_) => self.writer.append_sign(&format!("]({to})")),
        }
    }

    fn image(&mut self, tag: &StartTag<()>) {
        if let Some(words) = attribute(tag, b"alt")
            && !words.trim().is_empty()
        {
            self.writer.add_text(&format!("[image: {}]", words.trim()));
        }
    }

    fn finish(mut self) -> String {
        self.end_link();
        let text = self.writer.finish();
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut page = String::new();
        if !title.is_empty() {
            page.push_str(&format!("Title: {title}\n\n"));
        }
        page.push_str(&text);
        if self.is_truncated {
            page.push_str("\n\n[The page is longer; the rest is left out.]");
        }
        page
    }
}

fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    let found = tag.attributes.get(name)?;
    Some(String::from_utf8_lossy(&found.value).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Maximum number of bytes of text for each byte of a short page: a link is shown with its
    /// whole address.
    const GROWTH_MAX: usize = 10;

    fn base() -> Url {
        Url::parse("https://site.example/a/b?c").unwrap()
    }

    fn check(html: &str, expected: &str) {
        assert_eq!(html_to_text(html, &base()), expected, "{html}");
    }

    #[test]
    fn html_is_converted_to_text() {
        check("", "");
        check("just  \n words", "just words");
        check(
            "<!doctype html><title> A\n title</title><h1>Head</h1><p>One &amp; two<p>three<br>four",
            "Title: A title\n\n# Head\n\nOne & two\n\nthree\nfour",
        );
        check(
            "<p>See <a href='../x?y#z'>this</a>, <a href=//far.example>that</a>.",
            "See [this](https://site.example/x?y#z), [that](https://far.example/).",
        );
        check(
            "<a href=#top>up</a> <a href='javascript:x()'>run</a> <a>none</a> <a href=/e></a>end",
            "up run none end",
        );
        check("<a href='https://a.example/'>https://a.example/</a>", "https://a.example/");
        check("<base href=/deep/><a href=x>x</a>", "[x](https://site.example/deep/x)");
        check(
            "<ul><li>one<li><p>two</p><ol><li>first</li><li></li><li>third</ol></ul>after",
            "- one\n- two\n  1. first\n  3. third\n\nafter",
        );
        check(
            "<table><tr><th>Name<th>Size</tr><tr><td>a</td><td></td></tr><tr><td><div>b</div><td>2</table>end",
            "Name | Size\n--- | ---\na |\nb | 2\n\nend",
        );
        check("<pre>a\n  b</pre>c", "```\na\n  b\n```\n\nc");
        check("use <code>x  y</code> now", "use `x y` now");
        check("a<blockquote><p>said</blockquote>b", "a\n\n> said\n\nb");
        check("<h2></h2><p>x", "## x");
        check("a<hr>b<img alt='a cat' src=x><img src=y>", "a\n\n---\n\nb[image: a cat]");
        check("ze\u{200b}ro\u{202e}&#xE0041;&nbsp;wide", "zero wide");
    }

    #[test]
    fn scripts_and_styles_are_dropped() {
        check(
            "<style>p{}</style><script>if (a</p>b) '<p>'</script><nav><a href=/>Home</a></nav>\
             <svg><title>no</title></svg><noscript><p>x</noscript><p>text<!-- not -->",
            "text",
        );
        // Nobody closed the menu: where the page begins it has ended.
        check("<nav>menu<main>text", "text");
        // Nobody closed it, and nothing begins: all is better than nothing.
        check("<nav>menu<p>text", "menu\n\ntext");
        check("<nav>only</nav>", "only");
        check("<script>never closed", "");
    }

    #[test]
    fn deep_and_long_pages_are_limited() {
        let check = |tag: &str, count: usize| {
            let deep = format!("<{tag}>").repeat(count);
            let text = html_to_text(&format!("{deep}core"), &base());
            assert!(text.contains("core"), "{tag}");
            let closed = format!("{deep}core{}", format!("</{tag}>").repeat(count));
            assert!(html_to_text(&closed, &base()).len() < 40 * count + 100, "{tag}");
        };
        check("div", 100_000);
        for tag in [
            "ul",
            "ol",
            "li",
            "table",
            "tr",
            "td",
            "a href=x",
            "blockquote",
            "nav",
            "svg",
            "pre",
            "h1",
            "b",
        ] {
            check(tag, 1_000);
        }
        let long = html_to_text(&"<p>words and words".repeat(70_000), &base());
        assert!(long.len() < TEXT_BYTES_MAX + 1_000);
        assert!(long.ends_with("[The page is longer; the rest is left out.]"));
    }

    proptest! {
        #[test]
        fn text_of_unbalanced_tags_is_bounded(parts in prop::collection::vec(0usize..26, 0..60)) {
            let pieces = [
                "<a href=x>", "</a>", "<ul>", "</ul>", "<li>", "</li>", "<table>", "</table>",
                "<tr>", "</tr>", "<td>", "<th>", "<pre>", "</pre>", "<code>", "</code>", "<h2>",
                "</h2>", "<p>", "<nav>", "</nav>", "word", " ü ", "<title>", "</title>", "<svg/>",
            ];
            let html: String = parts.into_iter().map(|part| pieces[part]).collect();
            let text = html_to_text(&html, &base());
            prop_assert!(text.len() <= GROWTH_MAX * html.len(), "{html}: {text}");
        }

        #[test]
        fn text_of_any_characters_is_bounded(html in "\\PC{0,200}") {
            let text = html_to_text(&html, &base());
            prop_assert!(text.len() <= GROWTH_MAX * html.len(), "{html}: {text}");
        }
    }
}
