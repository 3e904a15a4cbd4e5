//! A screen as a document.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::assets;
use crate::rest::Failure;

/// What is shown at an address.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) title: String,
    pub(crate) area: Area,
    /// What stays while somebody looks: forms, and what does not change.
    pub(crate) head: Markup,
    pub(crate) parts: Vec<Part>,
}

/// A part of a screen that is made anew while somebody looks.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its id in the document.
    pub(crate) id: &'static str,
    pub(crate) content: Markup,
}

/// The areas of the page, in the order of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    Fleet,
    Changes,
    Canary,
    Routes,
    Try,
    Problems,
    None,
}

/// What is the same on all screens of a visitor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    /// The address of this screen, for the parts that change.
    pub(crate) address: String,
    /// True if the visitor has signed in and may sign out.
    pub(crate) is_signed_in: bool,
    /// What the last form led to: true if it was done.
    pub(crate) said: Option<(bool, String)>,
}

impl Area {
    const ALL: [(Self, &str, &str); 6] = [
        (Self::Fleet, "/", "Fleet"),
        (Self::Changes, "/changes", "Changes"),
        (Self::Canary, "/canary", "Canary"),
        (Self::Routes, "/routes", "Routes"),
        (Self::Try, "/try", "Try a request"),
        (Self::Problems, "/problems", "Problems"),
    ];
}

impl Part {
    pub(crate) const fn new(id: &'static str, content: Markup) -> Self {
        Self { id, content }
    }
}

/// The document of a screen.
pub(crate) fn document(frame: &Frame, screen: &Screen) -> String {
    let live = (!screen.parts.is_empty()).then_some(&frame.address);
    let body = html! {
        @if let Some((is_done, said)) = &frame.said {
            p.said.(if *is_done { "done" } else { "failed" }) role="status" { (said) }
        }
        h1 { (screen.title) }
        (screen.head)
        @for part in &screen.parts {
            section id=(part.id) data-part { (part.content) }
        }
    };
    whole(frame, &screen.title, screen.area, live, &body)
}

/// The document for what could not be shown.
pub(crate) fn failure(frame: &Frame, failure: &Failure) -> String {
    let body = html! {
        h1 { "This cannot be shown" }
        (problem(failure))
        p { a href=(frame.address) { "Try again" } }
    };
    whole(frame, "Problem", Area::None, None, &body)
}

/// What the API says is wrong.
pub(crate) fn problem(failure: &Failure) -> Markup {
    html! {
        div.said.failed role="alert" {
            p { (failure.detail) }
            @if !failure.faults.is_empty() {
                ul { @for fault in &failure.faults { li { (fault) } } }
            }
        }
    }
}

/// The document in which somebody signs in.
pub(crate) fn sign_in(frame: &Frame, why: Option<&str>) -> String {
    let body = html! {
        h1 { "Sign in" }
        @if let Some(why) = why { p.said.failed role="alert" { (why) } }
        form.panel method="post" action="/ui/sign-in" {
            input type="hidden" name="to" value=(frame.address);
            label for="token" { "Token" }
            input #token type="password" name="token" autocomplete="current-password" required autofocus;
            p.note { "The token of --admin-token-file, or one of the access policy. It is kept by the server until you sign out, or for 12 hours." }
            button type="submit" { "Sign in" }
        }
    };
    whole(frame, "Sign in", Area::None, None, &body)
}

fn whole(frame: &Frame, title: &str, area: Area, live: Option<&String>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · xds-server" }
                link rel="icon" href=(assets::address("icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::address("page.css"));
                script src=(assets::address("page.js")) defer {}
            }
            body data-live=[live] {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.name href="/" { "xds-server" }
                    nav aria-label="Areas" {
                        @for (of, address, name) in Area::ALL {
                            a href=(address) aria-current=[(of == area).then_some("page")] { (name) }
                        }
                    }
                    span #link.link role="status" {}
                    @if frame.is_signed_in {
                        form method="post" action="/ui/sign-out" { button.quiet type="submit" { "Sign out" } }
                    }
                }
                main #main tabindex="-1" { (body) }
            }
        }
    };
    let PreEscaped(text) = page;
    text
}
