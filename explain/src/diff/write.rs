//! Changes as text, to be read from top to bottom.

use std::fmt::Write as _;

use crate::diff::report::{Changes, Class, ClassKind, name, shown_header};
use crate::explanation::{Explanation, Place};
use crate::ratio::Ratio;
use crate::request::Request;

impl Changes {
    /// The changes as lines of text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        line(&mut text, "client", &self.client);
        for (at, class) in self.classes.iter().enumerate() {
            class.write(&mut text, at + 1);
        }
        let n_hidden = self.n_classes.saturating_sub(self.classes.len());
        if n_hidden > 0 {
            line(&mut text, "and more", &format!("{n_hidden} classes"));
        }
        for undecided in &self.undecided {
            line(&mut text, "undecided", &format!("{}: {}", undecided.about, undecided.why));
        }
        if self.classes.is_empty() && self.undecided.is_empty() {
            line(&mut text, "no change", "every request goes where it went, and is treated as before");
        }
        text
    }
}

impl Class {
    fn write(&self, text: &mut String, number: usize) {
        let verb = match self.kind {
            ClassKind::Connection => "connection",
            ClassKind::Destination => "moved",
            ClassKind::Treatment => "treatment",
            ClassKind::Cluster => "cluster",
        };
        let label = format!("{number} {verb}");
        let about = match (&self.cluster, &self.example) {
            (Some(cluster), _) => format!("{cluster}: {}", self.what.join(", ")),
            (None, Some(example)) => say(example),
            (None, None) => self.what.join(", "),
        };
        line(text, &label, &about);
        if self.cluster.is_none() && !self.what.is_empty() {
            line(text, "  changed", &self.what.join(", "));
        }
        let sides = [("  from", &self.before), ("  to", &self.after)];
        for (label, side) in sides.into_iter().filter_map(|(label, side)| Some((label, side.as_ref()?))) {
            if self.kind == ClassKind::Treatment && label == "  from" {
                continue;
            }
            let label = if self.kind == ClassKind::Treatment { "  at" } else { label };
            line(text, label, &destination(side));
        }
        if self.share != Ratio::ONE {
            line(text, "  share", &format!("{} of these requests", self.share));
        }
        if !self.when.is_empty() {
            line(text, "  if", &self.when.join(" and "));
        }
        if self.parts > 1 {
            line(text, "  parts", &self.parts.to_string());
        }
    }
}

/// `GET http://shop.test:10000/cart, header x-beta: "on"`.
fn say(request: &Request) -> String {
    let is_call = request.headers.iter().any(|(name, value)| name == "te" && value == "trailers");
    let mut text = match (is_call, &*request.scheme) {
        (true, _) => {
            format!("call of {} at xds:///{}", request.path.trim_start_matches('/'), request.authority)
        }
        (false, scheme) => format!("{} {scheme}://{}{}", request.method, request.authority, request.path),
    };
    let own = ["te", "content-type"];
    let headers = request.headers.iter().filter(|(name, _)| !(is_call && own.contains(&&**name)));
    for (name, value) in headers.map(shown_header) {
        let _ = write!(text, ", header {name}: {value:?}");
    }
    let connection = &request.connection;
    if let Some(port) = connection.port {
        let _ = write!(text, ", port {port}");
    }
    if let Some(name) = connection.sni.as_ref().filter(|name| **name != request.authority) {
        let _ = write!(text, ", server name {name:?}");
    }
    if !connection.alpn.is_empty() {
        let _ = write!(text, ", protocol {}", connection.alpn.join(", "));
    }
    if let Some(from) = connection.from {
        let _ = write!(text, ", from {from}");
    }
    if let Some((is_presented, is_valid)) = connection.certificate {
        let word = match (is_presented, is_valid) {
            (false, _) => "no client certificate",
            (true, false) => "a client certificate that is not valid",
            (true, true) => "a valid client certificate",
        };
        let _ = write!(text, ", {word}");
    }
    text
}

/// The clusters with their shares, and the routes that lead there.
fn destination(side: &Explanation) -> String {
    let mut by_route: Vec<(Option<usize>, Vec<String>)> = Vec::new();
    for outcome in side.outcomes.iter().filter(|outcome| !outcome.share.is_zero()) {
        let text = match outcome.share {
            Ratio::ONE => name(outcome),
            share => format!("{share} {}", name(outcome)),
        };
        match by_route.last_mut().filter(|(route, _)| *route == outcome.route) {
            Some((_, all)) => all.push(text),
            None => by_route.push((outcome.route, vec![text])),
        }
    }
    let shown = by_route.into_iter().map(|(index, all)| {
        let route = side.routes.iter().find(|route| Some(route.index) == index);
        let by = route.map(|route| {
            let place = route.element.place.as_ref().and_then(Place::shown);
            match (&*route.element.name, place) {
                ("", Some(at)) => format!("  [{at}]"),
                ("", None) => format!("  by route {}", route.index + 1),
                (name, Some(at)) => format!("  by {name}  [{at}]"),
                (name, None) => format!("  by {name}"),
            }
        });
        format!("{}{}", all.join(", "), by.unwrap_or_default())
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn line(text: &mut String, label: &str, about: &str) {
    let _ = writeln!(text, "{label:<LABEL$} {about}");
}

/// The width of the first column.
const LABEL: usize = 14;
