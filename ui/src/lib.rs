//! The page of the admin port: the REST API for people.
//!
//! Everything that is shown and changed goes through the REST API, as one more of its callers: [`rest`] calls its router with the credentials of
//! the visitor. So the page can do nothing that the visitor could not do by `curl`, and everything is guarded, limited and audited in one
//! place.
//!
//! A [`screen`] is made from answers of the API: a head that stays, and [parts](page::Part) that change. [`page`] writes it as a document.
//! [`live`] makes the parts anew each second for as long as somebody looks, and sends what has changed to all who look at the same. [`session`]
//! keeps the credentials of those who signed in, and [`act`] carries out what forms ask for.

mod act;
mod assets;
mod draw;
mod live;
mod page;
mod path;
mod rest;
mod router;
mod screen;
mod session;

pub use router::{Connections, router};
