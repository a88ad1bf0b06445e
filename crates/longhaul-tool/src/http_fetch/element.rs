//! What the elements of a page mean to a reader.
//!
//! Never: more than their names say. What an unknown one means is nothing.

/// What has no words for a reader, whose end is always found.
pub(super) const RAW_TEXT_ELEMENTS: [&[u8]; 6] =
    [b"script", b"style", b"noscript", b"iframe", b"noembed", b"textarea"];
/// What has no words for a reader, unless somebody forgot to close it.
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
/// Where a page itself begins, so that an open menu has ended.
pub(super) const CONTENT_START_ELEMENTS: [&[u8]; 3] = [b"main", b"article", b"h1"];

/// How strong a break this element is.
pub(super) fn break_level(name: &[u8]) -> usize {
    match name {
        b"p" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"blockquote" | b"article"
        | b"section" | b"main" | b"header" | b"footer" | b"aside" | b"dl" | b"figure"
        | b"fieldset" | b"details" => 2,
        b"div" | b"br" | b"li" | b"dt" | b"dd" | b"form" | b"figcaption" | b"summary"
        | b"address" | b"option" | b"caption" | b"legend" | b"body" | b"center" => 1,
        _ => 0,
    }
}
