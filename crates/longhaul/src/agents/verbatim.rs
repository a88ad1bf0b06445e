//! A text that is no template, in a form that a template makes it of again.
//!
//! Never: changes a letter of it.

const OPEN: &str = "{% raw %}";
const CLOSE: &str = "{% endraw %}";

/// The word that would end a raw block, and its two halves in blocks of their own.
const WORD: &str = "endraw";
const CUT: &str = "end{% endraw %}{% raw %}raw";

/// The template that is filled to exactly this text.
pub(crate) fn template(text: &str) -> String {
    if !["{{", "{%", "{#"].iter().any(|mark| text.contains(mark)) {
        return text.to_owned();
    }
    format!("{OPEN}{}{CLOSE}", text.replace(WORD, CUT))
}

/// The text that such a template is filled to; another template stays as it is.
pub fn text(template: &str) -> String {
    let inner = template.strip_prefix(OPEN);
    let inner = inner.and_then(|inner| inner.strip_suffix(CLOSE));
    match inner.map(|inner| inner.replace(CUT, WORD)) {
        // One that says `endraw` elsewhere was written by somebody else.
        Some(text) if self::template(&text) == template => text,
        Some(_) | None => template.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_out_as_it_went_in() {
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
            let template = template(text);
            let filled = minijinja::Environment::new().render_str(&template, ());
            assert_eq!(filled.unwrap(), text, "{template}");
            assert_eq!(self::text(&template), text);
        }
    }
}
