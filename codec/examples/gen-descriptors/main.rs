//! Writes `codec/descriptors/envoy.binpb.zst` anew: `cargo run --release -p xds-codec --example gen-descriptors`.
//!
//! Run it after `envoy-types` was updated. It needs the crate's sources, as Cargo has them anyway, and nothing else.

use std::error::Error;
use std::fs;
use std::path::Path;

mod compile;

/// The slowest common level: the file is written once and read at every start.
const COMPRESSION: i32 = 19;

fn main() -> Result<(), Box<dyn Error>> {
    let envoy_types = compile::find_envoy_types()?;
    let set = compile::compile(&envoy_types.directory)?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("descriptors");
    fs::write(directory.join("envoy.binpb.zst"), zstd::encode_all(&*set, COMPRESSION)?)?;
    fs::write(directory.join("envoy-types.version"), format!("{}\n", envoy_types.version))?;
    Ok(())
}
