//! What a node or the clients of a group are served: now, or at an older revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use http::HeaderMap;
use xds_cache::{GroupName, Node, Profile, Proofs, Publisher, Revision, View, ViewKey};
use xds_codec::{Diagnostic, Limits};
use xds_control::acks::view_key_of_group;
use xds_control::model::document::DocumentState;
use xds_control::model::{Texts, WriteError};
use xds_control::question::{Fields, Part};
use xds_control::{Places, WholeState};
use xds_explain::{Client, Located};
use xds_routes::Stopped;

use crate::caller::Caller;
use crate::endpoint::groups::no_group;
use crate::input::{read_by_parts, read_tree_of};
use crate::problem::{ApiError, Fault};
use crate::state::{ApiState, aside};
use crate::trials::{Running, stopped};

/// Reads a question of at most `limit` bytes, and answers it on another thread, with a place among the trials.
///
/// # Errors
///
/// [`ApiError::Invalid`] with every fault of the question, and those of `answer`.
pub(crate) async fn ask<Q: Send + 'static, A: Send + 'static>(
    state: ApiState,
    caller: &Caller,
    (headers, body, limit): (HeaderMap, Body, usize),
    read: impl FnOnce(&mut Fields, &Part<'_>) -> Option<Q>,
    answer: impl FnOnce(&ApiState, &Q, &Running) -> Result<A, ApiError> + Send + 'static,
) -> Result<A, ApiError> {
    state.check_loaded()?;
    let mut room = state.trials.room();
    let grow = |n_bytes| room.grow(n_bytes, &state.refusals);
    let (form, bytes) = read_by_parts(&headers, body, limit, grow).await?;
    let tree = read_tree_of(&state, form, bytes).await?;
    let mut fields = Fields::new("".into());
    let question = read(&mut fields, &Part { node: tree.root(), path: String::new() });
    drop(tree);
    let Some(question) = question.filter(|_| fields.faults.is_empty()) else {
        return Err(ApiError::Invalid(fields.faults.iter().map(|fault| Fault::of(fault, "")).collect()));
    };
    let trial = state.trials.enter(caller, &state.refusals)?.run().await?;
    // Trial and room go along, so that both are taken for as long as the work goes on.
    let answered = move || {
        let answered = answer(&state, &question, &trial);
        drop((question, room));
        answered
    };
    aside(answered).await?
}

/// A state that a question is about.
#[derive(Debug, Default)]
pub(crate) enum Which {
    /// The present one.
    #[default]
    Current,
    /// That of a revision.
    Revision(Revision),
    /// The one that the watched files would lead to if they were these.
    Files(BTreeMap<Arc<str>, Arc<[u8]>>),
}

/// Reads a state: as [`revision`], or `files` with the texts of all.
pub(crate) fn state_of(fields: &mut Fields, body: &Part<'_>, key: &'static str) -> Which {
    let Some(at) = body.field(key).filter(|at| at.node.is_object()) else {
        return revision(fields, body, key).map_or(Which::Current, Which::Revision);
    };
    fields.check(&at, &["files"]);
    Which::Files(texts_of(fields, &at))
}

/// Reads the field `files`: the text of each, by its path.
pub(crate) fn texts_of(fields: &mut Fields, at: &Part<'_>) -> BTreeMap<Arc<str>, Arc<[u8]>> {
    let mut texts = BTreeMap::new();
    match at.field("files") {
        None => {
            fields.fault("missing-field", at, "write `files`: an object with the text of each, by its path");
        }
        Some(files) => {
            for (path, at) in fields.entries(&files, MAX_FILES) {
                if let Some(text) = fields.text(&at) {
                    texts.insert(path.into(), text.into_bytes().into());
                }
            }
        }
    }
    texts
}

/// Reads a revision: a number, or `current` for the present one, which is `None`.
pub(crate) fn revision(fields: &mut Fields, body: &Part<'_>, key: &'static str) -> Option<Revision> {
    let at = body.field(key)?;
    let number = at.node.to_json().as_u64().map(Revision);
    if number.is_none() && at.node.as_str() != Some("current") {
        fields.fault("invalid-value", &at, "must be a revision, such as 12, or current");
    }
    number
}

/// The clients that a question is about.
pub(crate) struct About {
    node: Option<String>,
    group: Option<GroupName>,
    profile: Option<Profile>,
    clients: Vec<Client>,
}

/// A state of the server, from which questions are answered.
pub(crate) struct Served {
    pub(crate) revision: Revision,
    publisher: Arc<Publisher>,
    documents: DocumentState,
    /// True for the present state, of whose files the server has the texts.
    is_present: bool,
    /// Objects whose contents at that revision are not kept.
    gaps: Vec<String>,
    /// The errors of files that were asked about, which leave something out.
    pub(crate) errors: Vec<Diagnostic>,
}

/// Whose resources count.
pub(crate) enum Whose {
    Group(GroupName),
    Node(Arc<Node>, Option<(Proofs, Option<ViewKey>)>),
}

impl About {
    /// The fields that [`read`](Self::read) reads.
    pub(crate) const FIELDS: [&'static str; 4] = ["node", "group", "profile", "clients"];

    /// Reads the fields of a question.
    pub(crate) fn read(fields: &mut Fields, body: &Part<'_>) -> Self {
        let node = body.field("node").and_then(|at| fields.text(&at));
        let group = body.field("group").and_then(|at| {
            let name = fields.text(&at)?;
            let name = GroupName::new(&name);
            name.map_err(|error| fields.fault("invalid-value", &at, error.to_string())).ok()
        });
        if let Some(at) = body.field("group").filter(|_| node.is_some()) {
            fields.fault("invalid-value", &at, "a question is about a `node` or a `group`, not about both");
        }
        let profile = body.field("profile").and_then(|at| match &*fields.text(&at)? {
            "envoy" => Some(Profile::Envoy),
            "grpc" => Some(Profile::Grpc),
            _ => {
                fields.fault("invalid-value", &at, "must be envoy or grpc");
                None
            }
        });
        let clients = body.field("clients").map(|at| fields.clients(&at)).unwrap_or_default();
        Self { node, group, profile, clients }
    }

    /// A node or a group, not both; the group `default` if neither is given.
    ///
    /// # Errors
    ///
    /// [`ApiError::BadRequest`] if both are given.
    pub(crate) fn one(
        node: Option<String>,
        group: Option<GroupName>,
        profile: Option<Profile>,
    ) -> Result<Self, ApiError> {
        if node.is_some() && group.is_some() {
            return Err(ApiError::BadRequest("give either node or group".to_owned()));
        }
        Ok(Self { node, group, profile, clients: vec![] })
    }

    /// The clients that are asked for; `otherwise` is their kind if the question does not say it.
    pub(crate) fn clients(&self, whose: &Whose, served: &Served, otherwise: Option<Profile>) -> Vec<Client> {
        if !self.clients.is_empty() {
            return self.clients.clone();
        }
        match (self.profile.or(otherwise), whose) {
            (Some(profile), _) => Client::newest_of(profile),
            (None, Whose::Node(node, _)) => {
                let own = Client::of_user_agent(&node.user_agent_name, &node.user_agent_version);
                own.map_or_else(|| Client::newest_of(Profile::Envoy), |own| vec![own])
            }
            (None, Whose::Group(name)) => {
                let groups = served.publisher.groups().1;
                let own = groups.get(name).and_then(|group| group.definition.client);
                Client::newest_of(own.unwrap_or(Profile::Envoy))
            }
        }
    }
}

impl Served {
    pub(crate) fn present(state: &ApiState) -> Self {
        Self {
            revision: state.publisher.groups().0,
            publisher: Arc::clone(&state.publisher),
            documents: state.control.documents(),
            is_present: true,
            gaps: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// A state. Blocks.
    ///
    /// # Errors
    ///
    /// As [`at`](Self::at) and [`with_files`](xds_control::Control::with_files).
    pub(crate) fn which(state: &ApiState, which: &Which, trial: &Running) -> Result<Self, ApiError> {
        let texts = match which {
            Which::Current => return Ok(Self::present(state)),
            Which::Revision(revision) => return Self::at(state, Some(*revision), trial),
            Which::Files(texts) => texts.clone(),
        };
        let load = state.texts.load(texts);
        let paths: BTreeSet<Arc<str>> = load.files.keys().cloned().collect();
        let mut errors: Vec<Diagnostic> =
            load.files.values().flat_map(|file| &file.diagnostics).cloned().collect();
        let whole = state.control.with_files(load, &|| trial.goes_on());
        let whole = whole_or_stopped(state, whole)?;
        // The API's documents are translated with them, and may be nothing for the caller to see.
        let translated = whole.documents.translated.translation.diagnostics.iter();
        errors.extend(translated.filter(|one| paths.contains(&one.place.file)).cloned());
        errors.retain(Diagnostic::is_error);
        Ok(Self { errors, ..Self::of(whole) })
    }

    fn of(whole: WholeState) -> Self {
        let publisher = Publisher::new();
        publisher.publish(whole.revision, whole.groups);
        Self {
            revision: whole.revision,
            publisher: Arc::new(publisher),
            documents: whole.documents,
            is_present: false,
            gaps: whole.gaps,
            errors: Vec::new(),
        }
    }

    /// The state at a revision; the present one if it is `None`. Blocks.
    ///
    /// # Errors
    ///
    /// As [`at`](xds_control::Control::at).
    pub(crate) fn at(
        state: &ApiState,
        revision: Option<Revision>,
        trial: &Running,
    ) -> Result<Self, ApiError> {
        let Some(revision) = revision.filter(|revision| *revision != state.control.overrides().0) else {
            return Ok(Self::present(state));
        };
        Ok(Self::of(past(state, revision, trial)?))
    }

    /// Fills in the places.
    pub(crate) fn locate<T: Located + Clone>(&self, state: &ApiState, view: &View, answers: &mut [T]) {
        let nothing = Texts::default();
        let places = Places { view, documents: &self.documents.translated.documents, texts: &nothing };
        if !self.is_present {
            return places.locate(answers);
        }
        let texts = texts(state, &places, answers);
        Places { texts: &texts, ..places }.locate(answers);
    }

    /// What is not kept, as the caller may know it.
    pub(crate) fn gaps(&self, caller: &Caller) -> Vec<String> {
        seen_gaps(caller, &self.gaps)
    }

    fn has(&self, group: &GroupName) -> bool {
        group.is_default() || self.publisher.groups().1.contains_key(group)
    }
}

/// Objects whose contents are not kept, without their names and their number for a caller who may not see all of them.
pub(crate) fn seen_gaps(caller: &Caller, gaps: &[String]) -> Vec<String> {
    match caller.sees_everything() || gaps.is_empty() {
        true => gaps.to_vec(),
        false => vec!["withheld: objects that may be out of scope".to_owned()],
    }
}

impl Whose {
    /// Those whom a question is about, in one of these states.
    ///
    /// # Errors
    ///
    /// [`ApiError::NotFound`] if no state has the group, or if the caller must not see it.
    pub(crate) fn of(
        state: &ApiState,
        caller: &Caller,
        about: &About,
        states: &[&Served],
    ) -> Result<Self, ApiError> {
        let Some(id) = &about.node else {
            let name = about.group.clone().unwrap_or_else(GroupName::default_group);
            // A group that is out of scope is as if it did not exist.
            let is_there = states.iter().any(|served| served.has(&name));
            return if is_there && caller.sees_group(&name) {
                Ok(Self::Group(name))
            } else {
                Err(no_group(&name))
            };
        };
        let connected = state.board.streams().iter().find_map(|stream| {
            stream.with(|status| {
                (status.info.node.id == *id).then(|| (status.info.clone(), status.view.clone()))
            })
        });
        Ok(match connected {
            Some((info, key)) => Self::Node(Arc::clone(&info.node), Some((info.proofs.clone(), key))),
            None => Self::Node(Arc::new(Node::with_id(id)), None),
        })
    }

    /// What a client is served.
    ///
    /// # Errors
    ///
    /// [`ApiError::NotFound`] if the caller must not see all of it, and [`ApiError::NotReady`].
    pub(crate) fn view(
        &self,
        state: &ApiState,
        caller: &Caller,
        served: &Served,
        client: Client,
    ) -> Result<Arc<View>, ApiError> {
        let view = self.view_in(&served.publisher, client);
        let view = view.ok_or_else(|| ApiError::NotReady(state.control.not_ready()))?;
        match self {
            Self::Node(node, _) if !caller.sees_all_of_node(&view.key().groups) => {
                Err(ApiError::NotFound(format!("there is no node {:?}", node.id)))
            }
            Self::Node(..) | Self::Group(_) => Ok(view),
        }
    }

    fn view_in(&self, publisher: &Publisher, client: Client) -> Option<Arc<View>> {
        let profile = client.language.profile();
        match self {
            Self::Group(name) => publisher.view_at(&view_key_of_group(name, profile)),
            Self::Node(node, Some((proofs, key))) => {
                let view = match publisher.view_as(node, proofs) {
                    Ok(view) => view,
                    // A client that has no view any more is about to be told so.
                    Err(_) => key.as_ref().and_then(|key| publisher.view_at(key)),
                };
                let view = view?;
                if view.key().profile == profile {
                    return Some(view);
                }
                publisher.view_at(&ViewKey { profile, ..view.key().clone() })
            }
            Self::Node(node, None) => {
                let user_agent_name = client.language.user_agent().to_owned();
                let node = Node { user_agent_name, ..(**node).clone() };
                publisher.view_of(&node)
            }
        }
    }
}

/// What was accepted at a revision. Blocks.
pub(crate) fn past(state: &ApiState, revision: Revision, trial: &Running) -> Result<WholeState, ApiError> {
    whole_or_stopped(state, state.control.at(revision, &|| trial.goes_on()))
}

fn whole_or_stopped(state: &ApiState, whole: Result<WholeState, WriteError>) -> Result<WholeState, ApiError> {
    match whole {
        Err(WriteError::Stopped(Stopped::NobodyWaits)) => Err(stopped(&state.refusals)),
        whole => Ok(whole?),
    }
}

/// The texts of the files that the answer is about, as far as they are still what is served.
fn texts<T: Located + Clone>(state: &ApiState, places: &Places<'_>, answers: &[T]) -> Texts {
    let mut texts = BTreeMap::new();
    let mut n_left = MAX_TEXT_BYTES;
    for path in places.files(answers) {
        let Some(hash) = state.control.served_hash(&path) else { continue };
        let Some(text) = state.texts.read(&path, n_left, &hash) else { continue };
        n_left -= text.len().min(n_left);
        texts.insert(path, text);
    }
    let limits = Limits {
        max_bytes: MAX_TEXT_BYTES,
        max_document_values: state.max_document_values,
        ..Limits::default()
    };
    Texts::new(texts, &limits)
}

/// Larger than all headers that clients take by default, 60 KiB.
pub(crate) const MAX_QUESTION_BYTES: usize = 128 << 10;

/// Files that may be asked about.
const MAX_FILES: usize = 100_000;

/// Eight clients with a listener each take a hundredth of this.
pub(crate) const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Texts of files that are read for the lines of one answer. Parsing that much takes half a second; lines in further files are those
/// where an object begins.
const MAX_TEXT_BYTES: usize = 16 << 20;
