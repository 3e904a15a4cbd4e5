//! `completions`: what a shell needs to complete command lines.

use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::print;

/// The arguments of `completions`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = WHERE)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

const WHERE: &str = "bash: source <(xds-server completions bash)
zsh:  xds-server completions zsh > \"${fpath[1]}/_xds-server\"
fish: xds-server completions fish > ~/.config/fish/completions/xds-server.fish";

/// Prints the script of a shell for all commands of `cli`.
pub(crate) fn run(args: &CompletionsArgs, cli: clap::Command) -> Result<(), Failure> {
    print(&script(args.shell, cli))
}

fn script(shell: Shell, mut cli: clap::Command) -> String {
    let (name, mut script) = (cli.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut cli, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The script of each shell, to test it with the commands that there are.
#[cfg(test)]
pub(super) fn all(cli: &clap::Command) -> Vec<String> {
    use clap::ValueEnum as _;
    Shell::value_variants().iter().map(|shell| script(*shell, cli.clone())).collect()
}
