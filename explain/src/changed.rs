//! A request and its answer as a route changes them, and what is known of them.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::HeaderValueOption;
use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};
use envoy_types::pb::envoy::r#type::v3::Int64Range;

use crate::client::Client;
use crate::header::{HeaderCondition, Seen, is_secret};
use crate::semantics::Semantics;
use crate::truth::Truth;

/// A text, or why it is not known.
pub type Known = Result<String, String>;

/// Headers of a request or an answer. A value that is not known may also be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// By name in lower case.
    values: BTreeMap<String, Vec<Known>>,
}

/// What is expected of a header, as a `HeaderMatcher` says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderCheck {
    /// The name.
    pub name: String,
    /// The condition.
    pub is: HeaderIs,
    /// True if the condition must not hold.
    pub inverts: bool,
    /// True if an absent header counts as an empty one.
    pub missing_is_empty: bool,
}

/// A condition on a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderIs {
    /// This text.
    Exact(String, Case),
    /// A text that begins so.
    Prefix(String, Case),
    /// A text that ends so.
    Suffix(String, Case),
    /// A text with this in it.
    Contains(String, Case),
    /// A text that this regular expression takes as a whole.
    Regex(String),
    /// A whole number in `[start, end)`.
    Range(i64, i64),
    /// Present, or absent.
    Present(bool),
}

/// If letters of both cases are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// They differ.
    #[default]
    Counts,
    /// They are the same.
    Ignored,
}

/// What `router_check_tool` compares with what a test expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The cluster; empty if the route does not forward.
    pub cluster: Known,
    /// The virtual cluster; empty if the route does not forward, or the virtual host has none.
    pub virtual_cluster: Known,
    /// The virtual host; empty if the route does not forward.
    pub virtual_host: String,
    /// The host that is forwarded; empty if the route does not forward.
    pub host: Known,
    /// The path that is forwarded; empty if the route does not forward.
    pub path: Known,
    /// Where the answer of a redirect leads, or would if the answer of the route were one; empty if the route forwards.
    pub redirect: Known,
    /// The status of an answer of the route itself, else 0.
    pub code: u32,
    /// The headers of the request after the route.
    pub request: Headers,
    /// The headers of the answer after the route.
    pub response: Headers,
}

impl Headers {
    pub(crate) fn of(seen: &Seen) -> Self {
        let known = |values: &Vec<String>| values.iter().cloned().map(Ok).collect();
        Self { values: seen.all().map(|(name, values)| (name.clone(), known(values))).collect() }
    }

    pub(crate) fn of_pairs(pairs: &[(String, String)]) -> Self {
        let mut headers = Self::default();
        for (name, value) in pairs {
            headers.add(name, Ok(value.clone()));
        }
        headers
    }

    /// The values of a header; none if it is absent.
    fn get(&self, name: &str) -> &[Known] {
        let name = name.to_ascii_lowercase();
        let name = if name == "host" { ":authority" } else { &name };
        self.values.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The first value; empty if the header is absent.
    ///
    /// # Errors
    ///
    /// Why it is not known.
    pub fn first(&self, name: &str) -> Known {
        self.get(name).first().cloned().unwrap_or(Ok(String::new()))
    }

    /// All values, joined with commas; empty if the header is absent.
    ///
    /// # Errors
    ///
    /// Why they are not known.
    pub fn joined(&self, name: &str) -> Known {
        let values: Vec<String> = self.get(name).iter().cloned().collect::<Result<_, _>>()?;
        Ok(values.join(","))
    }

    /// A header in words: its values, `nothing`, or `…` if it is a credential.
    #[must_use]
    pub fn shown(&self, name: &str) -> String {
        let values = self.get(name);
        match values {
            [] => "nothing".to_owned(),
            _ if is_secret(name) => "…".to_owned(),
            values => {
                let shown = values
                    .iter()
                    .map(|value| value.as_ref().map_or("?".to_owned(), |text| format!("{text:?}")));
                shown.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// If the headers are as expected.
    ///
    /// # Errors
    ///
    /// Why that is not known.
    pub fn matches(&self, check: &HeaderCheck, client: Client) -> Result<bool, String> {
        self.take(&check.matcher(), Semantics::of(client))
    }

    pub(crate) fn take(&self, matcher: &HeaderMatcher, semantics: Semantics) -> Result<bool, String> {
        let condition = HeaderCondition::of(matcher, semantics);
        let values: Vec<String> = self.get(condition.key()).iter().cloned().collect::<Result<_, _>>()?;
        let name = if condition.key() == "host" { ":authority" } else { condition.key() };
        let all = if values.is_empty() { BTreeMap::new() } else { [(name.to_owned(), values)].into() };
        match condition.matches(&Seen::of_all(all)) {
            Truth::Yes => Ok(true),
            Truth::No => Ok(false),
            Truth::Unknown => {
                Err(format!("the condition on {:?} ({}) is not modelled", matcher.name, condition.wanted()))
            }
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: Known) {
        self.values.insert(name.to_owned(), vec![value]);
    }

    pub(crate) fn add(&mut self, name: &str, value: Known) {
        self.values.entry(name.to_ascii_lowercase()).or_default().push(value);
    }

    /// Removes and adds headers as one level of a route says: values are those before it, and removals come first.
    pub(crate) fn change(&mut self, add: &[HeaderValueOption], remove: &[String], commands: Commands) {
        for name in remove {
            self.values.remove(&name.to_ascii_lowercase());
        }
        let (mut overwritten, mut added) = (Vec::new(), Vec::new());
        for option in add {
            let Some(header) = &option.header else { continue };
            let name = header.key.to_ascii_lowercase();
            let text = match &*header.raw_value {
                [] => Ok(header.value.clone()),
                raw => String::from_utf8(raw.to_vec()).map_err(|_| "its value is not UTF-8".to_owned()),
            };
            let value = text.and_then(|text| self.formatted(&text, commands));
            let value = value.map_err(|why| format!("the header {name:?} is not known: {why}"));
            if value.as_ref().is_ok_and(String::is_empty) && !option.keep_empty_value {
                continue;
            }
            let is_there = !self.get(&name).is_empty();
            match append_action(option) {
                HeaderAppendAction::AppendIfExistsOrAdd => added.push((name, value)),
                HeaderAppendAction::AddIfAbsent if !is_there => added.push((name, value)),
                HeaderAppendAction::OverwriteIfExists if !is_there => {}
                HeaderAppendAction::AddIfAbsent => {}
                HeaderAppendAction::OverwriteIfExists | HeaderAppendAction::OverwriteIfExistsOrAdd => {
                    overwritten.push((name, value));
                }
            }
        }
        for (name, value) in overwritten {
            // What may be absent may be empty after the change, too.
            let is_open = self.get(&name).iter().any(Result::is_err);
            if !is_open || value.is_err() {
                self.set(&name, value);
            }
        }
        for (name, value) in added {
            self.add(&name, value);
        }
    }

    /// A text after its commands between `%`. Values that are absent are empty.
    ///
    /// # Errors
    ///
    /// The command that is not modelled.
    pub(crate) fn formatted(&self, text: &str, commands: Commands) -> Known {
        let mut out = String::new();
        let mut rest = text;
        while let Some((plain, after)) = rest.split_once('%') {
            out.push_str(plain);
            if let Some(after) = after.strip_prefix('%') {
                out.push('%');
                rest = after;
                continue;
            }
            let unknown = || format!("{text:?} has a command that is not modelled");
            let (command, after) = match after.find(['%', '(']) {
                Some(at) if after.get(at..).is_some_and(|rest| rest.starts_with('(')) => {
                    let end = after.find(")%").ok_or_else(unknown)?;
                    (after.get(..=end), after.get(end + 2..))
                }
                Some(at) => (after.get(..at), after.get(at + 1..)),
                None => (None, None),
            };
            let (command, after) = command.zip(after).ok_or_else(unknown)?;
            match (command, command.strip_prefix("REQ(").and_then(|name| name.strip_suffix(')'))) {
                (_, Some(names)) if commands == Commands::OfRequest => {
                    let mut names = names.split('?').map(|name| self.first(name));
                    let found = names.find(|value| value.as_ref().map_or(true, |text| !text.is_empty()));
                    out.push_str(&found.unwrap_or(Ok(String::new()))?);
                }
                (
                    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT"
                    | "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
                    _,
                ) => {
                    out.push_str("127.0.0.1");
                }
                (_, Some(_) | None) => return Err(format!("the command %{command}% is not modelled")),
            }
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// The commands that are known in the value of a header. The client's address is the one that `router_check_tool` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commands {
    /// Also headers of the request.
    OfRequest,
    /// Those of the connection alone.
    OfAnswer,
}

#[expect(deprecated, reason = "Envoy takes the old field all the same")]
fn append_action(option: &HeaderValueOption) -> HeaderAppendAction {
    match &option.append {
        Some(appends) if appends.value => HeaderAppendAction::AppendIfExistsOrAdd,
        Some(_) => HeaderAppendAction::OverwriteIfExistsOrAdd,
        None => option.append_action(),
    }
}

impl HeaderCheck {
    fn matcher(&self) -> HeaderMatcher {
        let text = |pattern: MatchPattern, case: Case| {
            let ignore_case = case == Case::Ignored;
            HeaderMatchSpecifier::StringMatch(StringMatcher { match_pattern: Some(pattern), ignore_case })
        };
        let specifier = match &self.is {
            HeaderIs::Exact(wanted, case) => text(MatchPattern::Exact(wanted.clone()), *case),
            HeaderIs::Prefix(wanted, case) => text(MatchPattern::Prefix(wanted.clone()), *case),
            HeaderIs::Suffix(wanted, case) => text(MatchPattern::Suffix(wanted.clone()), *case),
            HeaderIs::Contains(wanted, case) => text(MatchPattern::Contains(wanted.clone()), *case),
            HeaderIs::Regex(regex) => {
                let matcher = RegexMatcher { regex: regex.clone(), ..Default::default() };
                text(MatchPattern::SafeRegex(matcher), Case::Counts)
            }
            HeaderIs::Range(start, end) => {
                HeaderMatchSpecifier::RangeMatch(Int64Range { start: *start, end: *end })
            }
            HeaderIs::Present(present) => HeaderMatchSpecifier::PresentMatch(*present),
        };
        HeaderMatcher {
            name: self.name.clone(),
            invert_match: self.inverts,
            treat_missing_header_as_empty: self.missing_is_empty,
            header_match_specifier: Some(specifier),
        }
    }

    /// The condition in words: `"on"`, `not prefix "a"`, `present`.
    #[must_use]
    pub fn wanted(&self, client: Client) -> String {
        HeaderCondition::of(&self.matcher(), Semantics::of(client)).wanted()
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::HeaderValue;

    use super::*;

    fn option(name: &str, value: &str, action: HeaderAppendAction) -> HeaderValueOption {
        let header = HeaderValue { key: name.to_owned(), value: value.to_owned(), ..HeaderValue::default() };
        HeaderValueOption { header: Some(header), append_action: action.into(), ..Default::default() }
    }

    #[test]
    fn a_level_removes_first_and_reads_values_as_they_were_before_it() {
        use HeaderAppendAction::{
            AddIfAbsent, AppendIfExistsOrAdd, OverwriteIfExists, OverwriteIfExistsOrAdd,
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut headers = Headers::of_pairs(&[pair("a", "1"), pair("b", "2"), pair("gone", "3")]);
        let add = [
            option("A", "%REQ(b)%x", AppendIfExistsOrAdd),
            option("b", "%REQ(a)%", OverwriteIfExistsOrAdd),
            option("c", "%REQ(none?a)%%%", AddIfAbsent),
            option("a", "never", AddIfAbsent),
            option("d", "never", OverwriteIfExists),
            option("e", "%REQ(none)%", AppendIfExistsOrAdd),
            option("gone", "new", AppendIfExistsOrAdd),
            option("time", "%START_TIME(%s)%", OverwriteIfExistsOrAdd),
        ];
        headers.change(&add, &["GONE".to_owned()], Commands::OfRequest);
        let values = |name: &str| headers.get(name).to_vec();
        assert_eq!(values("a"), [Ok("1".to_owned()), Ok("2x".to_owned())]);
        assert_eq!(values("b"), [Ok("1".to_owned())]);
        assert_eq!(values("c"), [Ok("1%".to_owned())]);
        assert_eq!(values("d"), []);
        assert_eq!(values("e"), []);
        assert_eq!(values("gone"), [Ok("new".to_owned())]);
        assert!(
            headers.first("time").unwrap_err().contains("%START_TIME(%s)%"),
            "{:?}",
            headers.first("time")
        );
    }
}
