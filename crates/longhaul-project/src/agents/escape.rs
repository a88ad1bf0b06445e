//! Escapes text so that a template renders it unchanged.

const RAW_OPEN: &str = "{% raw %}";
const RAW_CLOSE: &str = "{% endraw %}";

/// Keyword that ends a raw block of a template. An escaped text contains `ENDRAW_SPLIT` instead,
/// which renders to this keyword and does not end the block.
const ENDRAW: &str = "endraw";
const ENDRAW_SPLIT: &str = "end{% endraw %}{% raw %}raw";

/// Returns a template that renders to exactly this text.
pub(crate) fn escape_template_syntax(text: &str) -> String {
    if !["{{", "{%", "{#"].iter().any(|mark| text.contains(mark)) {
        return text.to_owned();
    }
    let escaped_text = text.replace(ENDRAW, ENDRAW_SPLIT);
    format!("{RAW_OPEN}{escaped_text}{RAW_CLOSE}")
}

/// Returns the text that was escaped to this template. A template that is not an escaped text is
/// returned unchanged.
pub fn unescape_template_syntax(template: &str) -> String {
    let inner = template.strip_prefix(RAW_OPEN);
    let inner = inner.and_then(|inner| inner.strip_suffix(RAW_CLOSE));
    match inner.map(|inner| inner.replace(ENDRAW_SPLIT, ENDRAW)) {
        // A template with `endraw` elsewhere is not an escaped text.
        Some(text) if self::escape_template_syntax(&text) == template => text,
        Some(_) | None => template.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_text_renders_unchanged() {
        for text in [
            "",
            "plain",
            "{ a }",
            "{{ input }}",
            "{{ '{{' }} {% if x %} {# never closed",
            "\n{% raw %}{{ x }}{% endraw %}",
            "{%- endraw -%} tail {{",
            "  {% endraw %}{% endraw %}{{ 7 * 7 }}  {%",
            "{% end{% endraw %}{% raw %}raw %}",
            "endraw endendrawraw {{",
            "{{{{{%{%{#{#}}}}%}#}",
            "{{ x -}}\n\n{%- y %}",
        ] {
            let template = escape_template_syntax(text);
            let filled = minijinja::Environment::new().render_str(&template, ());
            assert_eq!(filled.unwrap(), text, "{template}");
            assert_eq!(self::unescape_template_syntax(&template), text);
        }
    }
}
