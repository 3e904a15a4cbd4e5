//! Findings about clients of one profile.

use xds_cache::{Origin, Profile, ResourceKey};

use crate::diagnostic::{Diagnostic, Place, Severity};
use crate::document::{Position, Tree};
use crate::finding::Finding;
use crate::path::{Step, format_steps};

/// A part of a resource that clients of one profile reject, ignore or read differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFinding {
    /// The resource.
    pub resource: ResourceKey,
    /// Its origin, which distinguishes resources with the same key in several groups.
    pub origin: Origin,
    /// The kind of clients.
    pub profile: Profile,
    /// The effect on these clients.
    pub effect: Effect,
    /// The kind of fault in kebab-case. It is stable, for filters and tests.
    pub code: &'static str,
    /// The id of the rule in `docs/design/protocol-rules.md`: `B23`.
    pub row: &'static str,
    /// The path of the field in the resource; empty for the whole resource.
    pub path: String,
    /// The client and the effect, in words.
    pub message: String,
    /// The right value.
    pub suggestion: Option<String>,
    /// The languages of gRPC that it concerns; empty for Envoy.
    pub languages: Vec<Language>,
    /// True if clients of the other profile can reach the resource too.
    pub is_shared: bool,
    pub(super) steps: Vec<Step>,
}

/// The effect of a [`ProfileFinding`] on a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Its process ends.
    Crashes,
    /// It rejects the resource with a NACK.
    Rejected,
    /// It accepts the resource, and then fails all requests of the target.
    FailsAll,
    /// It accepts the resource, but requests that use the part fail.
    Fails,
    /// It ignores the part.
    Ignored,
    /// It reads the part in another way than clients of the other profile, or of another language.
    Differs,
}

/// A library of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// C-core, with C++, Python, Ruby and others on top.
    Core,
    /// grpc-go.
    Go,
    /// grpc-js with grpc-js-xds.
    Js,
    /// grpc-java.
    Java,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Core, Self::Go, Self::Js, Self::Java];

    /// The name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "C-core",
            Self::Go => "go",
            Self::Js => "js",
            Self::Java => "java",
        }
    }
}

impl Effect {
    /// Returns `true` if the client cannot use the resource: worse than a part that it ignores.
    #[must_use]
    pub fn is_severe(self) -> bool {
        match self {
            Self::Crashes | Self::Rejected | Self::FailsAll | Self::Fails => true,
            Self::Ignored | Self::Differs => false,
        }
    }
}

impl ProfileFinding {
    /// The finding as a diagnostic of the resource's file. Its place is that of the nearest value on its path in `documents`, or that of the
    /// resource if the documents do not have it.
    #[must_use]
    pub fn to_diagnostic(&self, severity: Severity, documents: &[Tree]) -> Diagnostic {
        let (file, line, column) = match &self.origin {
            Origin::File { path, line, column } => (path.clone(), *line, *column),
            Origin::Api => ("".into(), 0, 0),
        };
        let finding = Finding {
            severity,
            code: self.code,
            steps: self.steps.clone(),
            position: None,
            message: self.message.clone(),
            suggestion: self.suggestion.clone(),
            related: Vec::new(),
            is_sensitive: self.path.contains("tls_certificate"),
        };
        match crate::locate::resource_at(documents, line, column) {
            Some(tree) => finding.locate(&file, tree),
            None => {
                let path = format_steps(&self.steps);
                let place = Place { file: file.clone(), line, column };
                let nowhere = Tree::null(Position::default());
                Diagnostic { place, path, ..finding.locate(&file, nowhere.root()) }
            }
        }
    }
}
