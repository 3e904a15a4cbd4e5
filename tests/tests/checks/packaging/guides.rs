//! The guides that install the server: their configurations have keys that exist, and the files that they name are there.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value};

use crate::packaging::flags::Flags;
use crate::packaging::{read, root};

const CONFIG: &str = "```yaml\n# /etc/xds-server/config.yaml\n";
const GUIDES: [&str; 2] =
    ["docs/guides/from-a-fresh-machine-to-production.md", "docs/guides/put-into-production.md"];

#[tokio::test]
async fn the_server_knows_every_key_of_the_configurations() -> Result<()> {
    let flags = Flags::of_serve().await?;
    for guide in GUIDES {
        let text = read(guide)?;
        let rest = text.split_once(CONFIG).with_context(|| format!("no configuration in {guide}"))?.1;
        let config: Map<String, Value> =
            serde_saphyr::from_str(rest.split("```").next().unwrap_or_default())?;
        ensure!(config.len() > 10, "{guide}: {config:?}");
        config.keys().try_for_each(|key| flags.check_key(key)).context(guide)?;
    }
    Ok(())
}

#[test]
fn files_of_the_packages_that_the_documentation_names_exist() -> Result<()> {
    for page in GUIDES.into_iter().chain(["README.md", "docs/development.md"]) {
        let text = read(page)?;
        let is_of_path = |at: char| at.is_ascii_alphanumeric() || "/-_.".contains(at);
        let named = text.match_indices("packaging/").map(|(at, _)| &text[at..]);
        for path in named.map(|rest| rest.split(|at| !is_of_path(at)).next().unwrap_or_default()) {
            ensure!(root().join(path.trim_end_matches('.')).exists(), "{path} in {page}");
        }
    }
    Ok(())
}
