//! The addresses that the server listens on.

use std::net::SocketAddr;

use crate::config::error::ConfigError;

/// The addresses that the server listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenConfig {
    /// For clients.
    pub xds: SocketAddr,
    /// For the admin API.
    pub admin: SocketAddr,
    /// For health, readiness and metrics alone.
    pub probe: Option<SocketAddr>,
}

impl ListenConfig {
    pub(super) fn check_distinct(&self) -> Result<(), ConfigError> {
        self.check_distinct_from("", None)
    }

    /// The same, with the address of another flag.
    pub(super) fn check_distinct_from(
        &self,
        flag: &'static str,
        other: Option<SocketAddr>,
    ) -> Result<(), ConfigError> {
        let addresses = [
            ("xds-listen", Some(self.xds)),
            ("admin-listen", Some(self.admin)),
            ("probe-listen", self.probe),
            (flag, other),
        ];
        for (index, (second, address)) in addresses.iter().enumerate() {
            let Some(address) = address.filter(|address| address.port() != 0) else { continue };
            if let Some((first, _)) = addresses.iter().take(index).find(|(_, other)| *other == Some(address))
            {
                return Err(ConfigError::SameAddress { first, second, address });
            }
        }
        Ok(())
    }
}
