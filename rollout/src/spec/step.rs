//! The steps of a rollout.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use crate::fields::{At, Faults, Object};
use crate::spec::analysis::Analysis;
use xds_units::{Percent, Span};

/// One step; the next one begins when it is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Gives the canary a share; done when the concerned clients ACKed.
    SetWeight {
        /// The share.
        weight: Percent,
        /// How long it waits for ACKs; `None` is as the rollout says.
        wait_ack: Option<Span>,
    },
    /// Waits; done after a time, or when someone resumes.
    Pause {
        /// The time; `None` is until someone resumes.
        duration: Option<Span>,
    },
    /// Measures; done after enough good measurements.
    Analysis(Analysis),
    /// Waits for the ACKs of the last change.
    WaitAck {
        /// How long.
        timeout: Span,
    },
    /// Sends requests with certain headers to the canary, for testers; done when the concerned clients ACKed.
    SetHeaderRoute {
        /// The name by which a later step removes it.
        name: String,
        /// The conditions that requests must meet, all of them; empty takes the header route away.
        matches: Vec<HeaderMatch>,
    },
}

/// A condition on one header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderMatch {
    /// The name in lower case.
    pub header_name: String,
    /// The value.
    pub header_value: HeaderValue,
}

/// The condition on the value of a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeaderValue {
    /// Equal.
    Exact(String),
    /// An expression for the whole value.
    Regex(String),
    /// How it begins.
    Prefix(String),
}

impl Step {
    /// Reads a step; analyses take what they leave out from `defaults`.
    pub(crate) fn read(at: &At<'_>, defaults: &Analysis, faults: &mut Faults) -> Option<Self> {
        let mut fields = at.object(faults)?;
        let wait_ack = fields.take("waitAck").map(|at| at.span(Span::from_millis(1), faults));
        let n_kinds = KINDS.iter().filter(|kind| fields.has(kind)).count();
        if n_kinds > 1 || (wait_ack.is_some() && n_kinds == 1 && !fields.has("setWeight")) {
            faults
                .add(fields.pointer(), "a step does one thing; only waitAck can be combined with setWeight");
            return None;
        }
        let step = if let Some(at) = fields.take("setWeight") {
            let weight = at.percent(faults);
            let wait_ack = wait_ack.map_or(Some(None), |read| read.map(Some));
            weight.zip(wait_ack).map(|(weight, wait_ack)| Self::SetWeight { weight, wait_ack })
        } else if let Some(at) = fields.take("pause") {
            read_pause(&at, faults)
        } else if let Some(at) = fields.take("analysis") {
            Analysis::read(&at, defaults, faults).map(Self::Analysis)
        } else if let Some(at) = fields.take("setHeaderRoute") {
            read_header_route(&at, faults)
        } else if let Some(timeout) = wait_ack {
            timeout.map(|timeout| Self::WaitAck { timeout })
        } else {
            faults.add(fields.pointer(), format!("a step is one of {}, waitAck", KINDS.join(", ")));
            None
        };
        fields.finish(faults);
        step
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::SetWeight { weight, wait_ack } => {
                map.serialize_entry("setWeight", weight)?;
                if let Some(wait_ack) = wait_ack {
                    map.serialize_entry("waitAck", wait_ack)?;
                }
            }
            Self::Pause { duration: None } => map.serialize_entry("pause", &json!({}))?,
            Self::Pause { duration } => map.serialize_entry("pause", &json!({ "duration": duration }))?,
            Self::Analysis(analysis) => map.serialize_entry("analysis", analysis)?,
            Self::WaitAck { timeout } => map.serialize_entry("waitAck", timeout)?,
            Self::SetHeaderRoute { name, matches } => {
                map.serialize_entry("setHeaderRoute", &json!({ "name": name, "match": matches }))?;
            }
        }
        map.end()
    }
}

fn read_pause(at: &At<'_>, faults: &mut Faults) -> Option<Step> {
    let mut fields = at.object(faults)?;
    let duration = match fields.take("duration") {
        Some(at) => Some(at.span(Span::from_millis(1), faults)?),
        None => None,
    };
    fields.finish(faults);
    Some(Step::Pause { duration })
}

fn read_header_route(at: &At<'_>, faults: &mut Faults) -> Option<Step> {
    let mut fields = at.object(faults)?;
    let name = fields.need("name", faults).and_then(|at| at.text(MAX_NAME_BYTES, faults));
    let items = fields.take("match").map(|at| at.list(MAX_MATCHES, faults)).unwrap_or_default();
    let read: Vec<_> = items.iter().map(|at| HeaderMatch::read(at, faults)).collect();
    let matches = read.into_iter().collect::<Option<_>>();
    fields.finish(faults);
    Some(Step::SetHeaderRoute { name: name?.to_owned(), matches: matches? })
}

impl HeaderMatch {
    fn read(at: &At<'_>, faults: &mut Faults) -> Option<Self> {
        let mut fields = at.object(faults)?;
        let name = fields.need("headerName", faults).and_then(|at| header_name(&at, faults));
        let value = fields.need("headerValue", faults).and_then(|at| HeaderValue::read(&at, faults));
        fields.finish(faults);
        Some(Self { header_name: name?, header_value: value? })
    }
}

impl HeaderValue {
    fn read(at: &At<'_>, faults: &mut Faults) -> Option<Self> {
        let mut fields: Object<'_> = at.object(faults)?;
        let n_kinds = ["exact", "regex", "prefix"].iter().filter(|kind| fields.has(kind)).count();
        if n_kinds != 1 {
            faults.add(fields.pointer(), "the value of a header needs one of exact, regex, prefix");
        }
        let exact = fields.take("exact").map(|at| at.text(MAX_VALUE_BYTES, faults).map(str::to_owned));
        let prefix = fields.take("prefix").map(|at| at.text(MAX_VALUE_BYTES, faults).map(str::to_owned));
        let regex = fields.take("regex").map(|at| expression(&at, faults));
        fields.finish(faults);
        let value = exact.map(|text| text.map(Self::Exact));
        let value = value.or_else(|| prefix.map(|text| text.map(Self::Prefix)));
        value.or_else(|| regex.map(|text| text.map(Self::Regex))).flatten().filter(|_| n_kinds == 1)
    }
}

/// A header's name, in lower case as HTTP/2 has it.
fn header_name(at: &At<'_>, faults: &mut Faults) -> Option<String> {
    let text = at.text(MAX_NAME_BYTES, faults)?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !text.bytes().all(is_token) {
        at.wrong("the name of a header, such as x-tester", faults);
        return None;
    }
    Some(text.to_ascii_lowercase())
}

fn expression(at: &At<'_>, faults: &mut Faults) -> Option<String> {
    let text = at.text(MAX_REGEX_BYTES, faults)?;
    if let Err(reason) = xds_re2::check_shared_regex(text) {
        faults.add(&at.pointer, format!("not a regular expression that all clients take: {reason}"));
        return None;
    }
    if let Some(n) = xds_re2::exhausts_js(text) {
        let wrong = format!(
            "an expression with about {n} instructions, which ends processes of gRPC (js); shorten its repetitions"
        );
        faults.add(&at.pointer, wrong);
        return None;
    }
    Some(text.to_owned())
}

/// The kinds of steps.
const KINDS: [&str; 4] = ["setWeight", "pause", "analysis", "setHeaderRoute"];
/// The longest name.
const MAX_NAME_BYTES: usize = 253;
/// The longest value of a header.
const MAX_VALUE_BYTES: usize = 4_096;
/// The longest expression, as in the Gateway API.
const MAX_REGEX_BYTES: usize = 1_024;
/// The most headers of a header route, as in the Gateway API.
const MAX_MATCHES: usize = 16;
