//! Changes of `/v1/weights`: a change has `backends` or `percent`, and `expires`.

use std::collections::BTreeMap;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, IF_MATCH};
use utoipa::ToSchema;
use xds_cache::time::millis;
use xds_codec::Tree;
use xds_codec::document::{Node, TreeValue};
use xds_codec::weights::MAX_WEIGHT;
use xds_control::model::weights::change::{ChangeFault, WeightChange};
use xds_control::model::weights::{RuleKey, WeightedObject};
use xds_control::model::{Write, WriteError};
use xds_units::{Percent, Span};

use crate::answer::Answer;
use crate::caller::Asked;
use crate::input::{MAX_BODY_BYTES, Params, Path, read_tree};
use crate::problem::{ApiError, Fault, pointer_part};
use crate::state::ApiState;
use crate::write::{self, WriteParams};

/// A change of one rule's weights.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "only described; the body is read with all its faults, not the first")]
pub(crate) struct WeightsBody {
    /// Weights from 0 to 1000000 by key of the backend. A patch changes those that it names; null takes one back.
    backends: Option<BTreeMap<String, Option<u32>>>,
    /// In place of `backends`: shares in percent, with at most two decimals. The others share what is left as they do now.
    percent: Option<BTreeMap<String, f64>>,
    /// How long the override lasts, such as 30s, 10m or 2h; null for ever.
    expires: Option<String>,
}

pub(crate) async fn patch(
    State(state): State<ApiState>,
    Path(path): Path<(String, String, String, String)>,
    Params(params): Params<WriteParams>,
    asked: Asked,
    body: Body,
) -> Result<Answer, ApiError> {
    let key = key_to_change(path, &asked.headers)?;
    let kind = asked.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("nothing");
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !PATCH_TYPES.contains(&essence.as_str()) {
        return Err(ApiError::PatchType(kind.to_owned()));
    }
    change(&state, key, params, &asked, body, |change, _| Ok(change)).await
}

pub(crate) async fn put(
    State(state): State<ApiState>,
    Path(path): Path<(String, String, String, String)>,
    Params(params): Params<WriteParams>,
    asked: Asked,
    body: Body,
) -> Result<Answer, ApiError> {
    let key = key_to_change(path, &asked.headers)?;
    let replacing = |change: WeightChange, body: &Tree| {
        if change.backends.is_empty() && change.percent.is_empty() {
            let detail = "name the weights in `backends` or `percent`; use DELETE to remove the override";
            return Err(ApiError::Invalid(vec![Fault::at_tree(body.root(), "", detail)]));
        }
        Ok(WeightChange { forgets: true, expires: change.expires.or(Some(None)), ..change })
    };
    change(&state, key, params, &asked, body, replacing).await
}

pub(crate) async fn delete(
    State(state): State<ApiState>,
    Path(path): Path<(String, String, String, String)>,
    Params(params): Params<WriteParams>,
    asked: Asked,
) -> Result<Answer, ApiError> {
    let key = key_to_change(path, &asked.headers)?;
    write::run(&state, &asked, params, Write::ChangeWeights { key, change: WeightChange::reset() }).await
}

/// Changes weights as the body says, after `completed` had a look at it.
async fn change(
    state: &ApiState,
    key: RuleKey,
    params: WriteParams,
    asked: &Asked,
    body: Body,
    completed: impl FnOnce(WeightChange, &Tree) -> Result<WeightChange, ApiError>,
) -> Result<Answer, ApiError> {
    let body = read_tree(state, &asked.headers, body, MAX_BODY_BYTES).await?;
    let change = completed(read(&body, SystemTime::now())?, &body)?;
    let written = write::run(state, asked, params, Write::ChangeWeights { key, change }).await;
    written.map_err(|error| place(error, &body))
}

/// The rule of a write, which has to say what it saw: two that change weights at once must not undo each other unseen.
fn key_to_change(
    (kind, namespace, name, rule): (String, String, String, String),
    headers: &HeaderMap,
) -> Result<RuleKey, ApiError> {
    let object = WeightedObject::parse(&kind, &namespace, &name).map_err(ApiError::NotFound)?;
    if !headers.contains_key(IF_MATCH) {
        return Err(ApiError::PreconditionRequired);
    }
    Ok(RuleKey { object, rule: rule.into() })
}

/// Reads the body of a PATCH or PUT.
///
/// # Errors
///
/// [`ApiError::Weights`] if weights or shares are out of range, [`ApiError::Invalid`] for anything else; with every fault.
fn read(body: &Tree, now: SystemTime) -> Result<WeightChange, ApiError> {
    let body = body.root();
    if !body.is_object() {
        let detail = "expected an object with `backends` or `percent`";
        return Err(ApiError::Invalid(vec![Fault::at_tree(body, "", detail)]));
    }
    let mut change = WeightChange::default();
    let (mut numbers, mut others) = (Vec::new(), Vec::new());
    for entry in body.entries() {
        let pointer = format!("/{}", pointer_part(entry.key));
        match (entry.key, entry.value.value()) {
            // RFC 7396: null takes the member away, which are all weights that are laid over the rule.
            ("backends", TreeValue::Null) => change.forgets = true,
            ("backends" | "percent", TreeValue::Object(entries)) => {
                for one in entries {
                    let pointer = format!("{pointer}/{}", pointer_part(one.key));
                    let is_read = if entry.key == "percent" {
                        share(one.value).map(|share| _ = change.percent.insert(one.key.to_owned(), share))
                    } else {
                        weight(one.value).map(|weight| _ = change.backends.insert(one.key.to_owned(), weight))
                    };
                    numbers.extend(is_read.err().map(|detail| Fault::at_tree(one.value, &pointer, detail)));
                }
            }
            ("backends" | "percent", _) => {
                let detail = "expected an object with a number for each backend";
                others.push(Fault::at_tree(entry.value, &pointer, detail));
            }
            ("expires", TreeValue::Null) => change.expires = Some(None),
            ("expires", TreeValue::String(text)) => match lifetime(text) {
                Some(lifetime) => {
                    change.expires = Some(Some(millis(now).saturating_add(lifetime)));
                }
                None => others.push(Fault::at_tree(entry.value, &pointer, BAD_LIFETIME)),
            },
            ("expires", _) => others.push(Fault::at_tree(entry.value, &pointer, BAD_LIFETIME)),
            (key, _) => {
                let detail =
                    format!("unknown field {key:?}; a change has `backends` or `percent`, and `expires`");
                others.push(Fault::at_tree(entry.value, &pointer, detail));
            }
        }
    }
    if !change.percent.is_empty() && (change.forgets || !change.backends.is_empty()) {
        others.push(Fault::at_tree(body, "", "a change has either `backends` or `percent`"));
    }
    if !others.is_empty() {
        others.extend(numbers);
        return Err(ApiError::Invalid(others));
    }
    if numbers.is_empty() { Ok(change) } else { Err(ApiError::Weights(numbers)) }
}

/// Gives the faults of a change that the rule does not take their places in the body.
fn place(error: ApiError, body: &Tree) -> ApiError {
    let ApiError::Write(WriteError::Weights(fault)) = error else { return error };
    let body = body.root();
    let fields = || body.entries().filter(|entry| matches!(entry.key, "backends" | "percent"));
    let faults = match &fault {
        ChangeFault::UnknownBackend { unknown, known } => {
            let detail = format!("unknown backend; the rule's are {}", known.join(", "));
            let mut faults = Vec::new();
            for field in fields().filter(|field| field.value.is_object()) {
                for one in field.value.entries().filter(|one| unknown.iter().any(|key| key == one.key)) {
                    let pointer = format!("/{}/{}", field.key, pointer_part(one.key));
                    let suggestion = xds_codec::nearest(one.key, known.iter().map(String::as_str));
                    let suggestion = suggestion.map(ToOwned::to_owned);
                    faults.push(Fault { suggestion, ..Fault::at_tree(one.value, &pointer, &*detail) });
                }
            }
            faults
        }
        ChangeFault::SumZero
        | ChangeFault::SumTooLarge { .. }
        | ChangeFault::NoHeaderRoutes
        | ChangeFault::Percent(_) => {
            let (value, pointer) = fields()
                .next()
                .map_or((body, String::new()), |field| (field.value, format!("/{}", field.key)));
            vec![Fault::at_tree(value, &pointer, fault.to_string())]
        }
    };
    ApiError::WeightsOfRule(fault, faults)
}

fn weight(value: Node<'_>) -> Result<Option<u32>, String> {
    if value.is_null() {
        return Ok(None);
    }
    let weight = value.to_json().as_u64().and_then(|weight| u32::try_from(weight).ok());
    let weight = weight.filter(|weight| *weight <= MAX_WEIGHT);
    weight.map(Some).ok_or_else(|| format!("a weight is a whole number from 0 to {MAX_WEIGHT}, or null"))
}

fn share(value: Node<'_>) -> Result<Percent, String> {
    let share = value.to_json().as_f64().and_then(Percent::of_number);
    share.ok_or_else(|| "a share is a number from 0 to 100 with at most two decimals".to_owned())
}

/// The media types of a merge patch. A JSON Patch (RFC 6902) is another thing and must not be taken for one.
const PATCH_TYPES: [&str; 4] =
    ["application/merge-patch+json", "application/merge-patch+yaml", "application/json", "application/yaml"];

/// Reads how long an override lasts, in milliseconds.
fn lifetime(text: &str) -> Option<u64> {
    let lifetime = text.parse().ok().map(Span::millis);
    lifetime.filter(|lifetime| (1..=MAX_LIFETIME_MS).contains(lifetime))
}

/// A year; who wants more wants no end.
const MAX_LIFETIME_MS: u64 = 366 * 86_400_000;

const BAD_LIFETIME: &str =
    "a lifetime is a text such as 30s, 10m, 2h or 7d, at most 366d; null lets the override last";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::{Value, json};

    use super::*;

    fn read_at_7(body: &Value) -> Result<WeightChange, ApiError> {
        read(&Tree::from_json(body), UNIX_EPOCH + Duration::from_millis(7))
    }

    #[test]
    fn changes_are_read() {
        let change = read_at_7(&json!({"backends": {"a:80": 3, "b:80": null}, "expires": "2h"})).unwrap();
        assert_eq!(
            change.backends,
            BTreeMap::from([("a:80".to_owned(), Some(3)), ("b:80".to_owned(), None)])
        );
        assert_eq!(change.expires, Some(Some(7_200_007)));
        let change = read_at_7(&json!({"percent": {"a:80": 12.34, "b:80": 0}, "expires": null})).unwrap();
        assert_eq!(
            change.percent,
            BTreeMap::from([
                ("a:80".to_owned(), Percent::of_hundredths(1_234)),
                ("b:80".to_owned(), Percent::NONE)
            ])
        );
        assert_eq!(change.expires, Some(None));
        assert!(read_at_7(&json!({"backends": null})).unwrap().forgets);
    }

    #[test]
    fn weights_and_shares_out_of_range_are_told_with_their_place() {
        for (field, value) in [
            ("backends", json!(-1)),
            ("backends", json!(1.5)),
            ("backends", json!(1_000_001)),
            ("backends", json!("1")),
            ("backends", json!(1e300)),
            ("backends", json!(u64::MAX)),
            ("backends", json!(true)),
            ("percent", json!(-0.01)),
            ("percent", json!(100.01)),
            ("percent", json!(1.234)),
            ("percent", json!("12")),
            ("percent", json!(null)),
        ] {
            let told = read_at_7(&json!({field: {"a/b": value}}));
            let Err(ApiError::Weights(faults)) = told else { panic!("{value} was taken: {told:?}") };
            assert_eq!(faults[0].pointer.as_deref(), Some(format!("#/{field}/a~1b").as_str()));
        }
    }

    #[test]
    fn a_fault_of_the_rule_is_at_the_field_that_was_sent() {
        let unknown = |key: &str| ChangeFault::UnknownBackend {
            unknown: vec![key.to_owned()],
            known: vec!["one".to_owned(), "two".to_owned()],
        };
        for (body, fault, pointer, suggestion) in [
            (json!({"percent": {"one": 5, "tow": 95}}), unknown("tow"), "#/percent/tow", Some("two")),
            (json!({"backends": {"a/b": 5}, "expires": "5s"}), unknown("a/b"), "#/backends/a~1b", None),
            (json!({"percent": {"one": 5}}), ChangeFault::Percent("x".to_owned()), "#/percent", None),
            (json!({"backends": {"one": 0}}), ChangeFault::SumZero, "#/backends", None),
        ] {
            let placed = place(ApiError::Write(fault.into()), &Tree::from_json(&body));
            let ApiError::WeightsOfRule(_, faults) = placed else { panic!("{placed:?}") };
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert_eq!(faults[0].pointer.as_deref(), Some(pointer));
            assert_eq!(faults[0].suggestion.as_deref(), suggestion);
        }
    }

    #[test]
    fn what_is_no_change_is_told() {
        for (body, pointer) in [
            (json!([]), "#"),
            (json!(null), "#"),
            (json!({"backends": [1]}), "#/backends"),
            (json!({"weights": {}}), "#/weights"),
            (json!({"headerRoutes": []}), "#/headerRoutes"),
            (json!({"expires": "2"}), "#/expires"),
            (json!({"expires": "0s"}), "#/expires"),
            (json!({"expires": "99999999999999999999d"}), "#/expires"),
            (json!({"expires": 5}), "#/expires"),
            (json!({"backends": {"a": 1}, "percent": {"a": 1}}), "#"),
        ] {
            let Err(ApiError::Invalid(faults)) = read_at_7(&body) else { panic!("{body} was taken") };
            assert_eq!(faults[0].pointer.as_deref(), Some(pointer), "{body}");
        }
    }
}
