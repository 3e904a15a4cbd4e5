//! What the screen shows, and what keys do to it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::feed::Feed;
use super::rows::{Row, View, rows};

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct Screen {
    feed: Feed,
    view: View,
    /// The selected row of each view.
    selected: [usize; View::ALL.len()],
    filter: String,
    is_typing: bool,
    is_over: bool,
}

impl Screen {
    /// Takes what was read.
    pub(super) fn handle_feed(&mut self, feed: Feed) {
        self.feed = feed;
        self.select(self.selected());
    }

    /// Does what a key says.
    pub(super) fn handle_key(&mut self, key: KeyEvent) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (self.is_typing, key.code) {
            (_, KeyCode::Char('c')) if is_control => self.is_over = true,
            (_, KeyCode::Esc) => {
                self.is_typing = false;
                self.filter.clear();
            }
            (true, KeyCode::Enter) => self.is_typing = false,
            (true, KeyCode::Backspace) => _ = self.filter.pop(),
            (true, KeyCode::Char(character)) if !is_control && self.filter.len() < MAX_FILTER_BYTES => {
                self.filter.push(character);
            }
            (false, KeyCode::Char('q')) => self.is_over = true,
            (false, KeyCode::Char('/')) => self.is_typing = true,
            (false, KeyCode::Char('1')) => self.view = View::Nodes,
            (false, KeyCode::Char('2')) => self.view = View::Changes,
            (false, KeyCode::Char('3')) => self.view = View::Canaries,
            (_, KeyCode::Tab | KeyCode::Right) => self.view = self.view.after(1),
            (_, KeyCode::BackTab | KeyCode::Left) => self.view = self.view.after(View::ALL.len() - 1),
            (_, KeyCode::Up) => self.select(self.selected().saturating_sub(1)),
            (_, KeyCode::Down) => self.select(self.selected().saturating_add(1)),
            (_, KeyCode::PageUp) => self.select(self.selected().saturating_sub(PAGE)),
            (_, KeyCode::PageDown) => self.select(self.selected().saturating_add(PAGE)),
            (_, KeyCode::Home) => self.select(0),
            (_, KeyCode::End) => self.select(usize::MAX),
            (_, _) => {}
        }
        self.select(self.selected());
    }

    pub(super) fn feed(&self) -> &Feed {
        &self.feed
    }

    pub(super) fn view(&self) -> View {
        self.view
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn is_typing(&self) -> bool {
        self.is_typing
    }

    /// Returns `true` if it should go away.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The position of the selected row of the view.
    pub(super) fn selected(&self) -> usize {
        self.selected[self.view.index()]
    }

    /// The rows of the view that fit the filter.
    pub(super) fn rows(&self) -> Vec<Row> {
        // The server looks for nodes by their ids, too.
        let n_columns = match self.view {
            View::Nodes => 1,
            View::Changes | View::Canaries => usize::MAX,
        };
        let mut all = rows(self.view, &self.feed);
        all.retain(|row| row.contains(&self.filter, n_columns));
        all
    }

    fn select(&mut self, position: usize) {
        self.selected[self.view.index()] = position.min(self.rows().len().saturating_sub(1));
    }
}

/// How many rows `page up` and `page down` pass.
const PAGE: usize = 10;

/// Longer than the name of any node that someone types.
const MAX_FILTER_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn press(screen: &mut Screen, codes: impl IntoIterator<Item = KeyCode>) {
        codes.into_iter().for_each(|code| screen.handle_key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    fn fleet(n: usize) -> Feed {
        let nodes: Vec<_> = (0..n).map(|n| json!({"id": format!("edge-{n}")})).collect();
        Feed { fleet: json!({"nodes": nodes}), ..Feed::default() }
    }

    #[test]
    fn keys_change_the_view_and_the_row() {
        let mut screen = Screen::default();
        screen.handle_feed(fleet(30));
        press(&mut screen, [KeyCode::Down, KeyCode::PageDown, KeyCode::Up]);
        assert_eq!(screen.selected(), PAGE);
        press(&mut screen, [KeyCode::Tab, KeyCode::Down]);
        assert_eq!((screen.view(), screen.selected()), (View::Changes, 0), "there is no row");
        press(&mut screen, [KeyCode::Char('3'), KeyCode::Tab]);
        assert_eq!((screen.view(), screen.selected()), (View::Nodes, PAGE), "each view has its own row");
        press(&mut screen, [KeyCode::End]);
        assert_eq!(screen.selected(), 29);
        screen.handle_feed(fleet(3));
        assert_eq!(screen.selected(), 2, "rows that went away cannot be selected");
    }

    #[test]
    fn a_filter_is_typed_kept_and_taken_away() {
        let mut screen = Screen::default();
        screen.handle_feed(fleet(30));
        press(&mut screen, "/edge-1q".chars().map(KeyCode::Char));
        assert!(screen.is_typing() && !screen.is_over(), "q is a letter of the filter");
        press(&mut screen, [KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!((screen.filter(), screen.rows().len(), screen.is_typing()), ("edge-1", 11, false));
        press(&mut screen, [KeyCode::Esc]);
        assert_eq!((screen.filter(), screen.rows().len()), ("", 30));
        press(&mut screen, [KeyCode::Char('q')]);
        assert!(screen.is_over());
        let mut screen = Screen::default();
        press(&mut screen, [KeyCode::Char('/')]);
        screen.handle_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(screen.is_over());
    }
}
