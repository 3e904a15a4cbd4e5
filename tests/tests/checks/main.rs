//! Checks of the repository itself: its structure, what it cites, and what it packages. No server runs.

mod architecture;
mod citations;
mod packaging;
