//! The clients whose behaviour is modelled: a language and a version.

use std::fmt;
use std::str::FromStr;

use xds_cache::Profile;

/// An implementation of xDS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// Envoy.
    Envoy,
    /// C-core: C++, Python, Ruby, PHP, C#, Objective-C.
    CCore,
    /// grpc-go.
    Go,
    /// grpc-java.
    Java,
    /// grpc-js.
    Js,
}

impl Language {
    /// The languages of proxyless gRPC.
    pub const GRPC: [Self; 4] = [Self::CCore, Self::Go, Self::Java, Self::Js];

    /// The languages of a profile.
    #[must_use]
    pub fn of_profile(profile: Profile) -> &'static [Self] {
        match profile {
            Profile::Envoy => &[Self::Envoy],
            Profile::Grpc => &Self::GRPC,
        }
    }

    /// The kind of client that it is served as.
    #[must_use]
    pub fn profile(self) -> Profile {
        match self {
            Self::Envoy => Profile::Envoy,
            Self::CCore | Self::Go | Self::Java | Self::Js => Profile::Grpc,
        }
    }

    /// The beginning of the name by which its clients call themselves to a server (`user_agent_name` of a node).
    #[must_use]
    pub fn user_agent(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::CCore => "gRPC C-core",
            Self::Go => "gRPC Go",
            Self::Java => "gRPC Java",
            Self::Js => "gRPC Node",
        }
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::CCore => "grpc-core",
            Self::Go => "grpc-go",
            Self::Java => "grpc-java",
            Self::Js => "grpc-js",
        }
    }

    /// The newest version that was compared with the model.
    fn newest(self) -> (u16, u16) {
        match self {
            Self::Envoy => (1, 40),
            Self::CCore | Self::Go => (1, 85),
            Self::Java => (1, 80),
            Self::Js => (1, 14),
        }
    }
}

/// A client whose behaviour is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// The implementation.
    pub language: Language,
    /// Major and minor version.
    pub version: (u16, u16),
}

impl Client {
    /// The newest version of a language that was compared with the model.
    #[must_use]
    pub fn newest(language: Language) -> Self {
        Self { language, version: language.newest() }
    }

    /// The newest client of each language of a profile.
    #[must_use]
    pub fn newest_of(profile: Profile) -> Vec<Self> {
        Language::of_profile(profile).iter().map(|language| Self::newest(*language)).collect()
    }

    /// The client that calls itself so, such as `gRPC Go` and `1.85.0`; `None` if its name says nothing. Without a version the newest.
    #[must_use]
    pub fn of_user_agent(name: &str, version: &str) -> Option<Self> {
        let mut all = [Language::Envoy].into_iter().chain(Language::GRPC);
        let language = all.find(|language| name.starts_with(language.user_agent()))?;
        // C-core says `C-core 1.85.0`.
        let digits = version.trim_start_matches(|character: char| !character.is_ascii_digit());
        let version = read_version(digits).unwrap_or(language.newest());
        Some(Self { language, version })
    }
}

/// Major and minor version.
fn read_version(text: &str) -> Option<(u16, u16)> {
    let mut parts = text.split(|character: char| !character.is_ascii_digit());
    let mut number = || parts.next()?.parse().ok();
    Some((number()?, number()?))
}

impl fmt::Display for Client {
    /// `envoy@1.40`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version;
        write!(f, "{}@{major}.{minor}", self.language.name())
    }
}

/// A text that names no client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no client; write envoy, grpc-core, grpc-go, grpc-java or grpc-js, with a version if you like: envoy@1.38"
)]
pub struct UnknownClient(String);

impl FromStr for Client {
    type Err = UnknownClient;

    /// `envoy`, `envoy@1.38`, `grpc-go@1.85.0`, `go`; without a version the newest.
    fn from_str(text: &str) -> Result<Self, UnknownClient> {
        let unknown = || UnknownClient(text.chars().take(MAX_ECHO).collect());
        let (name, version) =
            text.split_once('@').map_or((text, None), |(name, version)| (name, Some(version)));
        let language = match name {
            "envoy" => Language::Envoy,
            "grpc-core" | "core" | "c-core" | "grpcio" | "grpc-c++" | "grpc-python" => Language::CCore,
            "grpc-go" | "go" => Language::Go,
            "grpc-java" | "java" => Language::Java,
            "grpc-js" | "js" | "grpc-node-js" => Language::Js,
            _ => return Err(unknown()),
        };
        let Some(version) = version else { return Ok(Self::newest(language)) };
        let version = read_version(version).ok_or_else(unknown)?;
        Ok(Self { language, version })
    }
}

/// How much of a text from outside an error repeats.
const MAX_ECHO: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_read_with_and_without_a_version() {
        let client = |text: &str| text.parse::<Client>().map(|client| client.to_string());
        assert_eq!(client("envoy").unwrap(), "envoy@1.40");
        assert_eq!(client("envoy@1.38.2").unwrap(), "envoy@1.38");
        assert_eq!(client("core").unwrap(), "grpc-core@1.85");
        let agent =
            |name: &str, version: &str| Client::of_user_agent(name, version).map(|one| one.to_string());
        assert_eq!(agent("envoy", "1.39.2-dev").as_deref(), Some("envoy@1.39"));
        assert_eq!(agent("gRPC C-core linux", "C-core 1.70.0").as_deref(), Some("grpc-core@1.70"));
        assert_eq!(agent("gRPC Node Pure JS", "").as_deref(), Some("grpc-js@1.14"));
        assert_eq!(agent("curl", "8"), None);
        for bad in ["", "nginx", "envoy@", "envoy@x.1", "envoy@1"] {
            assert!(client(bad).is_err(), "{bad}");
        }
    }
}
