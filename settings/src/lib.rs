//! The settings that `serve` shares with other commands: flags, and what is read from the files that they name.
//!
//! The settings of `serve` alone are in `xds-serve`.

mod data_dir;
mod descriptors;
mod error;
mod policy;
mod routes;
mod secrets;
mod shared;
pub mod units;

pub use data_dir::default_data_dir;
pub use descriptors::{DescriptorArgs, DescriptorError};
pub use error::SettingError;
pub use policy::read_policy;
pub use routes::{MeshAddress, RouteArgs, UnknownFields};
pub use secrets::Secrets;
pub use shared::{SharedStore, SharedStoreArgs};
