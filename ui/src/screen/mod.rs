//! The screens.

mod canary;
mod changes;
mod fleet;
mod node;
mod object;
mod problems;
mod rollback;
mod routes;
mod trial;

use crate::page::Screen;
use crate::path::{Params, segments};
use crate::rest::{Failure, Rest, Visitor};

/// A screen that is being made.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) rest: &'a Rest,
    pub(crate) visitor: &'a Visitor,
    pub(crate) params: Params,
}

/// The screen at an address.
///
/// # Errors
///
/// If there is none, or the API does not give what it needs.
pub(crate) async fn of(rest: &Rest, visitor: &Visitor, address: &str) -> Result<Screen, Failure> {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let segments = segments(path).ok_or_else(Failure::no_screen)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let ask = Ask { rest, visitor, params: Params::read(query) };
    match segments.as_slice() {
        [] => fleet::screen(&ask).await,
        ["nodes", id] => node::screen(&ask, id).await,
        ["changes"] => changes::list(&ask).await,
        ["changes", revision] => changes::one(&ask, number(revision)?).await,
        ["changes", revision, "steps"] => changes::steps(&ask, number(revision)?).await,
        ["changes", revision, "rollback"] => rollback::screen(&ask, number(revision)?).await,
        ["canary"] => canary::list(&ask).await,
        ["canary", "rollouts", id] => canary::rollout(&ask, id).await,
        ["canary", "waves", id] => canary::wave(&ask, id).await,
        ["routes"] => routes::screen(&ask).await,
        ["routes", kind, namespace, name] => object::screen(&ask, [kind, namespace, name]).await,
        ["try"] => trial::screen(&ask).await,
        ["problems"] => problems::screen(&ask).await,
        _ => Err(Failure::no_screen()),
    }
}

/// Returns `true` if parts of the screen at an address change while somebody looks.
pub(crate) fn is_live(address: &str) -> bool {
    let path = address.split('?').next().unwrap_or_default();
    let segments = segments(path).unwrap_or_default();
    !matches!(
        segments.iter().map(String::as_str).collect::<Vec<_>>().as_slice(),
        ["try"] | ["changes", _, "rollback" | "steps"]
    )
}

fn number(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure::no_screen())
}

impl Ask<'_> {
    async fn get(&self, path: &str) -> Result<serde_json::Value, Failure> {
        self.rest.get(self.visitor, path).await
    }

    /// The same, or nothing if it is out of the visitor's scope.
    async fn seen(&self, path: &str) -> Result<serde_json::Value, Failure> {
        match self.get(path).await {
            Err(failure) if failure.status == http::StatusCode::FORBIDDEN => Ok(serde_json::Value::Null),
            other => other,
        }
    }

    async fn find(&self, path: &str) -> Result<Option<serde_json::Value>, Failure> {
        self.rest.find(self.visitor, path).await
    }
}
