//! Who is polled when, as the gRPC layer does it: a stream that a request came on, that was woken, or that has room again, and every
//! stream of a client that follows another view.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Server, first_nonce, known, show};

impl Server {
    /// Takes in new views and polls the streams to which something happened until all are silent. The others must have nothing to
    /// send: else they should have been woken.
    pub(super) fn settle(&mut self, output: &mut Vec<String>) -> Result<(), String> {
        self.take_views();
        let names: Vec<String> = self.streams.keys().cloned().collect();
        for _ in 0..MAX_ROUNDS {
            let mut n_polled = 0;
            for name in &names {
                self.tell(output);
                let side = self.stream_mut(name)?;
                if side.is_paused || !std::mem::take(&mut side.is_awake) {
                    continue;
                }
                n_polled += 1;
                let mut n_sent = 0;
                while self.poll(name, output)? {
                    n_sent += 1;
                    if n_sent > MAX_ROUNDS {
                        return Err("the stream never falls silent".into());
                    }
                }
            }
            if n_polled == 0 {
                return self.check_silence(&names);
            }
        }
        Err("the streams never fall silent".into())
    }

    fn take_views(&mut self) {
        for (name, client) in &mut self.clients {
            let Some(receiver) = &mut client.receiver else { continue };
            while let Some(view) = receiver.take() {
                if receiver.is_outdated_by(&view) {
                    *receiver = self.publisher.follow(&client.node);
                    continue;
                }
                if client.client.view().is_some_and(|current| Arc::ptr_eq(current, &view)) {
                    break;
                }
                client.client.handle_view(view, self.now);
                let streams = self.streams.values_mut().filter(|side| side.client == *name);
                streams.for_each(|side| side.is_awake = true);
                break;
            }
        }
    }

    fn check_silence(&mut self, names: &[String]) -> Result<(), String> {
        for name in names {
            let mut output = Vec::new();
            if !self.stream(name)?.is_paused && (self.poll(name, &mut output)? || !output.is_empty()) {
                return Err(format!("{name} was not woken: {output:?}"));
            }
        }
        Ok(())
    }

    /// Takes one response of a stream, if there is one.
    pub(super) fn poll(&mut self, stream: &str, output: &mut Vec<String>) -> Result<bool, String> {
        self.tell(output);
        let Some(side) = self.streams.get(stream) else { return Ok(false) };
        let client = self.clients.get_mut(&side.client).ok_or("no client")?;
        let response = client.client.poll_response(side.id, self.now);
        if let Some(response) = &response {
            output.push(show::response(stream, first_nonce(side.id), response, &mut self.versions));
            let sent = show::sent(response);
            self.known.extend(sent.map(|resource| (known(resource), resource.version().to_string())));
        }
        self.tell(output);
        Ok(response.is_some())
    }

    /// Writes down what happened, and wakes who is to be woken.
    fn tell(&mut self, output: &mut Vec<String>) {
        for client in self.clients.values_mut() {
            while let Some((id, event)) = client.client.poll_event() {
                let Some((name, side)) = self.streams.iter().find(|(_, side)| side.id == id) else {
                    continue;
                };
                side.entry.record(&event, SystemTime::UNIX_EPOCH);
                output.extend(show::event(name, first_nonce(id), &event));
            }
            while let Some(woken) = client.client.poll_wake() {
                let sides = self.streams.values_mut().filter(|side| side.id == woken);
                sides.for_each(|side| side.is_awake = true);
            }
        }
    }
}

/// More rounds, and more responses of one stream, than any scenario needs.
const MAX_ROUNDS: usize = 1000;
