//! Principals of the admin API: their roles and their scopes.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::group::Glob;
use xds_cache::identity::SubjectPattern;
use xds_cache::{GroupName, Proof, Subject};
use xds_codec::document::Position;

use crate::token::TokenHash;

/// Somebody who may use the admin API.
#[derive(Clone, Debug, PartialEq)]
pub struct Principal {
    /// The name in the history and in the audit log.
    pub name: Arc<str>,
    /// The endpoints that it may use.
    pub role: Role,
    /// The objects that it may use them for.
    pub scope: Scope,
    /// True if it may write in another's name, as a portal does for its users.
    pub may_act_for: bool,
    /// How many writes a minute it may make; `None` for any number.
    pub writes_per_minute: Option<u32>,
    pub(crate) tokens: Vec<Placed<KnownToken>>,
    pub(crate) certificates: Vec<Placed<SubjectPattern>>,
    pub(crate) jwt: Vec<Placed<SubjectPattern>>,
    /// Where it stands in the file.
    pub(crate) at: Position,
}

/// A part of the policy, and where it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) at: Position,
}

/// A secret token of a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownToken {
    pub(crate) hash: TokenHash,
    pub(crate) expires: Option<SystemTime>,
}

/// The endpoints that somebody may use. A greater role may do everything that a smaller one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Moves traffic: weights, rollouts, waves, reloads.
    Operator,
    /// Everything.
    Admin,
}

/// The objects that somebody may see and change.
///
/// `groups` bounds nodes: their groups, the resources of these and the documents in them. `namespaces` bounds documents; `-` stands for
/// kinds that have none. With `namespaces` alone there are the documents of these namespaces, whatever group they are in, and no group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    pub(crate) groups: Patterns,
    pub(crate) namespaces: Patterns,
}

/// Globs of names; everything, if there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patterns(Option<Vec<Placed<Glob>>>);

impl Principal {
    /// A principal that may do everything, with one token.
    #[must_use]
    pub fn admin(name: &str, token: TokenHash) -> Self {
        Self {
            name: name.into(),
            role: Role::Admin,
            scope: Scope::default(),
            may_act_for: false,
            writes_per_minute: None,
            tokens: vec![Placed {
                value: KnownToken { hash: token, expires: None },
                at: Position::default(),
            }],
            certificates: Vec::new(),
            jwt: Vec::new(),
            at: Position::default(),
        }
    }

    /// Somebody with this scope who asked another server, which knows the credential.
    #[must_use]
    pub fn of_another_server(scope: Scope) -> Self {
        Self {
            name: "another server".into(),
            role: Role::Viewer,
            scope,
            may_act_for: false,
            writes_per_minute: None,
            tokens: Vec::new(),
            certificates: Vec::new(),
            jwt: Vec::new(),
            at: Position::default(),
        }
    }

    pub(crate) fn has(&self, proof: &Proof) -> bool {
        self.credential_of(proof).is_some()
    }

    /// The field and the index of the first pattern that matches, and where it stands.
    pub(crate) fn credential_of(&self, proof: &Proof) -> Option<(&'static str, usize, Position)> {
        let (field, patterns) = match proof.subject {
            Subject::Token(_) => ("jwt", &self.jwt),
            Subject::Spiffe(_) | Subject::Dns(_) | Subject::CommonName(_) => {
                ("certificates", &self.certificates)
            }
        };
        let matches =
            |pattern: &Placed<SubjectPattern>| pattern.value.captures(&proof.subject, None).is_some();
        let index = patterns.iter().position(matches)?;
        Some((field, index, patterns.get(index)?.at))
    }
}

impl Role {
    /// All roles, the smallest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// `viewer`, `operator` or `admin`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Scope {
    /// Names that match these patterns.
    #[must_use]
    pub fn new(groups: Patterns, namespaces: Patterns) -> Self {
        Self { groups, namespaces }
    }

    /// The globs of groups and those of namespaces as they were written; `None` for those that are absent.
    #[must_use]
    pub fn texts(&self) -> [Option<Vec<String>>; 2] {
        [self.groups.texts(), self.namespaces.texts()]
    }

    /// Returns `true` if a node group is in scope.
    #[must_use]
    pub fn has_group(&self, name: &str) -> bool {
        if self.groups.is_all() { self.namespaces.is_all() } else { self.groups.has(name) }
    }

    /// Returns `true` if documents of this namespace may be in scope.
    #[must_use]
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.has(namespace)
    }

    /// Returns `true` if only documents of some namespaces are in scope.
    #[must_use]
    pub fn is_by_namespace(&self) -> bool {
        !self.namespaces.is_all()
    }

    /// Returns `true` if a document of this namespace is in scope, if it is in this group. One whose group is not known is in none.
    #[must_use]
    pub fn has_document(&self, namespace: &str, group: Option<&GroupName>) -> bool {
        let has_group = |group: &GroupName| self.groups.has(group.as_str());
        self.has_namespace(namespace) && (self.groups.is_all() || group.is_some_and(has_group))
    }

    /// Returns `true` if nothing is out of scope.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.groups.is_all() && self.namespaces.is_all()
    }

    /// Returns `true` if a node with these groups is in scope, which it is by any of them.
    #[must_use]
    pub fn has_node(&self, groups: &[GroupName]) -> bool {
        self.is_all() || groups.iter().any(|group| self.has_group(group.as_str()))
    }

    /// Returns `true` if everything that a node with these groups is served is in scope. All nodes have the default group's part.
    #[must_use]
    pub fn has_all_of_node(&self, groups: &[GroupName]) -> bool {
        let has =
            |group: &GroupName| self.has_group(group.as_str()) || (group.is_default() && groups.len() > 1);
        self.is_all() || (!groups.is_empty() && groups.iter().all(has))
    }
}

impl Patterns {
    /// Only names that match one of these.
    pub(crate) fn of(globs: Vec<Placed<Glob>>) -> Self {
        Self(Some(globs))
    }

    /// Only names that match one of these globs; `None` for every name.
    #[must_use]
    pub fn of_texts(texts: Option<&[String]>) -> Self {
        let placed = |text: &String| Placed { value: Glob::new(text), at: Position::default() };
        Self(texts.map(|texts| texts.iter().map(placed).collect()))
    }

    /// The globs as they were written; `None` for every name.
    fn texts(&self) -> Option<Vec<String>> {
        Some(self.0.as_ref()?.iter().map(|glob| glob.value.as_str().to_owned()).collect())
    }

    /// The globs; none if every name matches.
    pub(crate) fn globs(&self) -> &[Placed<Glob>] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns `true` if every name matches.
    fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Returns `true` if the name matches.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.value.matches(name)))
    }
}
