//! `/v1/events`: server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use futures_util::stream::Stream;
use serde_json::Value;
use xds_cache::{GroupName, Reason};
use xds_control::acks::Sight;
use xds_control::model::wave::WaveReport;

use crate::caller::{Asked, Caller};
use crate::events::{About, MAX_READERS};
use crate::input::{NoParams, Params};
use crate::problem::ApiError;
use crate::seen::{Seen, seen_groups};
use crate::state::ApiState;

pub(crate) async fn read(
    State(state): State<ApiState>,
    _: Params<NoParams>,
    asked: Asked,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let Asked { headers, caller } = asked;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let (events, refusals) = (state.events.clone(), Arc::clone(&state.refusals));
    let shown = move |about: &About, data: &Value| shown(&state, &caller, about, data);
    events.read(last, shown).ok_or_else(|| {
        let detail = format!("{MAX_READERS} readers of events are connected, which is the limit");
        refusals.record(Reason::EventReaders, &detail, SystemTime::now());
        ApiError::TooMany(detail)
    })
}

/// The part of an event that a caller sees; `None` if it is out of scope.
fn shown(state: &ApiState, caller: &Caller, about: &About, data: &Value) -> Option<Value> {
    if caller.scope().is_none() {
        return Some(data.clone());
    }
    let is_seen = match about {
        About::Nothing => true,
        About::Server => false,
        About::Publication(groups) => return published(caller, groups.as_deref(), data),
        About::Node(groups) => return of_node(caller.sight_of_node(groups), data),
        About::Object(what) => Seen::new(state, caller).object(what),
        About::Deployment(id) => {
            let seen = Seen::new(state, caller);
            let is_it = |report: &WaveReport| report.deployment == *id && seen.deployment(report);
            state.control.waves().iter().any(is_it)
        }
    };
    is_seen.then(|| data.clone())
}

/// An event of a node, whose words may be withheld.
fn of_node(sight: Sight, data: &Value) -> Option<Value> {
    let mut shown = (sight != Sight::Nothing).then(|| data.clone())?;
    if let Some(Value::String(words)) = shown.get_mut("message") {
        *words = sight.words(words);
    }
    Some(shown)
}

/// A publication with another summary, because its own may name objects out of scope.
fn published(caller: &Caller, groups: Option<&[GroupName]>, data: &Value) -> Option<Value> {
    let summary = match groups {
        Some(groups) => format!("changes for the groups {}", seen_groups(caller, groups).join(", ")),
        None => "changes for many groups".to_owned(),
    };
    if groups.is_some_and(|groups| !caller.sees_node(groups)) {
        return None;
    }
    let mut shown = data.clone();
    shown.as_object_mut()?.insert("summary".to_owned(), summary.into());
    Some(shown)
}
