//! How HTML elements are rendered as text. Unknown elements have no effect.

/// HTML elements whose content is always skipped, such as `script`: it is not readable text.
pub(super) const RAW_TEXT_ELEMENTS: [&[u8]; 6] =
    [b"script", b"style", b"noscript", b"iframe", b"noembed", b"textarea"];
/// HTML elements that usually hold no content of the page, such as `nav`. They are skipped unless
/// their end tag is missing.
pub(super) const NOISE_ELEMENTS: [&[u8]; 10] = [
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
pub(super) const CONTENT_START_ELEMENTS: [&[u8]; 3] = [b"main", b"article", b"h1"];

/// Returns the number of line breaks around the text of an HTML element.
pub(super) fn line_breaks_around(element_name: &[u8]) -> usize {
    match element_name {
        b"p" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"blockquote" | b"article"
        | b"section" | b"main" | b"header" | b"footer" | b"aside" | b"dl" | b"figure"
        | b"fieldset" | b"details" => 2,
        b"div" | b"br" | b"li" | b"dt" | b"dd" | b"form" | b"figcaption" | b"summary"
        | b"address" | b"option" | b"caption" | b"legend" | b"body" | b"center" => 1,
        _ => 0,
    }
}
