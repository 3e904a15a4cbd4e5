//! The flags and variables that `serve` has, by its own help.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use xds_tests::server::xds_server;

/// The flags and variables of `serve`.
pub(crate) struct Flags {
    names: BTreeSet<String>,
    variables: BTreeSet<String>,
}

impl Flags {
    pub(crate) async fn of_serve() -> Result<Self> {
        let output = xds_server().await?.args(["serve", "--help"]).output().await?;
        ensure!(output.status.success(), "{output:?}");
        let found = Self::parse(&String::from_utf8(output.stdout)?);
        ensure!(found.names.len() > 50 && found.variables.len() > 50, "the help is not understood");
        Ok(found)
    }

    fn parse(help: &str) -> Self {
        let (mut names, mut variables) = (BTreeSet::new(), BTreeSet::new());
        for line in help.lines().map(str::trim) {
            if let Some(flag) = line.strip_prefix("--") {
                let end =
                    flag.find(|at: char| !at.is_ascii_alphanumeric() && at != '-').unwrap_or(flag.len());
                names.insert(flag[..end].to_owned());
            }
            if let Some(variable) = line.strip_prefix("[env: ") {
                variables.extend(variable.split('=').next().map(str::to_owned));
            }
        }
        Self { names, variables }
    }

    /// Fails unless the words are `serve` and flags that it has.
    pub(crate) fn check_words<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let mut words = words.into_iter();
        ensure!(words.next() == Some("serve"), "the first word is the command");
        for word in words.filter(|word| word.starts_with("--")) {
            self.check_key(word[2..].split('=').next().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Fails unless there is a flag of this name, which is also a key of the configuration file.
    pub(crate) fn check_key(&self, key: &str) -> Result<()> {
        ensure!(self.names.contains(key), "serve has no --{key}");
        Ok(())
    }

    /// Fails unless the server reads this variable.
    pub(crate) fn check_variable(&self, name: &str) -> Result<()> {
        ensure!(self.variables.contains(name), "the server does not read {name}");
        Ok(())
    }
}

#[tokio::test]
async fn a_flag_a_key_and_a_variable_that_do_not_exist_are_found() -> Result<()> {
    let flags = Flags::of_serve().await?;
    flags.check_words(["serve", "--watch=/a", "--config", "b"])?;
    flags.check_variable("XDS_SERVER_WATCH")?;
    for bad in [&["--watch=/a"][..], &["serve", "--watched=/a"], &["serve", "--allow-plaintext"]] {
        flags.check_words(bad.iter().copied()).err().with_context(|| format!("{bad:?} passes"))?;
    }
    flags.check_variable("XDS_SERVER_WATCHED").err().context("a variable passes")?;
    Ok(())
}
