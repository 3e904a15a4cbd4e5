//! `top`: nodes, changes and canaries on a terminal, as they are now.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::connection::ConnectionArgs;
use crate::failure::Failure;

mod draw;
mod feed;
mod rows;
mod screen;

use feed::Feeder;
use screen::Screen;

/// The flags of `top`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = KEYS)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
}

const KEYS: &str = "Keys: 1, 2, 3 or tab for nodes, changes and canaries; arrows, page up and page down to select; / to filter, esc to \
end that; q to leave";

/// Shows them until a key ends it.
///
/// # Errors
///
/// [`Failure::Usage`] without a terminal; as a request if the server cannot be reached at first.
pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::Usage(
            "top needs a terminal; `xds-server fleet --watch` writes lines to a pipe".to_owned(),
        ));
    }
    let admin = args.connection.connect()?;
    // What cannot be reached at all is told in words, on the screen that the caller has.
    admin.get("/v1/fleet?limit=1")?;
    let feeder = Feeder::start(admin);
    let mut terminal = ratatui::try_init().map_err(|error| failed(&error))?;
    let shown = show(&mut terminal, &feeder);
    ratatui::try_restore().and(shown).map_err(|error| failed(&error))
}

fn show(terminal: &mut DefaultTerminal, feeder: &Feeder) -> io::Result<()> {
    let mut screen = Screen::default();
    loop {
        terminal.draw(|frame| draw::screen(frame, &screen))?;
        while !event::poll(TICK)? {
            if let Some(feed) = feeder.poll_feed() {
                screen.handle_feed(feed);
                terminal.draw(|frame| draw::screen(frame, &screen))?;
            }
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            screen.handle_key(key);
            feeder.set_filter(screen.filter());
        }
        if screen.is_over() {
            return Ok(());
        }
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot use the terminal: {error}"))
}

/// How soon after it is read something is shown: sooner than anyone sees.
const TICK: Duration = Duration::from_millis(100);
