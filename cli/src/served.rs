//! What clients would be served by files.

use std::sync::Arc;

use xds_cache::{GroupName, Node, Publisher, Revision, View};
use xds_codec::Diagnostic;
use xds_control::acks::view_key_of_group;
use xds_control::model::Texts;
use xds_control::{Places, Secrets};
use xds_explain::{Client, Located};

use crate::failure::Failure;
use crate::offline::{FilesArgs, Offline};

/// Files, published.
pub(super) struct Served {
    pub(super) offline: Offline,
    texts: Texts,
    publisher: Publisher,
}

/// The client that is asked about.
#[derive(Clone, Debug)]
pub(super) enum Whose {
    /// One of this group alone.
    Group(GroupName),
    /// The node with this ID, in all its groups.
    Node(String),
}

impl Served {
    /// Reads files.
    ///
    /// # Errors
    ///
    /// As [`Offline::read`].
    pub(super) fn read(files: &FilesArgs) -> Result<Self, Failure> {
        let offline = Offline::read(files, Secrets::Any)?;
        let publisher = Publisher::new();
        publisher.publish(Revision(1), offline.groups());
        let texts = offline.all_texts(&[]);
        Ok(Self { offline, texts, publisher })
    }

    /// What the client is served.
    ///
    /// # Errors
    ///
    /// [`Failure::Failed`] if that is nothing.
    pub(super) fn view(&self, whose: &Whose, client: Client) -> Result<Arc<View>, Failure> {
        let (view, name) = match whose {
            Whose::Node(id) => {
                let agent = client.language.user_agent().to_owned();
                let node = Node { user_agent_name: agent, ..Node::with_id(id.as_str()) };
                (self.publisher.view_of(&node), format!("node {id}"))
            }
            Whose::Group(group) => {
                let key = view_key_of_group(group, client.language.profile());
                (self.publisher.view_at(&key), format!("group {group}"))
            }
        };
        view.ok_or_else(|| Failure::Failed(format!("nothing is served to the {name}")))
    }

    /// Fills in the places.
    pub(super) fn locate<T: Located>(&self, view: &View, answers: &mut [T]) {
        Places { view, documents: &self.offline.translated.documents, texts: &self.texts }.locate(answers);
    }

    /// How many errors the files have.
    pub(super) fn n_errors(&self) -> usize {
        self.offline.diagnostics.iter().filter(|one| Diagnostic::is_error(one)).count()
    }
}
