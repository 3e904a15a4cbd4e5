//! Templates of alerts and legends.

/// The names in `{{ }}` of a text that begin with a prefix, which is taken off.
pub(crate) fn names_in_templates(text: &str, prefix: &str) -> Vec<String> {
    let parts = text.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
    let words = parts.flat_map(|(inside, _)| inside.split_whitespace());
    words.filter_map(|word| word.strip_prefix(prefix)).map(str::to_owned).collect()
}
