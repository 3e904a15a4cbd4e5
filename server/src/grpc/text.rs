//! Texts of clients, before they are shown to anyone.

/// At most the first `max_bytes` of a text, cut between characters.
pub(crate) fn shortened(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, max_bytes, expected) in [("abc", 3, "abc"), ("abc", 2, "ab"), ("aé", 2, "a"), ("", 0, "")]
        {
            assert_eq!(shortened(text, max_bytes), expected);
        }
    }
}
