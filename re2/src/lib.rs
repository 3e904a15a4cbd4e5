//! Regular expressions as RE2 reads them, which Envoy and gRPC use. The `regex` crate takes other ones: it knows no `\101` and no `\C`, and takes `(?x)`.
//!
//! [`check`] decides whether RE2 takes an expression, and says where and why not. It does not match.

mod class;
mod factor;
mod node;
mod outcome;
mod parse;
mod program;

pub use outcome::{Encoding, Features, RegexError};

/// Returns what is special about an expression.
///
/// # Errors
///
/// If RE2 refuses it. Expressions of more than [`MAX_LENGTH`] bytes are not read.
pub fn check(pattern: &str, encoding: Encoding) -> Result<Features, RegexError> {
    if pattern.len() > MAX_LENGTH {
        return Ok(Features::default());
    }
    parse::parse(pattern, encoding).map(|(_, features)| features)
}

/// Checks an expression that is matched with UTF-8 text.
///
/// # Errors
///
/// If RE2 refuses it: the column, what is wrong, and what would be right.
pub fn check_regex(pattern: &str) -> Result<(), String> {
    check(pattern, Encoding::Utf8).map(drop).map_err(|error| error.to_string())
}

/// Checks an expression that Envoy and every language of gRPC get. Returns the size of the program that Envoy makes of it; `None` if that is not
/// computed, for classes such as `\p{Greek}` and for very large expressions. Envoy refuses more than 100 unless its runtime says otherwise.
///
/// # Errors
///
/// If one of them refuses it: the column, what is wrong, and what would be right.
pub fn check_shared_regex(pattern: &str) -> Result<Option<usize>, String> {
    for encoding in [Encoding::Utf8, Encoding::Latin1] {
        let features = check(pattern, encoding).map_err(|error| error.to_string())?;
        let refused = [
            (features.angle_name, "not every client knows `(?<name>…)`; write `(?P<name>…)`"),
            (features.any_byte, "not every client knows `\\C`; write `.`"),
            (features.repeated_name, "another group has this name; give it one of its own"),
        ];
        if let Some((column, wrong)) = refused.iter().find_map(|(at, wrong)| Some(((*at)?, wrong))) {
            return Err(format!("column {column}: {wrong}"));
        }
    }
    Ok(program_size(pattern))
}

/// About how many instructions an expression takes, if these are half of what grpc-js has memory for, or more: 16 MiB for all expressions,
/// which is enough for 120,000 instructions. Its process ends when they are used up.
#[must_use]
pub fn exhausts_js(pattern: &str) -> Option<usize> {
    if pattern.len() > MAX_LENGTH {
        return None;
    }
    let (node, features) = parse::parse(pattern, Encoding::Utf8).ok()?;
    let n_of_class = if features.has_unicode_class { N_OF_UNICODE_CLASS } else { 1 };
    Some(program::weight(&node).saturating_mul(n_of_class)).filter(|n| *n > MAX_OF_JS)
}

/// The size of the program that Envoy makes of an expression; `None` if it is not computed: the expression is refused, has classes such as
/// `\p{Greek}`, or is very large.
#[must_use]
pub fn program_size(pattern: &str) -> Option<usize> {
    if pattern.len() > MAX_LENGTH {
        return None;
    }
    let (node, features) = parse::parse(pattern, Encoding::Latin1).ok()?;
    (!features.has_unicode_class).then(|| program::size(node))
}

/// The limit of Envoy, unless its runtime sets `re2.max_program_size.error_level`.
pub const MAX_PROGRAM_SIZE: usize = 100;

/// The most instructions that one expression of a gRPC client may take, about.
const MAX_OF_JS: usize = 60_000;

/// About how many instructions `\\p{L}` takes.
const N_OF_UNICODE_CLASS: usize = 500;

/// The limit for reading.
const MAX_LENGTH: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Expressions with what RE2 says: `=` and the size of the program that Envoy makes, or the column and a word of the error.
    const TABLE: &str = include_str!("../tests/regex_cases.txt");

    #[test]
    fn expressions_are_read_as_re2_reads_them() {
        let (mut n, mut wrong) = (0, Vec::new());
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
            let (expected, pattern) = line.split_once('\t').unwrap();
            let found = match check(pattern, Encoding::Latin1) {
                Ok(_) => program_size(pattern).map_or("?".to_owned(), |size| format!("={size}")),
                Err(error) => format!("{} {}", error.column, error.wrong),
            };
            if found != expected && (expected.starts_with('=') || !found.starts_with(expected)) {
                wrong.push(format!("{pattern}: {found}, not {expected}"));
            }
            n += 1;
        }
        assert_eq!(wrong, Vec::<String>::new());
        assert!(n > 130, "{n}");
    }

    #[test]
    fn clients_that_read_utf8_take_other_expressions() {
        let refused = |pattern: &str, encoding| check(pattern, encoding).is_err();
        for (pattern, by_envoy, by_grpc) in [
            ("\\x{263a}", true, false),
            ("[é-à]", false, true),
            ("[Ā-é]", false, true),
            ("[a-é]", false, false),
            ("\\777", true, false),
        ] {
            assert_eq!(refused(pattern, Encoding::Latin1), by_envoy, "{pattern}");
            assert_eq!(refused(pattern, Encoding::Utf8), by_grpc, "{pattern}");
        }
        let features = |pattern: &str| check(pattern, Encoding::Utf8).unwrap();
        assert_eq!(features("ab(?<n>c)").angle_name, Some(3));
        assert_eq!(features("(?P<n>c)").angle_name, None);
        assert_eq!(features("é\\C").any_byte, Some(2));
        assert_eq!(features("(?P<n>a)(?P<m>b)(?P<n>c)").repeated_name, Some(17));
        assert_eq!(features("[\\\\C]\\\\C"), Features::default());
    }

    #[test]
    fn an_expression_for_every_client_is_one_that_all_take() {
        assert_eq!(check_shared_regex("/a/[^/]+"), Ok(Some(10)));
        assert_eq!(check_shared_regex("\\p{Greek}"), Ok(None));
        for (pattern, wrong) in [
            ("(?=a)", "column 1: RE2 has no look-ahead"),
            ("\\x{263a}", "column 1: "),
            ("[é-à]", "column 2: "),
            ("a(?<n>b)", "column 2: not every client knows `(?<name>…)`; write `(?P<name>…)`"),
            ("\\C", "column 1: not every client knows `\\C`; write `.`"),
            ("(?P<n>a)(?P<n>b)", "column 9: another group has this name"),
        ] {
            let error = check_shared_regex(pattern).unwrap_err();
            assert!(error.starts_with(wrong), "{pattern}: {error}");
        }
    }

    #[test]
    fn what_takes_the_memory_of_grpc_js_is_found() {
        // Each was tried with re2-wasm: these two end it, and those below do not.
        let large = [format!("(?:{}){{1000}}", "a".repeat(200)), "\\p{L}{1,100}".to_owned()];
        for pattern in large {
            assert!(exhausts_js(&pattern).is_some(), "{pattern}");
        }
        for pattern in ["/a/[^/]+", "\\p{L}{1,50}", "[^é]{1,1000}", "(?:[a-z]{1,9}-){1,100}", "(?=a)"] {
            assert_eq!(exhausts_js(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn an_error_says_where_and_what_would_be_right() {
        let error = check("/é/(?=x)", Encoding::Latin1).unwrap_err();
        let expected = "column 4: RE2 has no look-ahead: `(?=`; list what may be there, or use two routes";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn hostile_expressions_end_soon() {
        let nested = |n: usize| format!("{}a{}", "(".repeat(n), ")".repeat(n));
        assert_eq!(program_size(&nested(199)), Some(5 + 2 * 199));
        assert!(check(&nested(201), Encoding::Utf8).unwrap_err().to_string().contains("column 201"));
        let long = [
            "a{1000}".repeat(500),
            "(?:a{30}){30}".repeat(300),
            "[^\\x00-\\xff]{1000}".repeat(200),
            "(?:[^\\x00-\\xff]|x{9}){99}".repeat(150),
            "(?:){1000}".repeat(400),
            "(?:\\b|){1000}".repeat(300),
            "a|ab|abc|abcd|abcde|abcdef|".repeat(150),
            format!("a{}", "|a".repeat(2000)),
            format!("a{}", "?".repeat(4000)),
            format!("(a{})", "*?a*".repeat(1000)),
            format!("{}a{}", "(?:".repeat(200), "{2})".repeat(200)),
            "(x*)*".repeat(800),
            "[[:".repeat(1300),
            "\\Q".repeat(2000),
        ];
        for pattern in long {
            assert!(pattern.len() <= MAX_LENGTH, "{pattern}");
            let _: Option<usize> = program_size(&pattern);
        }
        assert_eq!(program_size(&"a".repeat(999)), Some(1001));
        assert_eq!(check(&"(".repeat(MAX_LENGTH + 1), Encoding::Utf8), Ok(Features::default()));
    }

    #[test]
    fn no_text_makes_the_parser_panic() {
        const PIECES: [&str; 47] = [
            "a",
            "é",
            "(",
            ")",
            "(?:",
            "(?i)",
            "(?P<n>",
            "(?<",
            "[",
            "]",
            "[^",
            "-",
            "[:alpha:]",
            "[:^digit:]",
            "\\",
            "\\d",
            "\\pL",
            "\\p{",
            "}",
            "{",
            "{2}",
            "{0,3}",
            "{1000}",
            "{99999999999}",
            "*",
            "+",
            "?",
            "|",
            "^",
            "$",
            ".",
            "\\b",
            "\\z",
            "\\C",
            "\\Q",
            "\\E",
            "\\x",
            "\\x{",
            "4",
            "\\1",
            "\\12",
            "(?s-",
            "(?-",
            "U",
            "\u{10ffff}",
            "\0",
            ",",
        ];
        let seed = 0x5eed_u64;
        println!("seed {seed}");
        let mut state = seed;
        for _ in 0..20_000 {
            let mut pattern = String::new();
            for _ in 0..state % 24 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let index = usize::try_from(state >> 33).unwrap() % PIECES.len();
                pattern.push_str(PIECES[index]);
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for encoding in [Encoding::Latin1, Encoding::Utf8] {
                if let Err(error) = check(&pattern, encoding) {
                    let n = pattern.chars().count();
                    assert!((1..=n + 1).contains(&error.column), "{pattern:?}: {error}");
                }
            }
            let _: Option<usize> = program_size(&pattern);
        }
    }
}
