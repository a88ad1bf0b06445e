//! A text that is no template, in a form that a template makes it of again.
//!
//! Never: changes a letter of it.

const RAW_OPEN: &str = "{% raw %}";
const RAW_CLOSE: &str = "{% endraw %}";

/// The word that would end a raw block, and its two halves in blocks of their own.
const ENDRAW: &str = "endraw";
const ENDRAW_SPLIT: &str = "end{% endraw %}{% raw %}raw";

/// The template that is filled to exactly this text.
pub(crate) fn escape(text: &str) -> String {
    if !["{{", "{%", "{#"].iter().any(|mark| text.contains(mark)) {
        return text.to_owned();
    }
    format!("{RAW_OPEN}{}{RAW_CLOSE}", text.replace(ENDRAW, ENDRAW_SPLIT))
}

/// The text that such a template is filled to; another template stays as it is.
pub fn unescape(template: &str) -> String {
    let inner = template.strip_prefix(RAW_OPEN);
    let inner = inner.and_then(|inner| inner.strip_suffix(RAW_CLOSE));
    match inner.map(|inner| inner.replace(ENDRAW_SPLIT, ENDRAW)) {
        // One that says `endraw` elsewhere was written by somebody else.
        Some(text) if self::escape(&text) == template => text,
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
            let template = escape(text);
            let filled = minijinja::Environment::new().render_str(&template, ());
            assert_eq!(filled.unwrap(), text, "{template}");
            assert_eq!(self::unescape(&template), text);
        }
    }
}
