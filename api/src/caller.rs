//! The caller of a request: who asks, and for what they may ask.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use xds_access::{Identified, Role, Scope};
use xds_cache::{GroupName, Proofs};
use xds_control::acks::Sight;
use xds_control::model::document::namespace;
use xds_control::model::weights::WeightedObject;
use xds_routes::{DocumentKey, Placed};

use crate::problem::ApiError;

/// An extension of requests: the connection that they came on.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// The address that it comes from, if it is known.
    pub address: Option<IpAddr>,
    /// The same with the port, for people.
    pub shown: Option<Arc<str>>,
    /// What its certificate proves.
    pub proofs: Proofs,
}

/// The caller of a request. The guard makes it; a request that it did not let through has none.
#[derive(Clone, Default)]
pub(crate) struct Caller {
    /// The principal; `None` if the access policy has none, and everyone who gets through may do everything.
    pub(crate) identified: Option<Arc<Identified>>,
    /// True for an endpoint that is open to everyone, if the others need a credential and this request has no good one.
    pub(crate) is_nobody: bool,
    /// What the request did, for the audit log.
    pub(crate) deed: Arc<Mutex<Deed>>,
}

/// What a request did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deed {
    pub(crate) objects: Vec<String>,
    pub(crate) revision: Option<u64>,
    pub(crate) is_dry_run: bool,
    pub(crate) on_behalf_of: Option<String>,
}

/// The headers of a request and its caller.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) headers: HeaderMap,
    pub(crate) caller: Caller,
}

impl Caller {
    pub(crate) fn of(identified: Identified) -> Self {
        Self { identified: Some(identified.into()), ..Self::default() }
    }

    /// Somebody without a good credential, where others need one.
    pub(crate) fn nobody() -> Self {
        Self { is_nobody: true, ..Self::default() }
    }

    /// Returns `true` if nothing is out of the caller's scope.
    pub(crate) fn sees_everything(&self) -> bool {
        !self.is_nobody && self.scope().is_none()
    }

    /// Refuses questions about files of the caller's own. Such files are a change of all groups and namespaces that is only tried: it
    /// could attach what others own to what the caller sees, and costs as much as a change.
    pub(crate) fn check_own_files(&self) -> Result<(), ApiError> {
        let Some(identified) = &self.identified else { return Ok(()) };
        let (name, has) = (&identified.principal.name, identified.principal.role);
        if has < Role::Operator {
            return Err(ApiError::Role { name: Arc::clone(name), has, needs: Role::Operator });
        }
        match self.scope() {
            Some(_) => Err(ApiError::OutOfScope(
                "files of one's own are about all groups and namespaces at once; they need a principal without a scope"
                    .to_owned(),
            )),
            None => Ok(()),
        }
    }

    /// How much of a node's answers the caller sees.
    pub(crate) fn sight_of_node(&self, groups: &[GroupName]) -> Sight {
        match self.sees_node(groups) {
            true if self.sees_all_of_node(groups) => Sight::Words,
            true => Sight::Outcome,
            false => Sight::Nothing,
        }
    }

    /// The name for the history. Without principals it is what the request says of itself in `X-Actor`, else `api`; a principal may
    /// name somebody there only if it may act for others.
    fn actor(&self, headers: &HeaderMap) -> String {
        let said = headers.get("x-actor").and_then(|actor| actor.to_str().ok()).map(str::trim);
        let said = said.filter(|actor| !actor.is_empty() && actor.len() <= MAX_ACTOR_BYTES);
        let Some(identified) = &self.identified else { return said.unwrap_or("api").to_owned() };
        match said.filter(|_| identified.principal.may_act_for) {
            Some(said) => {
                self.note(|deed| deed.on_behalf_of = Some(said.to_owned()));
                format!("{}{ON_BEHALF_OF}{said}", identified.actor)
            }
            None => identified.actor.to_string(),
        }
    }

    /// What the caller may touch; `None` for everything.
    pub(crate) fn scope(&self) -> Option<&Scope> {
        let scope = &self.identified.as_deref()?.principal.scope;
        (!scope.is_all()).then_some(scope)
    }

    pub(crate) fn sees_group(&self, group: &GroupName) -> bool {
        self.scope().is_none_or(|scope| scope.has_group(group.as_str()))
    }

    /// Returns `true` if a node with these groups is in scope, which it is by any of them.
    pub(crate) fn sees_node(&self, groups: &[GroupName]) -> bool {
        self.scope().is_none_or(|scope| scope.has_node(groups))
    }

    /// Returns `true` if everything that a node with these groups is served is in scope. All nodes have the default group's part.
    pub(crate) fn sees_all_of_node(&self, groups: &[GroupName]) -> bool {
        self.scope().is_none_or(|scope| scope.has_all_of_node(groups))
    }

    /// Returns `true` if a document is in scope: its namespace and its group. One whose group is not known is in no group.
    pub(crate) fn sees_document(&self, key: &DocumentKey, placed: Option<&Placed>) -> bool {
        let group = placed.map(|placed| &placed.group);
        self.scope().is_none_or(|scope| scope.has_document(namespace(key), group))
    }

    /// The same of a document that is in this group.
    pub(crate) fn sees_document_of(&self, key: &DocumentKey, group: &GroupName) -> bool {
        self.scope().is_none_or(|scope| scope.has_document(namespace(key), Some(group)))
    }

    /// The same of an object with weights.
    pub(crate) fn sees_weighted(&self, object: &WeightedObject, placed: Option<&Placed>) -> bool {
        match object {
            WeightedObject::Document(key) => self.sees_document(key, placed),
            WeightedObject::Routes(group, _) => self.sees_group(group),
        }
    }

    /// What the request did.
    pub(crate) fn deed(&self) -> Deed {
        self.deed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what the request does.
    pub(crate) fn note(&self, note: impl FnOnce(&mut Deed)) {
        note(&mut self.deed.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.identified.as_ref().map(|it| &it.actor)).finish()
    }
}

impl Asked {
    /// The name for the history.
    pub(crate) fn actor(&self) -> String {
        self.caller.actor(&self.headers)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let missing = || ApiError::Internal("the request has no caller".to_owned());
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let headers: Result<HeaderMap, Infallible> = HeaderMap::from_request_parts(parts, state).await;
        let headers = headers.unwrap_or_else(|never| match never {});
        Ok(Self { headers, caller })
    }
}

/// An actor of the history: who asked, and for whom.
pub(crate) fn split_actor(actor: &str) -> (&str, Option<&str>) {
    actor.split_once(ON_BEHALF_OF).map_or((actor, None), |(actor, other)| (actor, Some(other)))
}

/// Between the two in the history. Names of principals and subjects have no blanks, so it stands at one place only.
const ON_BEHALF_OF: &str = " on behalf of ";

/// The longest `X-Actor`; a longer one is left out.
const MAX_ACTOR_BYTES: usize = 256;
