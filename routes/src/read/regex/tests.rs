//! Tests of expressions that RE2 accepts and rejects.

use super::*;

fn is_valid(text: &str) -> bool {
    size_of(text).is_ok()
}

#[test]
fn what_re2_takes_is_taken() {
    let table = [
        "",
        "a",
        "helloworld\\.Greeter",
        "a|b",
        "foo.*",
        "(?i)abc",
        "(?i:a)b",
        "(?i-s:a)",
        "(?-i)a",
        "(?P<name>a)",
        "(?:a|b)+?",
        "a{2}",
        "a{2,}",
        "a{2,3}?",
        "a{1000}",
        "a{,2}",
        "a{",
        "{",
        "x{a}",
        "}",
        "]",
        "[]a]",
        "[^]a]",
        "[a-z0-9._-]",
        "[-a]",
        "[a-]",
        "[a&&b]",
        "[a~~b]",
        "[[]",
        "[[a]",
        "[[:alpha:]_]",
        "[[:^digit:]]",
        "[\\d\\s\\w\\D\\S\\W]",
        "\\d+\\D\\s\\S\\w\\W",
        "\\pL",
        "\\PN",
        "\\p{Lu}",
        "\\p{^Greek}",
        "[\\p{Han}a]",
        "\\p{Any}",
        "\\p{Old_Persian}",
        "\\p{Thai}",
        "\\x41",
        "\\x{10FFFF}",
        "\\0",
        "\\101",
        "\\12",
        "\\Qa.b*c\\E+",
        "\\Q(",
        "\\.\\-\\_\\/\\<\\@\\ ",
        "\\A\\ba\\B\\z",
        "^a$",
        "\\b{start}",
        "é+",
        " # ",
        "(a(b(c)))",
        "()",
        "|",
        "a||b",
        "^*",
        "(a{10}){100}",
        "[\\]]",
        "[\\x41-\\x43]",
        "[+--]",
    ];
    for text in table {
        assert!(is_valid(text), "{text}: {:?}", size_of(text));
    }
}

#[test]
fn what_re2_does_not_take_is_refused_with_the_reason() {
    let table = [
        ("(?=a)", "look-around such as `(?=`"),
        ("(?!a)", "look-around such as `(?!`"),
        ("(?<=a)b", "look-around such as `(?<=`"),
        ("(?<!a)b", "look-around such as `(?<!`"),
        ("(a)\\1", "back-references such as `\\1`"),
        ("(a)\\8", "back-references such as `\\8`"),
        ("\\k<a>", "back-references such as `\\k<name>`"),
        ("(?<name>a)", "`(?P<name>…)`"),
        ("(?x)a b", "no group that begins with \"(?x\""),
        ("(?R)", "no group that begins"),
        ("(?u:a)", "no group that begins"),
        ("(?>a)", "no group that begins"),
        ("(?#a)", "no group that begins"),
        ("(?", "no group that begins"),
        ("(?i", "not closed by `)`"),
        ("(?)", "no group that begins"),
        ("(?-)", "no group that begins"),
        ("(?P<a>x)(?P<a>y)", "two groups are named \"a\""),
        ("(?P<a-b>x)", "not the name of a group"),
        ("(?P<a", "not closed by `>`"),
        ("*a", "repeats nothing"),
        ("a|*", "repeats nothing"),
        ("(*)", "repeats nothing"),
        ("{2}", "repeats nothing"),
        ("a**", "repeats a repetition"),
        ("a+*", "repeats a repetition"),
        ("a*??", "repeats a repetition"),
        ("a{2}{3}", "repeats a repetition"),
        ("a{1001}", "more than 1000 times"),
        ("a{99999999999999999999}", "more than 1000 times"),
        ("(a{101}){10}", "in all repetitions together"),
        ("a{3,2}", "in the wrong order"),
        ("(a", "not closed by `)`"),
        ("a)", "closes nothing"),
        ("[a", "not closed by `]`"),
        ("[]", "not closed by `]`"),
        ("[z-a]", "in the wrong order"),
        ("[a--b]", "in the wrong order"),
        ("[a-\\d]", "ends with a set"),
        ("[[:foo:]]", "no class"),
        ("[\\b]", "no `\\b`"),
        ("\\h", "no `\\h`"),
        ("\\R", "no `\\R`"),
        ("\\K", "no `\\K`"),
        ("\\Z", "no `\\Z`"),
        ("\\G", "no `\\G`"),
        ("\\N", "no `\\N`"),
        ("\\C", "not supported by every client"),
        ("\\u{41}", "no `\\u`"),
        ("\\U0041", "no `\\U`"),
        ("\\é", "no `\\é`"),
        ("\\x{110000}", "is not a character"),
        ("\\xZZ", "is not a character"),
        ("\\x{41", "not closed by `}`"),
        ("\\p{Letter}", "no property"),
        ("\\p{Grek}", "no property"),
        ("\\p{greek}", "no property"),
        ("\\p{Script=Greek}", "no property"),
        ("\\pX", "no property"),
        ("\\p", "no property"),
        ("a\\", "ends with a backslash"),
        ("\\pL{1000}", "too large"),
    ];
    for (text, expected) in table {
        match size_of(text) {
            Ok(_) => panic!("{text} is taken"),
            Err(reason) => assert!(reason.contains(expected), "{text}: {reason}"),
        }
    }
}

/// Sizes that RE2 was seen to give, within a tenth.
#[test]
fn sizes_are_about_those_of_re2() {
    let table = [
        ("/v4/advisory/[0-9a-z-]{36}/clone", 118 + 13),
        ("/static/[a-zA-Z0-9.-]{0,200}", 1_013),
        ("/orgs/[^/]+", 21),
    ];
    for (text, expected) in table {
        let size = size_of(text).expect("is valid");
        assert!(size.abs_diff(expected) * 10 <= expected, "{text}: {size}, not {expected}");
    }
}

#[test]
fn what_is_taken_has_a_meaning_in_rust_too() {
    let table = [
        ("[a&&b]", "&", true),
        ("[+--]", ",", true),
        ("a{,2}", "a{,2}", true),
        ("\\b{start}", "x{start}", false),
        ("\\101", "A", true),
        ("\\Qa.b\\E", "a.b", true),
        ("\\Qa.b\\E", "axb", false),
        ("\\<", "<", true),
        ("\\W", "é", true),
        ("\\d", "٣", false),
        ("[\\W]", "a", false),
        ("\\S", "\u{b}", true),
    ];
    for (text, input, expected) in table {
        let mut scanner = Scanner { rest: text, ..Scanner::default() };
        while let Some(next) = scanner.next() {
            scanner.scan(next).expect("is valid");
        }
        let regex = regex::Regex::new(&format!("^(?:{})$", scanner.rust)).expect("is valid");
        assert_eq!(regex.is_match(input), expected, "{text} {input}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in r"([\\a-z(){}\[\]?*+|^$.,:<>=!&~0-9PpQEx-]|é){0,40}") {
        let _ = size_of(&text);
    }
}
