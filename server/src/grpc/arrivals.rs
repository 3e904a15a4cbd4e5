//! Log lines for clients that come and go, with a limit for each second, and a count of the rest.
//!
//! When a server restarts, all of its clients reconnect at once; a line for each would bury everything else.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::info;
use xds_cache::status::Variant;
use xds_cache::{Node, Profile, ViewKey};

use crate::grpc::lines::{SECOND, Window};
use crate::listen::Peer;

/// Writes the lines. Every call is short; memory is constant.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    window: Mutex<Window<LeftOut>>,
}

/// Logs the count of clients without a line when the server ends.
#[derive(Debug)]
pub(crate) struct Rest<'a>(&'a Arrivals);

/// The clients without a line of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeftOut {
    n_connected: u64,
    n_disconnected: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Connected,
    Disconnected,
}

impl Arrivals {
    /// A client has opened its first stream. Without a view the first load is not complete, and its groups are unknown.
    pub(crate) fn log_connected(
        &self,
        node: &Node,
        peer: &Peer,
        variant: Variant,
        view: Option<&ViewKey>,
        now: Instant,
    ) {
        if !self.admit(Event::Connected, now) {
            return;
        }
        let groups: Vec<&str> =
            view.iter().flat_map(|view| view.groups.iter().map(|name| name.as_str())).collect();
        let profile = view.map_or_else(|| Profile::of_user_agent(&node.user_agent_name), |view| view.profile);
        info!(
            node = node.id,
            address = &**peer.address(),
            groups = groups.join("+"),
            %profile,
            client = node.user_agent_name,
            version = node.user_agent_version,
            variant = variant.as_str(),
            "a client connected"
        );
    }

    /// A client's last stream has ended.
    pub(crate) fn log_disconnected(&self, node: &Node, since: Instant, reason: &str, now: Instant) {
        if !self.admit(Event::Disconnected, now) {
            return;
        }
        let connected_for = Duration::from_millis(now.saturating_duration_since(since).as_millis() as u64);
        info!(node = node.id, ?connected_for, reason, "a client disconnected");
    }

    /// Logs how many clients had no line, once their second is over. To be called about every second.
    pub(crate) fn flush(&self, now: Instant) {
        let left_out = self.lock().turn(now);
        LeftOut::log(left_out);
    }

    /// Logs, when it is dropped, how many clients had no line until then.
    pub(crate) fn rest(&self) -> Rest<'_> {
        Rest(self)
    }

    fn admit(&self, event: Event, now: Instant) -> bool {
        let mut window = self.lock();
        let left_out = window.turn(now);
        let admitted = window.admit().map_err(|sum| sum.add(event));
        drop(window);
        LeftOut::log(left_out);
        admitted.is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, Window<LeftOut>> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.flush(Instant::now() + SECOND);
    }
}

impl LeftOut {
    fn add(&mut self, event: Event) {
        match event {
            Event::Connected => self.n_connected += 1,
            Event::Disconnected => self.n_disconnected += 1,
        }
    }

    fn log(self) {
        let Self { n_connected, n_disconnected } = self;
        if self == Self::default() {
            return;
        }
        info!(
            n_connected,
            n_disconnected,
            "… and {} more clients connected or disconnected",
            n_connected.saturating_add(n_disconnected)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::lines::MAX_LINES_A_SECOND;

    fn admit(window: &mut Window<LeftOut>, event: Event) -> bool {
        window.admit().map_err(|sum| sum.add(event)).is_ok()
    }

    #[test]
    fn a_fleet_that_reconnects_takes_a_bounded_number_of_lines_and_everyone_is_counted() {
        const N_CLIENTS: u64 = 100_000;
        let (mut window, start) = (Window::default(), Instant::now());
        let (mut n_lines, mut counted) = (0, LeftOut::default());
        let mut add = |left_out: LeftOut, n_lines: &mut u64| {
            counted.n_connected += left_out.n_connected;
            counted.n_disconnected += left_out.n_disconnected;
            *n_lines += u64::from(left_out != LeftOut::default());
        };
        let mut n_shown = 0;
        for i in 0..N_CLIENTS {
            // All of them within ten seconds.
            let now = start + Duration::from_micros(i * 100);
            for event in [Event::Disconnected, Event::Connected] {
                add(window.turn(now), &mut n_lines);
                n_shown += u64::from(admit(&mut window, event));
            }
        }
        add(window.turn(start + Duration::from_secs(20)), &mut n_lines);
        assert_eq!(n_shown, 10 * MAX_LINES_A_SECOND as u64);
        assert_eq!(n_lines, 10, "one summary a second");
        assert_eq!(n_shown + counted.n_connected + counted.n_disconnected, 2 * N_CLIENTS);
        assert_eq!(window.turn(start + Duration::from_secs(40)), LeftOut::default(), "counted once");
    }

    #[test]
    fn a_few_clients_have_a_line_each() {
        let mut window = Window::default();
        let now = Instant::now();
        assert_eq!(window.turn(now), LeftOut::default());
        assert!((0..MAX_LINES_A_SECOND).all(|_| admit(&mut window, Event::Connected)));
        assert!(!admit(&mut window, Event::Connected));
    }
}
