//! Names made from titles that people wrote for other programs, such as `benchmark-suite` from
//! `Benchmark Suite`.

/// Maximum length of a slug in characters.
const CHARS_MAX: usize = 64;

/// Returns the title in lower case, with one hyphen in place of everything that is neither a letter
/// nor a digit. Empty if the title has neither.
pub fn slugify(title: &str) -> String {
    let mut slug = String::new();
    for c in title.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug: String = slug.chars().take(CHARS_MAX).collect();
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::slugify;

    #[test]
    fn a_slug_is_lower_case_with_single_hyphens() {
        let long = "x y ".repeat(100);
        for (title, slug) in [
            ("Benchmark Suite", "benchmark-suite"),
            ("  DB: Architect (v2)!", "db-architect-v2"),
            ("../../etc/passwd", "etc-passwd"),
            ("Über\u{202e}setzer\n", "über-setzer"),
            ("a--b", "a-b"),
            ("...", ""),
            ("", ""),
        ] {
            assert_eq!(slugify(title), slug, "{title:?}");
        }
        assert_eq!(slugify(&long).chars().count(), 63);
    }
}
