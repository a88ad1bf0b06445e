//! Converts HTML to text for a model: title, headings, lists, tables, and links with full URLs.
//!
//! Invariant: no tree is built. Tags are processed in order, so that depth and malformed nesting
//! can't do harm.

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use url::Url;

use crate::http_fetch::writer::TextWriter;

/// Maximum length of the text rendered from a page, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Maximum length of a page's title in bytes.
const TITLE_BYTES_MAX: usize = 500;
/// Maximum length of a link's URL in bytes.
const LINK_BYTES_MAX: usize = 2_000;
/// Maximum nesting of lists and of tables that is tracked.
const NESTED_MAX: usize = 64;
/// Maximum number of columns of a table that gets a separator line below its header.
const COLUMNS_MAX: usize = 32;

/// HTML elements whose content is always skipped, such as `script`: it is not readable text.
const RAW_TEXT_ELEMENTS: [&[u8]; 6] =
    [b"script", b"style", b"noscript", b"iframe", b"noembed", b"textarea"];
/// HTML elements that usually hold no content of the page, such as `nav`. They are skipped unless
/// their end tag is missing.
const NOISE_ELEMENTS: [&[u8]; 10] = [
    b"nav",
    b"template",
    b"svg",
    b"object",
    b"canvas",
    b"audio",
    b"video",
    b"select",
    b"button",
    b"dialog",
];
/// HTML elements that start the main content of a page. A skipped `nav` element without an end tag
/// ends before them.
const CONTENT_START_ELEMENTS: [&[u8]; 3] = [b"main", b"article", b"h1"];

/// Returns the text of a page. Relative links are resolved against `base`.
pub(super) fn html_to_text(html: &str, base: &Url) -> String {
    let page = parse_html_page(html, base, true);
    match page.skipped.is_some() || page.writer.len() == 0 {
        // An element was never closed, or the page has only noise elements. Then everything is
        // shown.
        true => parse_html_page(html, base, false).into_page_text(),
        false => page.into_page_text(),
    }
}

fn parse_html_page<'a>(html: &str, base: &'a Url, skip_non_content: bool) -> HtmlPageReader<'a> {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut page = HtmlPageReader::new(base, skip_non_content);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => page.on_start_tag(&tag),
            Token::EndTag(tag) => page.on_end_tag(&tag.name),
            Token::String(text) => page.on_text(&String::from_utf8_lossy(&text.value)),
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
struct HtmlPageReader<'a> {
    base: &'a Url,
    /// Base URL from the page's `base` element. `None` means that no such element with a valid URL
    /// was read so far.
    base_override: Option<Url>,
    is_noise_skipped: bool,
    title: String,
    in_title: bool,
    writer: TextWriter,
    /// Next item number of each open list. `None` means the list is not numbered.
    lists: Vec<Option<u32>>,
    tables: Vec<TableState>,
    verbatim: bool,
    link: Option<(usize, String)>,
    /// HTML element whose content is being skipped, and its nesting depth. `None` means that
    /// nothing is being skipped.
    skipped: Option<(Vec<u8>, usize)>,
    is_truncated: bool,
}

#[derive(Debug, Default)]
struct TableState {
    rows: usize,
    cells: usize,
    is_head: bool,
}

impl<'a> HtmlPageReader<'a> {
    fn new(base: &'a Url, skip_non_content: bool) -> Self {
        Self {
            base,
            base_override: None,
            is_noise_skipped: skip_non_content,
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

    fn on_start_tag(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some((skipped, count)) = &mut self.skipped {
            let is_content_start = skipped == b"nav" && CONTENT_START_ELEMENTS.contains(&name);
            if !is_content_start {
                *count += usize::from(skipped == name && !tag.self_closing);
                return;
            }
            self.skipped = None;
        }
        let is_skipped = RAW_TEXT_ELEMENTS.contains(&name)
            || (self.is_noise_skipped && NOISE_ELEMENTS.contains(&name));
        if is_skipped && !tag.self_closing {
            self.skipped = Some((name.to_vec(), 1));
            return;
        }
        match name {
            b"title" => self.in_title = self.title.is_empty() && !tag.self_closing,
            b"base" if self.base_override.is_none() => {
                let href = tag_attribute(tag, b"href");
                self.base_override = href.and_then(|href| self.base.join(&href).ok());
            }
            b"a" => self.begin_link(tag),
            b"img" => self.add_image_alt_text(tag),
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.request_line_breaks(2);
                let level = usize::from(name[1] - b'0');
                self.writer.add_markdown_mark(&format!("{} ", "#".repeat(level)));
            }
            b"ul" | b"ol" | b"menu" => self.begin_list(name == b"ol"),
            b"li" => self.begin_list_item(),
            b"table" => {
                self.writer.require_line_breaks(2);
                if self.tables.len() < NESTED_MAX {
                    self.tables.push(TableState::default());
                }
            }
            b"tr" => {
                self.end_table_row();
                self.writer.require_line_breaks(1);
            }
            b"td" | b"th" => self.start_table_cell(name == b"th"),
            b"pre" if !self.verbatim => {
                self.writer.require_line_breaks(2);
                self.writer.add_markup("```\n");
                self.verbatim = true;
            }
            b"code" if !self.verbatim => self.writer.add_markup("`"),
            b"blockquote" => {
                self.request_line_breaks(2);
                self.writer.add_markdown_mark("> ");
            }
            b"hr" => {
                self.request_line_breaks(2);
                self.writer.add_markup("---");
                self.request_line_breaks(2);
            }
            _ => self.request_line_breaks(line_breaks_around(name)),
        }
    }

    fn on_end_tag(&mut self, name: &[u8]) {
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
                self.writer.drop_empty_mark();
                self.lists.pop();
                self.writer.set_indent(self.lists.len());
                self.writer.require_line_breaks(if self.lists.is_empty() { 2 } else { 1 });
            }
            b"table" => {
                self.end_table_row();
                self.tables.pop();
                self.writer.require_line_breaks(2);
            }
            b"tr" => self.end_table_row(),
            b"pre" if self.verbatim => {
                self.verbatim = false;
                self.writer.require_line_breaks(1);
                self.writer.add_markup("```");
                self.writer.require_line_breaks(2);
            }
            b"code" if !self.verbatim => self.writer.close_markup("`"),
            _ => self.request_line_breaks(line_breaks_around(name)),
        }
    }

    fn on_text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            let max_len = TITLE_BYTES_MAX.saturating_sub(self.title.len());
            self.title.push_str(&text[..text.floor_char_boundary(max_len)]);
        } else if self.verbatim {
            self.writer.add_verbatim_text(text);
        } else {
            self.writer.add_text(text);
        }
    }

    /// Requests line breaks before the next text. In a table cell or a list fewer are written,
    /// because breaks would split the row or separate the items.
    fn request_line_breaks(&mut self, breaks: usize) {
        let in_cell = self.tables.last().is_some_and(|table| table.cells > 0);
        let breaks = if self.lists.is_empty() { breaks } else { breaks.min(1) };
        match (in_cell, breaks) {
            (_, 0) => {}
            (true, 1) => self.writer.request_space(),
            (true, _) => self.writer.require_line_breaks(1),
            (false, _) => self.writer.require_line_breaks(breaks),
        }
    }

    fn begin_list(&mut self, numbered: bool) {
        self.writer.require_line_breaks(if self.lists.is_empty() { 2 } else { 1 });
        if self.lists.len() < NESTED_MAX {
            self.lists.push(numbered.then_some(1));
        }
        self.writer.set_indent(self.lists.len());
    }

    fn begin_list_item(&mut self) {
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number = number.saturating_add(1);
                format!("{}. ", *number - 1)
            }
            Some(None) | None => "- ".to_owned(),
        };
        self.writer.add_list_item_mark(&mark);
    }

    fn start_table_cell(&mut self, is_header_cell: bool) {
        let Some(table) = self.tables.last_mut() else {
            self.writer.request_space();
            return;
        };
        match table.cells {
            0 => self.writer.begin_line(),
            _ => self.writer.add_cell_separator(),
        }
        table.cells += 1;
        table.is_head |= is_header_cell;
    }

    fn end_table_row(&mut self) {
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
        self.writer.require_line_breaks(1);
        if is_head && is_first && (2..=COLUMNS_MAX).contains(&cells) {
            self.writer.add_markup(&vec!["---"; cells].join(" | "));
            self.writer.require_line_breaks(1);
        }
    }

    fn begin_link(&mut self, tag: &StartTag<()>) {
        self.end_link();
        let Some(target) = tag_attribute(tag, b"href") else {
            return;
        };
        if target.len() > LINK_BYTES_MAX || target.trim_start().starts_with('#') {
            return;
        }
        let Ok(target) = self.base_override.as_ref().unwrap_or(self.base).join(&target) else {
            return;
        };
        if matches!(target.scheme(), "http" | "https" | "mailto" | "tel" | "ftp") {
            let at = self.writer.add_markdown_mark("[");
            self.link = Some((at, target.into()));
        }
    }

    fn end_link(&mut self) {
        let Some((at, target)) = self.link.take() else {
            return;
        };
        let text = self.writer.text_from_byte(at);
        match text.strip_prefix('[') {
            // The link's mark was removed together with other pending marks.
            None => {}
            Some("") => self.writer.truncate(at),
            // The text is the link itself.
            Some(text) if text == target => {
                self.writer.truncate(at);
                self.writer.close_markup(&target);
            }
            Some(_) => self.writer.close_markup(&format!("]({target})")),
        }
    }

    fn add_image_alt_text(&mut self, tag: &StartTag<()>) {
        if let Some(alt) = tag_attribute(tag, b"alt")
            && !alt.trim().is_empty()
        {
            self.writer.add_text(&format!("[image: {}]", alt.trim()));
        }
    }

    fn into_page_text(mut self) -> String {
        self.end_link();
        let text = self.writer.into_written_text();
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

/// Returns the number of line breaks around the text of an HTML element.
fn line_breaks_around(element_name: &[u8]) -> usize {
    match element_name {
        b"p" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"blockquote" | b"article"
        | b"section" | b"main" | b"header" | b"footer" | b"aside" | b"dl" | b"figure"
        | b"fieldset" | b"details" => 2,
        b"div" | b"br" | b"li" | b"dt" | b"dd" | b"form" | b"figcaption" | b"summary"
        | b"address" | b"option" | b"caption" | b"legend" | b"body" | b"center" => 1,
        _ => 0,
    }
}

fn tag_attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    let attribute = tag.attributes.get(name)?;
    Some(String::from_utf8_lossy(&attribute.value).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Maximum number of bytes of rendered text per byte of a short HTML page. The text can be
    /// longer than the page, because each link is shown with its full URL.
    const GROWTH_MAX: usize = 10;

    fn test_base_url() -> Url {
        Url::parse("https://site.example/a/b?c").unwrap()
    }

    fn check_html_text(html: &str, expected: &str) {
        assert_eq!(html_to_text(html, &test_base_url()), expected, "{html}");
    }

    #[test]
    fn html_is_converted_to_text() {
        check_html_text("", "");
        check_html_text("just  \n words", "just words");
        check_html_text(
            "<!doctype html><title> A\n title</title><h1>Head</h1><p>One &amp; two<p>three<br>four",
            "Title: A title\n\n# Head\n\nOne & two\n\nthree\nfour",
        );
        check_html_text(
            "<p>See <a href='../x?y#z'>this</a>, <a href=//far.example>that</a>.",
            "See [this](https://site.example/x?y#z), [that](https://far.example/).",
        );
        check_html_text(
            "<a href=#top>up</a> <a href='javascript:x()'>run</a> <a>none</a> <a href=/e></a>end",
            "up run none end",
        );
        check_html_text(
            "<a href='https://a.example/'>https://a.example/</a>",
            "https://a.example/",
        );
        check_html_text("<base href=/deep/><a href=x>x</a>", "[x](https://site.example/deep/x)");
        check_html_text(
            "<ul><li>one<li><p>two</p><ol><li>first</li><li></li><li>third</ol></ul>after",
            "- one\n- two\n  1. first\n  3. third\n\nafter",
        );
        check_html_text(
            "<table><tr><th>Name<th>Size</tr><tr><td>a</td><td></td></tr><tr><td><div>b</div><td>2</table>end",
            "Name | Size\n--- | ---\na |\nb | 2\n\nend",
        );
        check_html_text("<pre>a\n  b</pre>c", "```\na\n  b\n```\n\nc");
        check_html_text("use <code>x  y</code> now", "use `x y` now");
        check_html_text("a<blockquote><p>said</blockquote>b", "a\n\n> said\n\nb");
        check_html_text("<h2></h2><p>x", "## x");
        check_html_text("a<hr>b<img alt='a cat' src=x><img src=y>", "a\n\n---\n\nb[image: a cat]");
        check_html_text("ze\u{200b}ro\u{202e}&#xE0041;&nbsp;wide", "zero wide");
    }

    #[test]
    fn scripts_and_styles_are_dropped() {
        check_html_text(
            "<style>p{}</style><script>if (a</p>b) '<p>'</script><nav><a href=/>Home</a></nav>\
             <svg><title>no</title></svg><noscript><p>x</noscript><p>text<!-- not -->",
            "text",
        );
        // The menu is not closed, so it ends where the main content starts.
        check_html_text("<nav>menu<main>text", "text");
        // The menu is not closed and there is no main content, so everything is shown.
        check_html_text("<nav>menu<p>text", "menu\n\ntext");
        check_html_text("<nav>only</nav>", "only");
        check_html_text("<script>never closed", "");
    }

    #[test]
    fn deep_and_long_pages_are_limited() {
        let check = |tag: &str, count: usize| {
            let open_tags = format!("<{tag}>").repeat(count);
            let text = html_to_text(&format!("{open_tags}core"), &test_base_url());
            assert!(text.contains("core"), "{tag}");
            let closed = format!("{open_tags}core{}", format!("</{tag}>").repeat(count));
            assert!(html_to_text(&closed, &test_base_url()).len() < 40 * count + 100, "{tag}");
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
        let long = html_to_text(&"<p>words and words".repeat(70_000), &test_base_url());
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
            let text = html_to_text(&html, &test_base_url());
            prop_assert!(text.len() <= GROWTH_MAX * html.len(), "{html}: {text}");
        }

        #[test]
        fn output_length_is_bounded_for_any_html(html in "\\PC{0,200}") {
            let text = html_to_text(&html, &test_base_url());
            prop_assert!(text.len() <= GROWTH_MAX * html.len(), "{html}: {text}");
        }
    }
}
