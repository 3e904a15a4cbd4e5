//! Requests that callers may send again (`Idempotency-Key`): what one did is not done twice.
//!
//! A write with a name stores it, in the same commit as its change. So whoever has not heard the answer sends the request again, to any server
//! with the same store, and is told the revision that did it.

use bytes::Bytes;
use xds_cache::Revision;

use crate::accepted::Accepted;
use crate::env::Env;
use crate::key::{REQUESTS, StoreKey, keys_below};
use crate::model::{RequestName, WriteError, WriteOutcome};
use crate::plan::Plan;

/// The outcome of a request that was done before; `None` if it was not.
///
/// # Errors
///
/// [`WriteError::RequestReused`] if another one had its name, or why the store cannot be read.
pub(crate) fn done(env: &Env, request: &RequestName) -> Result<Option<WriteOutcome>, WriteError> {
    let store = &env.parts.store;
    let keys = store.state().1;
    let is_it = |key: &StoreKey| matches!(key, StoreKey::Request(_, name) if *name == request.name);
    let Some((text, StoreKey::Request(revision, _))) =
        keys_below(&keys, REQUESTS).find(|(_, key)| is_it(key))
    else {
        return Ok(None);
    };
    let hash = keys.get(text).copied();
    let digest = hash.map(|hash| store.blob(hash)).transpose();
    let digest = digest.map_err(|error| WriteError::Store(std::sync::Arc::new(error.into())))?.flatten();
    if digest.as_deref() != Some(request.digest.as_bytes()) {
        return Err(WriteError::RequestReused);
    }
    let revision = Revision(revision);
    Ok(Some(WriteOutcome { revision, changed: true, is_repeated: true, ..WriteOutcome::default() }))
}

/// Remembers a request with the next revision, and forgets the oldest if there are too many.
pub(crate) fn remember(env: &Env, accepted: &Accepted, request: &RequestName, plan: &mut Plan) {
    let keys = env.parts.store.state().1;
    let known: Vec<StoreKey> = keys_below(&keys, REQUESTS).map(|(_, key)| key).collect();
    let n_over = (known.len() + 1).saturating_sub(MAX_REQUESTS);
    plan.extend(known.into_iter().take(n_over).map(|key| (key, None)));
    let key = StoreKey::Request(accepted.next_revision().0, request.name.clone());
    plan.push((key, Some(Bytes::from(request.digest.clone()))));
}

/// The requests that are remembered.
const MAX_REQUESTS: usize = 1_000;
