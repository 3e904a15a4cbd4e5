//! The words of a command.

use std::collections::BTreeMap;
use std::time::Duration;

use xds_cache::{GroupName, ResourceType};

/// A command taken apart: `verb word word key=value word "key=text with blanks"`.
pub(crate) struct Words {
    pub(crate) plain: Vec<String>,
    options: BTreeMap<String, String>,
}

/// What stands before `=` in an option; any other word may hold a `=`.
const OPTIONS: [&str; 26] = [
    "group", "ttl", "alias", "refs", "size", "ids", "agents", "meta", "priority", "client", "label", "node",
    "agent", "features", "service", "nonce", "version", "error", "irv", "names", "unknown", "types", "bytes",
    "addition", "removal", "settle",
];

impl Words {
    /// Takes a command apart; double quotes hold blanks together.
    pub(crate) fn new(command: &str) -> Self {
        let mut words: Vec<String> = vec![String::new()];
        let mut is_quoted = false;
        for character in command.chars() {
            match character {
                '"' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                other => words.last_mut().expect("never empty").push(other),
            }
        }
        let mut plain = Vec::new();
        let mut options = BTreeMap::new();
        for word in words.into_iter().filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((key, value)) if OPTIONS.contains(&key) => {
                    options.insert(key.to_owned(), value.to_owned());
                }
                Some(_) | None => plain.push(word),
            }
        }
        Self { plain, options }
    }

    /// Takes the first plain word away.
    pub(crate) fn shift(&mut self) -> Result<String, String> {
        if self.plain.is_empty() { Err("a word is missing".into()) } else { Ok(self.plain.remove(0)) }
    }

    /// Takes `word` away if it is there.
    pub(crate) fn take_flag(&mut self, word: &str) -> bool {
        let position = self.plain.iter().position(|plain| plain == word);
        position.map(|position| self.plain.remove(position)).is_some()
    }

    pub(crate) fn option(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    /// The parts of an option between commas.
    pub(crate) fn list(&self, key: &str) -> Vec<&str> {
        self.option(key).map(|value| value.split(',').collect()).unwrap_or_default()
    }

    /// The plain words behind a sign.
    pub(crate) fn signed(&self, sign: char) -> Vec<String> {
        self.plain.iter().filter_map(|word| word.strip_prefix(sign)).map(str::to_owned).collect()
    }

    /// A number.
    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, String> {
        self.option(key).map(|value| value.parse().map_err(|_| format!("{key} is no number"))).transpose()
    }
}

/// `5s` or `2500ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit): (&str, fn(u64) -> Duration) = match text.strip_suffix("ms") {
        Some(number) => (number, Duration::from_millis),
        None => (text.strip_suffix('s').ok_or("a time is in s or ms")?, Duration::from_secs),
    };
    number.parse().map(unit).map_err(|_| format!("{text} is no time"))
}

/// A REST name or a type URL.
pub(crate) fn resource_type(word: &str) -> Result<ResourceType, String> {
    ResourceType::from_slug(word).ok_or_else(|| format!("{word} is no type"))
}

/// A name of a group.
pub(crate) fn group_name(name: &str) -> Result<GroupName, String> {
    GroupName::new(name).map_err(|error| error.to_string())
}
