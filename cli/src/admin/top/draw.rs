//! Draws the screen: a function of its state alone.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as TableRow, Table, TableState, Tabs, Wrap};

use super::rows::{Row, Tone, View, head, tone_of};
use super::screen::Screen;
use crate::admin::fleet::states;
use crate::output::{cell, one_line};

/// Draws everything.
pub(super) fn screen(frame: &mut Frame<'_>, screen: &Screen) {
    let rows = screen.rows();
    let parts = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(DETAIL_LINES),
        Constraint::Length(1),
    ];
    let [title, tabs, body, details, foot] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(summary(screen)), title);
    let titles = View::ALL.iter().map(|view| view.title());
    let selected = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Tabs::new(titles).select(screen.view().index()).highlight_style(selected), tabs);
    table(frame, body, screen, &rows);
    let told = rows.get(screen.selected()).map(|row| row.details.as_slice()).unwrap_or_default();
    let told: Vec<Line<'_>> = told.iter().map(|line| Line::raw(line.as_str())).collect();
    let block = Block::new().borders(Borders::TOP);
    frame.render_widget(Paragraph::new(told).wrap(Wrap { trim: false }).block(block), details);
    frame.render_widget(Paragraph::new(foot_line(screen)), foot);
}

fn table(frame: &mut Frame<'_>, area: Rect, screen: &Screen, rows: &[Row]) {
    let head = head(screen.view());
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| cell.chars().count());
        let widest = cells.chain([head[column].len()]).max().unwrap_or_default().min(MAX_COLUMN_CHARS);
        u16::try_from(widest).unwrap_or(u16::MAX)
    };
    let last = head.len() - 1;
    let widths = (0..head.len()).map(|column| match column == last {
        true => Constraint::Fill(1),
        false => Constraint::Length(width(column)),
    });
    let shown = rows.iter().map(|row| {
        TableRow::new(row.cells.iter().map(|text| Cell::from(text.as_str()))).style(style_of(row.tone))
    });
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let table = Table::new(shown, widths)
        .header(TableRow::new(head.iter().copied()).style(bold))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    // It scrolls as little as is needed for the selected row.
    let mut state = TableState::new().with_selected((!rows.is_empty()).then(|| screen.selected()));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The revision, and how many nodes are in which state.
fn summary(screen: &Screen) -> Line<'static> {
    let fleet = &screen.feed().fleet;
    if fleet.is_null() {
        return Line::raw("waiting for the server …");
    }
    let mut spans = vec![Span::raw(format!(
        "revision {}, {} nodes",
        one_line(&cell(&fleet["revision"])),
        one_line(&cell(&fleet["total"]))
    ))];
    for state in states() {
        if let Some(n) = fleet["states"][state].as_u64() {
            spans.push(Span::raw("  "));
            spans.push(Span::styled(format!("{n} {state}"), style_of(tone_of(state))));
        }
    }
    Line::from(spans)
}

fn foot_line(screen: &Screen) -> Line<'static> {
    if screen.is_typing() {
        return Line::raw(format!("/{}_", screen.filter()));
    }
    if let Some(failure) = &screen.feed().failure {
        return Line::styled(one_line(failure), style_of(Tone::Bad));
    }
    let filter = match screen.filter() {
        "" => String::new(),
        filter => format!("only {filter:?} (esc for all)  "),
    };
    Line::raw(format!("{filter}1 2 3 tab: view  arrows: select  /: filter  q: leave"))
}

/// Colours of the terminal's own palette.
fn style_of(tone: Tone) -> Style {
    match tone {
        Tone::Well => Style::new(),
        Tone::Waiting => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
    }
}

/// The line above it, and what is told of a rollout.
const DETAIL_LINES: u16 = 6;

/// A longer name is cut: other columns are wanted, too.
const MAX_COLUMN_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use serde_json::json;

    use super::super::feed::Feed;
    use super::*;

    fn feed() -> Feed {
        Feed {
            fleet: json!({"revision": 7, "total": 3, "states": {"rejected": 1, "acknowledged": 2}, "nodes": [
                {"id": "edge-1", "state": "rejected", "since": "2026-11-27T10:00:00Z", "client": "envoy 1.36.0", "groups": ["edge"],
                    "revision": 6, "locality": "here/a", "cluster": "edge", "rejectedType": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
                    "rejection": "no such\nfilter\u{1b}[2J"},
                {"id": "edge-2", "state": "acknowledged", "since": "T", "client": "gRPC Go 1.70", "groups": [], "revision": 7, "locality": ""},
            ]}),
            history: json!({"revisions": [
                {"revision": 7, "at": "2026-11-27T10:00:00Z", "actor": "ada", "source": "api", "summary": "1 changed"},
                {"revision": 6, "at": "2026-11-27T09:00:00Z", "actor": "files", "source": "file", "summary": "3 added"},
            ]}),
            acks: json!({"revision": 7, "acked": 1, "total": 3, "pending": ["edge-3"], "nacked": [{"node": "edge-1", "message": "no"}]}),
            rollouts: json!({"rollouts": [{"id": "shop-1", "phase": "Progressing", "step": 2, "nSteps": 5, "stable": "v1:80", "canary": "v2:80",
                "route": {"kind": "HTTPRoute", "namespace": "prod", "name": "shop"}, "weights": {"stable": 90, "canary": 10},
                "acked": {"n": 1, "of": 2}, "message": "step 2: 10 % to the canary",
                "loads": {"stable": {"requests": 90, "failures": 0}, "canary": {"requests": 10, "failures": 1}}}]}),
            waves: json!({"waveDeployments": [{"id": 7, "phase": "waiting", "share": "50%", "nAhead": 1, "nAcked": 1, "nBehind": 1,
                "summary": "1 changed"}]}),
            failure: None,
        }
    }

    fn drawn(screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(90, 14)).unwrap();
        terminal.draw(|frame| super::screen(frame, screen)).unwrap();
        terminal.backend().to_string()
    }

    fn pressed(keys: &str) -> Screen {
        let mut screen = Screen::default();
        screen.handle_feed(feed());
        for key in keys.chars() {
            screen.handle_key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
        }
        screen
    }

    #[test]
    fn nodes_are_listed_and_the_selected_one_is_told_of() {
        insta::assert_snapshot!(drawn(&pressed("")));
    }

    #[test]
    fn changes_say_who_has_accepted_the_last() {
        insta::assert_snapshot!(drawn(&pressed("2")));
    }

    #[test]
    fn canaries_are_rollouts_and_waves_with_bars() {
        insta::assert_snapshot!(drawn(&pressed("3")));
    }

    #[test]
    fn a_filter_and_a_failure_are_in_the_last_line() {
        assert!(drawn(&pressed("/edge-2")).contains("\"/edge-2_"));
        let mut screen = pressed("");
        screen.handle_feed(Feed { failure: Some("cannot reach\nit".to_owned()), ..feed() });
        assert!(drawn(&screen).contains("cannot reach\\nit"));
        assert!(drawn(&Screen::default()).contains("waiting for the server"));
    }
}
