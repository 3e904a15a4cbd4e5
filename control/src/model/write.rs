//! Writes: requests, their options, and their outcomes.

use std::sync::Arc;
use std::time::Instant;

use xds_access::Scope;
use xds_cache::layer::Resources;
use xds_cache::{
    GroupName, NodeGroup, Phase, Profile, Publication, Resource, ResourceKey, Revision, WavePolicy,
};
use xds_codec::Diagnostic;
use xds_explain::Changes;
use xds_routes::{Document, DocumentKey};

use super::files::FileLoad;
use super::revision::ChangedObject;
use super::rollouts::RolloutSteps;
use super::trace_parent::TraceParent;
use super::weights::RuleKey;
use super::weights::change::{ChangeFault, WeightChange};
use crate::key::StoreKey;

/// One change of what the API owns.
#[derive(Clone, Debug)]
pub enum Write {
    /// Creates or replaces the definition of a group.
    PutGroup(NodeGroup),
    /// Deletes a group and what the API owns in it.
    DeleteGroup(GroupName),
    /// Replaces everything that the API owns in a group; creates the group if it is new.
    ReplaceResources {
        /// The group.
        group: GroupName,
        /// The label to show as version (D4).
        label: Option<Arc<str>>,
        /// The resources.
        resources: Resources,
    },
    /// Creates or replaces one resource that the API owns.
    PutResource {
        /// The group; created if it is new.
        group: GroupName,
        /// The resource.
        resource: Arc<Resource>,
    },
    /// Deletes one resource that the API owns; a file's resource of that name shows again.
    DeleteResource {
        /// The group.
        group: GroupName,
        /// The resource.
        key: ResourceKey,
    },
    /// Creates or replaces route documents that the API owns, all of them or none.
    ApplyDocuments {
        /// Their group; `None` leaves each in its group, or puts it into the default group if it is new.
        group: Option<GroupName>,
        /// The documents; no key appears twice.
        documents: Vec<Arc<Document>>,
        /// The doubts about each by itself.
        warnings: Vec<Diagnostic>,
    },
    /// Deletes one route document that the API owns; a file's of that name shows again.
    DeleteDocument {
        /// The document.
        key: DocumentKey,
    },
    /// Changes what is laid over the weights of a rule.
    ChangeWeights {
        /// The rule.
        key: RuleKey,
        /// The change.
        change: WeightChange,
    },
    /// Keeps new states of rollouts, in one commit with the weights that go with them. Refused as [`WriteError::Superseded`] if a state
    /// that it was computed from is no longer the stored one.
    StepRollouts {
        /// The steps.
        steps: RolloutSteps,
        /// A change of the weights of the rule that one of them owns, or owned.
        change: Option<(RuleKey, WeightChange)>,
        /// How the weights change.
        kind: StepKind,
        /// One line for people.
        summary: String,
    },
    /// Replaces the files of a store that several servers share: all of them or none. A set that says the same as the present one makes
    /// no revision, wherever its lines are.
    ReplaceFiles {
        /// The files, by paths relative to their directory. One with an error refuses them all.
        load: Box<FileLoad>,
        /// True if the caller knows what it removes (`--hold-mass-removal`).
        is_confirmed: bool,
    },
    /// Drops the overrides of weights whose time is up; a revision only if there are any.
    EndOverrides,
    /// Makes what the API owns what it was at a revision; a new revision itself.
    Rollback {
        /// The revision.
        to: Revision,
    },
    /// Undoes what one revision changed, except what was changed again since; a new revision itself.
    Revert {
        /// The revision.
        of: Revision,
    },
}

impl Write {
    /// The objects that it says how they shall be, as the history names them. What it deletes or restores is not among them.
    #[must_use]
    pub fn named(&self) -> Vec<String> {
        let of_key = |key: StoreKey| key.what();
        match self {
            Self::PutGroup(definition) => vec![of_key(StoreKey::Group(definition.name.clone()))],
            Self::ReplaceResources { group, resources, .. } => {
                let keys = resources.keys().map(|key| StoreKey::Resource(group.clone(), (**key).clone()));
                keys.map(of_key).collect()
            }
            Self::PutResource { group, resource } => {
                vec![of_key(StoreKey::Resource(group.clone(), resource.key().clone()))]
            }
            Self::ApplyDocuments { documents, .. } => {
                documents.iter().map(|document| of_key(StoreKey::Document(document.key.clone()))).collect()
            }
            Self::ChangeWeights { key, .. } => vec![of_key(StoreKey::Weights(key.clone()))],
            Self::DeleteGroup(_)
            | Self::DeleteResource { .. }
            | Self::DeleteDocument { .. }
            | Self::StepRollouts { .. }
            | Self::ReplaceFiles { .. }
            | Self::EndOverrides
            | Self::Rollback { .. }
            | Self::Revert { .. } => vec![],
        }
    }
}

/// How a step of a rollout changes weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Someone sets them, and not a rollout.
    ByHand,
    /// The rollout goes on. RouteTests that must not break refuse the step.
    Onward,
    /// The rollout goes back, stays where it is, or follows its rule: nothing may be in the way of that.
    Back,
}

impl Write {
    /// Returns `true` for what takes a change back: nothing may be in its way.
    pub(crate) const fn takes_back(&self) -> bool {
        matches!(self, Self::EndOverrides | Self::StepRollouts { kind: StepKind::Back, .. })
    }

    /// How many bytes the resources and documents have that it brings.
    pub(crate) fn n_bytes(&self) -> usize {
        match self {
            Self::ReplaceResources { resources, .. } => {
                resources.values().map(|resource| resource.n_bytes()).sum()
            }
            Self::PutResource { resource, .. } => resource.n_bytes(),
            Self::ApplyDocuments { documents, .. } => {
                documents.iter().map(|document| document.source.n_bytes()).sum()
            }
            Self::ReplaceFiles { load, .. } => {
                let resources = load.layer.groups.values().flat_map(|group| group.resources.values());
                let documents = load.documents.values().map(|one| one.document.source.n_bytes());
                resources.map(|resource| resource.n_bytes()).chain(documents).sum()
            }
            Self::PutGroup(_)
            | Self::DeleteGroup(_)
            | Self::DeleteResource { .. }
            | Self::DeleteDocument { .. }
            | Self::ChangeWeights { .. }
            | Self::StepRollouts { .. }
            | Self::EndOverrides
            | Self::Rollback { .. }
            | Self::Revert { .. } => 0,
        }
    }
}

/// How a write is to be done.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// The user or program that asks, for the history.
    pub actor: String,
    /// `If-Match`: the caller changes only what it saw. `None` if it did not say.
    pub if_match: Option<EntityTags>,
    /// `If-None-Match`: the caller changes only what it did not see. `None` if it did not say.
    pub if_none_match: Option<EntityTags>,
    /// Does everything but commit and publish.
    pub dry_run: bool,
    /// Whom the change reaches first.
    pub waves: WaveChoice,
    /// Puts a wave deployment back first if it is in the way, instead of refusing the write.
    pub force: bool,
    /// When a dry run stops, done or not; `None` for never.
    pub until: Option<Instant>,
    /// What the caller may touch; `None` for everything.
    pub scope: Option<Arc<Scope>>,
    /// The name of the request, if its caller may send it again.
    pub request: Option<RequestName>,
    /// The span of the caller that the change is a part of, if it named one.
    pub trace_parent: Option<TraceParent>,
}

/// The name of a request that its caller may send again: it is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestName {
    /// The hash of the caller and of the key that it gave.
    pub name: String,
    /// The hash of what it asks for.
    pub digest: String,
}

/// Whom a change reaches first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WaveChoice {
    /// The policy of the groups that it changes decides, or else the server's flags.
    #[default]
    ByPolicy,
    /// Everyone.
    AtOnce,
    /// One wave after the other.
    By(WavePolicy),
}

/// The value of `If-Match` or `If-None-Match`; see [`tag`](super::tag) for what the tags are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityTags {
    /// `*`: anything that exists.
    Any,
    /// These strong entity tags, unquoted.
    OneOf(Vec<String>),
}

impl EntityTags {
    /// Returns `true` if one of the tags is `current`; nothing matches what does not exist.
    #[must_use]
    pub fn matches(&self, current: Option<&str>) -> bool {
        self.matches_by(current, |tag| tag)
    }

    /// Returns `true` if the [content](super::tag::content_part) that one of the tags is of is `current`.
    #[must_use]
    pub fn match_content(&self, current: Option<&str>) -> bool {
        self.matches_by(current, super::tag::content_part)
    }

    fn matches_by(&self, current: Option<&str>, part: impl Fn(&str) -> &str) -> bool {
        match (self, current) {
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::OneOf(tags), Some(current)) => tags.iter().any(|tag| part(tag) == current),
        }
    }
}

/// The phases in which the clients of exactly one group would get a change.
#[derive(Clone, Debug)]
pub struct GroupPhases {
    /// The group.
    pub group: GroupName,
    /// Their kind.
    pub profile: Profile,
    /// The phases, in order.
    pub phases: Vec<Phase>,
}

/// The requests of the clients of exactly one group that a change moves.
#[derive(Clone, Debug)]
pub struct GroupRequests {
    /// The group.
    pub group: GroupName,
    /// The kind of clients.
    pub profile: Profile,
    /// The changes, those of clients for which they are the same together.
    pub changes: Vec<Changes>,
}

/// A write that was committed and published, or would have been.
#[derive(Clone, Debug, Default)]
pub struct WriteOutcome {
    /// The revision that holds it: a new one, or the last one if nothing changed.
    pub revision: Revision,
    /// True if anything changed.
    pub changed: bool,
    /// The views that it changed; empty in a dry run.
    pub publication: Publication,
    /// The difference that it would make; only computed for a dry run.
    pub difference: Vec<ChangedObject>,
    /// The ids of the connected nodes that it would concern; only computed for a dry run.
    pub affected_nodes: Vec<String>,
    /// The phases in which clients would get it; only computed for a dry run.
    pub phases: Vec<GroupPhases>,
    /// The requests that it would move; only computed for a dry run.
    pub requests: Vec<GroupRequests>,
    /// The doubts about it.
    pub warnings: Vec<Diagnostic>,
    /// The wave deployment that it began.
    pub wave: Option<u64>,
    /// Why RouteTests keep it from being published; `wave` says where it is held.
    pub held: Option<String>,
    /// True if it was done by an earlier request with the same [name](WriteOptions::request), of which no more is known than the revision.
    pub is_repeated: bool,
    /// The objects that it changed, at most [`MAX_TOUCHED`](Self::MAX_TOUCHED).
    pub objects: Vec<String>,
}

impl WriteOutcome {
    /// Objects that are named: a line of a log has room for so many.
    pub const MAX_TOUCHED: usize = 50;
}

/// Why a write was not done. Nothing changed then.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The group, resource or revision does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// The object.
        what: String,
    },
    /// An earlier request with the same name asked for something else.
    #[error("the Idempotency-Key was used for a different request; give each request a key of its own")]
    RequestReused,
    /// The caller may not touch it. Says nothing about whether it exists.
    #[error("scope: {what} is out of the scope of this principal")]
    OutOfScope {
        /// The object.
        what: String,
    },
    /// A file defines it; the API cannot change that.
    #[error("{what} is defined by {origin}")]
    OwnedByFile {
        /// The object.
        what: String,
        /// Where.
        origin: String,
    },
    /// The server needs it and defines it itself.
    #[error("{what} cannot be {action}")]
    BuiltIn {
        /// The object.
        what: String,
        /// The action that was tried, such as `deleted`.
        action: &'static str,
    },
    /// This server follows another one.
    #[error("this server follows another one (--upstream), which alone makes changes: send it there")]
    Follower,
    /// `If-Match` or `If-None-Match` does not hold.
    #[error("{}", match current { Some(tag) => format!("the current entity tag is \"{tag}\""), None => "it does not exist".to_owned() })]
    PreconditionFailed {
        /// The current entity tag; `None` if there is nothing.
        current: Option<String>,
    },
    /// A wave deployment is in the way.
    #[error("{message}")]
    WaveActive {
        /// Its number.
        deployment: u64,
        /// Why it is in the way, and what can be done.
        message: String,
    },
    /// The wave deployment is not in a state in which this can be done.
    #[error("{0}")]
    WaveState(String),
    /// The object has no rule with this id.
    #[error("{object} has no rule {rule:?}; {}", match rules.as_slice() { [] => "it has none".to_owned(), rules => format!("its rules are {}", rules.join(", ")) })]
    NoRule {
        /// The object.
        object: String,
        /// The rule that was asked for.
        rule: String,
        /// The rules that exist.
        rules: Vec<String>,
    },
    /// `If-Match` or `If-None-Match` does not hold for the weights of a rule.
    #[error("the weights have changed; the current entity tag is \"{current}\"")]
    StaleWeights {
        /// The current entity tag.
        current: String,
        /// The weights that count.
        weights: Vec<(String, u64)>,
    },
    /// The weights of a rule cannot be changed so.
    #[error(transparent)]
    Weights(#[from] ChangeFault),
    /// A rollout owns the rule.
    #[error(
        "the rollout {rollout} moves the weights of {rule}; abort it, or change them with ?force=true, which ends it"
    )]
    RolloutActive {
        /// The rule.
        rule: String,
        /// The rollout's id.
        rollout: String,
    },
    /// It needs one server that drives it by the answers of all clients.
    #[error(
        "{what} needs one server that drives it by the answers of all clients, and servers with a shared store (--store) have none; {instead}"
    )]
    SharedStore {
        /// What needs one.
        what: &'static str,
        /// What can be done.
        instead: &'static str,
    },
    /// The files are those that this server watches, or would watch.
    #[error(
        "the files of this server are those that it watches, or what the server sends that it relays: change these, or share a store with other servers (--store), which takes files by a push"
    )]
    OwnFiles,
    /// The files remove so much that somebody should confirm it (`--hold-mass-removal`).
    #[error("{0}; if this is intended, confirm it with confirm=true")]
    Unconfirmed(String),
    /// Another server has changed it since the change was computed.
    #[error("another server has changed {what} meanwhile; read it and ask again")]
    Superseded {
        /// The object.
        what: String,
    },
    /// The result would not be valid.
    #[error("the change is not valid")]
    Invalid(Vec<Diagnostic>),
    /// The revision is no longer kept.
    #[error("revision {wanted} is no longer kept; the oldest one is {oldest}")]
    Compacted {
        /// The revision asked for.
        wanted: Revision,
        /// The oldest one kept.
        oldest: Revision,
    },
    /// The contents of the files at the revision are not kept.
    #[error(
        "the contents of the files at revision {revision} are not kept: their load was too large for the history"
    )]
    Incomplete {
        /// The revision.
        revision: Revision,
    },
    /// The store did not take it.
    #[error("the change could not be stored")]
    Store(#[source] Arc<xds_store::CommitError>),
    /// The history could not be read.
    #[error("the history could not be read")]
    History(#[source] Arc<xds_store::StoreError>),
    /// The first complete load is not done yet.
    #[error("the first load is not complete yet")]
    NotReady,
    /// Too many writes wait already, or what they bring is too much.
    #[error("too many writes are waiting; try again in a moment")]
    Busy,
    /// The dry run reached a bound.
    #[error("{0}")]
    Stopped(xds_routes::Stopped),
    /// The program itself is at fault.
    #[error(
        "the change could not be computed because of a bug in this program: {0}; the previous configuration is still served"
    )]
    Internal(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Closed,
}
