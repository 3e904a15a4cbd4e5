//! The clients that a question about requests is about.

use serde_json::{Value, json};
use xds_cache::{GroupName, Profile};
use xds_explain::Client;

use crate::get::ClientKind;
use crate::served::Whose;

/// The flags that say whom a question is about.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AboutArgs {
    /// Kind of clients [default: envoy; of a running server that of the node or group]
    #[arg(long, value_enum, value_name = "CLIENT")]
    profile: Option<ClientKind>,
    /// Client with a version, such as envoy@1.38 or grpc-go; may be repeated [default: the connected node's own, else the newest of
    /// each language of the profile]
    #[arg(long = "client", value_name = "CLIENT")]
    clients: Vec<Client>,
    /// Group of the client [default: default]
    #[arg(long, value_name = "GROUP", value_parser = parse_group)]
    group: Option<GroupName>,
    /// Ask for the node with this ID, in all its groups
    #[arg(long, value_name = "ID", conflicts_with = "group")]
    node: Option<String>,
}

fn parse_group(text: &str) -> Result<GroupName, String> {
    GroupName::new(text).map_err(|error| error.to_string())
}

impl AboutArgs {
    /// Writes the fields of a question for a server. `of_target` is the kind of client that the request implies.
    pub(super) fn write(&self, question: &mut Value, of_target: Option<Profile>) {
        let clients: Vec<String> = self.clients.iter().map(Client::to_string).collect();
        let profile = self.profile.map(Profile::from).or(of_target);
        let fields = [
            ("node", self.node.as_ref().map(|node| json!(node))),
            ("group", self.group.as_ref().map(|group| json!(group.as_str()))),
            ("profile", profile.map(|profile| json!(profile.to_string()))),
            ("clients", Some(json!(clients)).filter(|_| !clients.is_empty())),
        ];
        for (key, value) in fields {
            if let Some(value) = value {
                question[key] = value;
            }
        }
    }

    /// The clients for which files are read.
    pub(super) fn clients(&self, of_target: Option<Profile>) -> Vec<Client> {
        if !self.clients.is_empty() {
            return self.clients.clone();
        }
        Client::newest_of(of_target.or(self.profile.map(Profile::from)).unwrap_or(Profile::Envoy))
    }

    /// Whose resources of files count.
    pub(super) fn whose(&self) -> Whose {
        match &self.node {
            Some(id) => Whose::Node(id.clone()),
            None => Whose::Group(self.group.clone().unwrap_or_else(GroupName::default_group)),
        }
    }
}
