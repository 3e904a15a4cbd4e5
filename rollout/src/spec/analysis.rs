//! The rules by which the canary is judged.

use serde::Serialize;

use crate::fields::{At, Faults, Object};
use xds_units::{Percent, Span};

/// The conditions that a canary must meet, and how often they are measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Analysis {
    /// How long a measurement collects requests.
    pub interval: Span,
    /// How many measurements must be good; counts for steps alone.
    pub count: u32,
    /// Fewer requests than these say nothing.
    pub min_requests: u64,
    /// How many measurements may be bad, of all analyses of the rollout together. The next one aborts.
    pub failure_limit: u32,
    /// How many measurements in a row may say nothing. The next one pauses.
    pub inconclusive_limit: u32,
    /// The largest share of the canary's requests that may fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_error_rate: Option<Percent>,
    /// By how much the canary's share of failures may be larger than stable's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_error_rate_over_stable: Option<Percent>,
    /// A query that is checked as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
}

/// A query to Prometheus whose value must be within bounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prometheus {
    /// The URL of the server.
    pub address: String,
    /// The query; gives one number.
    pub query: String,
    /// The smallest good value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The largest good value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

impl Analysis {
    /// Reads an analysis; what it leaves out is as in `defaults`.
    pub(crate) fn read(at: &At<'_>, defaults: &Self, faults: &mut Faults) -> Option<Self> {
        let mut fields = at.object(faults)?;
        let number = |at: Option<At<'_>>, least, default: u32, faults: &mut Faults| {
            let number = at.and_then(|at| at.integer(least, 10_000, faults));
            number.and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
        };
        let interval = fields.take("interval").and_then(|at| at.span(MIN_INTERVAL, faults));
        let min_requests = fields.take("minRequests").and_then(|at| at.integer(0, u64::MAX, faults));
        let mut analysis = Self {
            interval: interval.unwrap_or(defaults.interval),
            count: number(fields.take("count"), 1, defaults.count, faults),
            min_requests: min_requests.unwrap_or(defaults.min_requests),
            failure_limit: number(fields.take("failureLimit"), 0, defaults.failure_limit, faults),
            inconclusive_limit: number(
                fields.take("inconclusiveLimit"),
                0,
                defaults.inconclusive_limit,
                faults,
            ),
            max_error_rate: fields.take("maxErrorRate").and_then(|at| at.percent(faults)),
            max_error_rate_over_stable: fields
                .take("maxErrorRateOverStable")
                .and_then(|at| at.percent(faults)),
            prometheus: fields.take("prometheus").and_then(|at| Prometheus::read(&at, faults)),
        };
        fields.finish(faults);
        if !analysis.has_bound() {
            analysis.max_error_rate = defaults.max_error_rate;
            analysis.max_error_rate_over_stable = defaults.max_error_rate_over_stable;
            analysis.prometheus.clone_from(&defaults.prometheus);
        }
        Some(analysis)
    }

    fn has_bound(&self) -> bool {
        self.max_error_rate.is_some()
            || self.max_error_rate_over_stable.is_some()
            || self.prometheus.is_some()
    }
}

impl Default for Analysis {
    /// One measurement of a minute in which at most 1 % fails, the bound of Flagger's `request-success-rate`.
    fn default() -> Self {
        Self {
            interval: Span::from_millis(60_000),
            count: 1,
            min_requests: 1,
            failure_limit: 0,
            inconclusive_limit: 10,
            max_error_rate: Some(Percent::whole(1)),
            max_error_rate_over_stable: None,
            prometheus: None,
        }
    }
}

impl Prometheus {
    fn read(at: &At<'_>, faults: &mut Faults) -> Option<Self> {
        let mut fields: Object<'_> = at.object(faults)?;
        let address = fields.need("address", faults).and_then(|at| url(&at, faults));
        let query = fields.need("query", faults).and_then(|at| at.text(MAX_QUERY_BYTES, faults));
        let mut bound = |name| {
            let at: Option<At<'_>> = fields.take(name);
            let number = at.as_ref().and_then(|at| at.value.as_f64()).filter(|number| number.is_finite());
            if let (Some(at), None) = (&at, number) {
                at.wrong("a number", faults);
            }
            number
        };
        let (min, max) = (bound("min"), bound("max"));
        match (min, max) {
            (None, None) => faults.add(&at.pointer, "set min or max; without them every value is good"),
            (Some(min), Some(max)) if min > max => {
                faults.add(&at.pointer, format!("min {min} is larger than max {max}"));
            }
            (_, _) => {}
        }
        fields.finish(faults);
        Some(Self { address: address?, query: query?.to_owned(), min, max })
    }
}

/// Reads a URL of something that is called: `http` or `https`, with a host and without credentials, which would show in answers.
pub(crate) fn url(at: &At<'_>, faults: &mut Faults) -> Option<String> {
    let text = at.text(MAX_URL_BYTES, faults)?;
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if authority.is_empty() || text.contains(char::is_whitespace) {
        at.wrong("a URL such as http://host:port/path", faults);
        return None;
    }
    if authority.contains('@') {
        faults.add(&at.pointer, "a URL must not contain a user or password, because answers would show them");
        return None;
    }
    Some(text.to_owned())
}

/// The shortest interval: reports of load come once a second at best.
pub(crate) const MIN_INTERVAL: Span = Span::from_millis(1_000);
/// The longest query.
const MAX_QUERY_BYTES: usize = 8_192;
/// The longest URL.
const MAX_URL_BYTES: usize = 2_048;
