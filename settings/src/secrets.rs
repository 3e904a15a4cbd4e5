//! The setting for secrets.

/// Which groups may have secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Secrets {
    /// Groups with `identities`, so that only clients that have proved who they are get secrets.
    Identified,
    /// All groups.
    Any,
}

impl From<Secrets> for xds_control::Secrets {
    fn from(secrets: Secrets) -> Self {
        match secrets {
            Secrets::Identified => Self::Identified,
            Secrets::Any => Self::Any,
        }
    }
}
